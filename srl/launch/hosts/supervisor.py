"""Runs workers on one host of several: python -P -m srl.launch.hosts.supervisor DIR FRAGMENT SLOTS.

An engine such as Slurm starts one on each host. It finds the controller by the run's folder, starts
and kills processes as that asks, and forwards messages between the two. When the controller is
gone, workers go on: the supervisor waits for the next one and reports the state of the workers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import select
import signal
import socket
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from srl.core.errors import RunError, UserError
from srl.core.optional_packages import installed_version
from srl.dataflow.plan import Plan, num_groups
from srl.launch.hosts.hosts import ThisHost, WorkerMessage, own_address
from srl.launch.hosts.messages import (
    BROKEN,
    NO_CONTROLLER,
    SILENT_SECONDS,
    HostCard,
    HostMessage,
    unwrapped,
    wrapped,
)
from srl.launch.hosts.remote_hosts import LEASE_SECONDS
from srl.launch.hosts.resources import binds, expect_open_files
from srl.loop.wiring import server, streams_of
from srl.record.run_record import find_run, read_config
from srl.run.folder import recorded_experiment
from srl.run.status import read_address, read_outcome
from srl.streams.group_state import STATE_BYTES
from srl.streams.relay import Relay
from srl.streams.transport import (
    JOINED,
    LEFT,
    Connection,
    Disconnected,
    Identity,
    Message,
    connect,
    listen,
)
from srl.streams.transport.keys import keys_of
from srl.system.supervised import Child
from srl.workers.control import LIMIT_BYTES, ControlMessage, pack, unpack
from srl.workers.worker_spec import WorkerSpec

logger = logging.getLogger("srl.launch.hosts.supervisor")  # also where this is the program

PATIENCE_SECONDS = 1800.0
"""The time without a controller after which workers are ended, as their work has no use."""
_BEAT_SECONDS, _ROUND_SECONDS, _CONNECT_SECONDS = 1.0, 0.2, 5.0
_RETRY_SECONDS, _MOST_RETRY_SECONDS = 0.2, 2.0
_FINISH_SECONDS = 600.0  # for the last checkpoint; an engine usually leaves less
_HURRY_SECONDS = 5.0  # for the update in progress, before that
_KEPT = (
    ControlMessage.HELLO,
    ControlMessage.STOPPED,
    ControlMessage.FAILED,
)  # sent again to each controller


@dataclass
class _Worker:
    """A process, and its state for a new controller."""

    spec: WorkerSpec
    slot: int
    accounts: bool
    process: Child
    connected: bool = False
    begun: bool = False
    stack: str = ""
    """Its Python stack when it was killed."""

    def __post_init__(self) -> None:
        self.kept: list[Message] = []


class Supervisor:
    """The workers of one host, for whichever controller there is."""

    def __init__(self, folder: Path, fragment: str, slots: int, name: str) -> None:
        """Starts nothing yet; there is room for `slots` workers of the fragment."""
        config = read_config(find_run(folder))
        experiment = recorded_experiment(folder)
        plan = experiment.settled_plan
        if fragment not in plan.fragments:
            raise UserError(
                f"the plan has no fragment {fragment!r}; it has {', '.join(plan.fragments)}"
            )
        expect_open_files(plan, num_groups(plan, experiment), [fragment])
        self._folder, self._interface = folder, own_address()
        self._keys = keys_of(folder)
        self._this = _room(plan, fragment, slots, self._keys.run)
        self._identity = Identity(self._this.run, secrets.randbits(32), 0)
        parameters = streams_of(experiment).get("parameters")
        self._publisher, self._relay = "", None
        if parameters is not None and parameters.target == fragment:
            self._publisher, self._relay = server(parameters), self._start_relay()
        self._card = HostCard(
            name,
            fragment,
            slots,
            installed_version(),
            config["sha256"] or "",
            self._relay.address if self._relay else "",
        )
        self._workers: dict[tuple[int, int], _Worker] = {}  # by number and incarnation
        self._address = ""  # of the controller that was reached last
        self._updates = "learn" in plan.fragments[fragment].nodes
        self._over = False
        self._connection: Connection | None = None

    def run(self) -> int:
        """Serves until the run is over.

        Returns:
            0 when it is; `NO_CONTROLLER` when none came for a long time.

        Raises:
            UserError: If the controller refuses this host.
        """
        heard, reported, pause = time.monotonic(), "", _RETRY_SECONDS
        try:
            while not self._over and read_outcome(self._folder) is None:  # END may be lost
                away = time.monotonic() - heard
                if away > PATIENCE_SECONDS:
                    logger.error("no controller for %.0f s: giving up", away)
                    return NO_CONTROLLER
                address = read_address(self._folder)
                self._yield_to(address, away)
                try:
                    if address is None:
                        raise Disconnected("no controller has written its address yet")
                    with self._connect(address, self._identity) as self._connection:
                        self._address, pause = address, _RETRY_SECONDS
                        self._introduce()
                        self._talk()
                except Disconnected as reason:
                    if self._connection is not None:
                        heard, self._connection = time.monotonic(), None
                    if self._outdated():
                        logger.info("the run was given to an engine anew; this host is not of it")
                        return 0
                    if str(reason) != reported:
                        reported = str(reason)
                        logger.info("without a controller: %s", reported)
                    self._wait(pause)
                    pause = min(2 * pause, _MOST_RETRY_SECONDS)
            return 0
        except SystemExit:
            self._finish_learners()
            raise
        finally:
            self._end_all()

    def _outdated(self) -> bool:
        """Tells if the run was given to an engine once more, which makes its keys anew."""
        with contextlib.suppress(UserError):  # a shared file may be unreadable for a moment
            return keys_of(self._folder).public != self._keys.public
        return False

    def _yield_to(self, address: str | None, away: float) -> None:
        """Ends learners that another controller, which this host cannot reach, has replaced."""
        known = self._address and address  # a shared file may be unreadable for a moment
        replaced = known and self._address != address and away > LEASE_SECONDS
        alive = [worker for worker in self._workers.values() if not worker.process.ended]
        if replaced and self._updates and alive:
            logger.error("another controller is out of reach: ending the learners here")
            for worker in alive:
                worker.process.kill()

    # ---- with the controller ----

    def _connect(
        self, address: str, identity: Identity, limit_bytes: int = LIMIT_BYTES
    ) -> Connection:
        return connect(
            address, identity, limit_bytes=limit_bytes, timeout=_CONNECT_SECONDS, keys=self._keys
        )

    def _introduce(self) -> None:
        """Sends the state of this host to a controller that may have just begun."""
        self._send(HostMessage.HOST, asdict(replace(self._card, workers=self._present())))
        for key, worker in self._workers.items():
            if worker.connected:
                self._pass_on(*key, Message(JOINED))
            for message in worker.kept:
                self._pass_on(*key, message)

    def _present(self) -> tuple[tuple[int, int, int, bool], ...]:
        return tuple((*key, worker.slot, worker.begun) for key, worker in self._workers.items())

    def _talk(self) -> None:
        """Serves a controller until the run is over, or the controller has gone."""
        assert self._connection is not None
        try:
            self._serve()
        except SystemExit:  # the engine takes this host away
            self._finish_learners()
            with contextlib.suppress(Disconnected):
                self._leave()
            raise

    def _serve(self) -> None:
        assert self._connection is not None
        poll = select.poll()
        poll.register(self._connection.fileno(), select.POLLIN)
        poll.register(self._this.fileno(), select.POLLIN)
        beat, heard = 0.0, time.monotonic()
        while not self._over:
            poll.poll(1000 * _ROUND_SECONDS)
            while (message := self._connection.receive(0)) is not None:
                heard = time.monotonic()
                self._handle(message)
            if time.monotonic() > heard + SILENT_SECONDS:
                raise Disconnected(f"the controller has not beaten for {SILENT_SECONDS:.0f} s")
            self._look_after()
            if self._relay:
                self._relay.check()
            if time.monotonic() >= beat:
                beat = time.monotonic() + _BEAT_SECONDS
                self._send(HostMessage.BEAT, self._beat())
                if read_address(self._folder) not in (self._address, None):
                    raise Disconnected("another controller has taken over")

    def _wait(self, seconds: float) -> None:
        """Looks after workers while there is no controller."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._look_after(end - time.monotonic())

    def _send(self, kind: HostMessage, values: dict[str, Any]) -> None:
        if self._connection is not None:
            self._connection.send(pack(kind, values))

    def _pass_on(self, number: int, incarnation: int, message: Message) -> None:
        if self._connection is not None:
            self._connection.send(wrapped(number, incarnation, message))

    def _handle(self, message: Message) -> None:
        if message.kind == HostMessage.WORKER:
            self._send_to_worker(*unwrapped(message))
        elif message.kind == HostMessage.START:
            self._start(unpack(message))
        elif message.kind == HostMessage.KILL:
            values = unpack(message)
            worker = self._workers.get((values["number"], values["incarnation"]))
            if worker:
                worker.stack = worker.stack or worker.process.stack()
                worker.process.kill()
        elif message.kind == HostMessage.RELAY and self._relay:
            values = unpack(message)
            self._relay.follow(values["source"], values["parent"])
        elif message.kind == HostMessage.REFUSED:
            raise UserError(unpack(message)["text"])
        elif message.kind == HostMessage.END:
            self._over = True

    def _beat(self) -> dict[str, Any]:
        states = {number: w.process.state() for (number, _), w in self._workers.items()}
        counted = [(key, w.spec.replica) for key, w in self._workers.items() if w.accounts]
        accounts = [(*key, replica, self._this.ledger.part(replica)) for key, replica in counted]
        return {"states": states, "accounts": accounts}

    # ---- workers ----

    def _start(self, values: dict[str, Any]) -> None:
        spec = WorkerSpec.from_json(values["spec"])
        log = self._folder / Path(values["log"]).relative_to(spec.folder)
        spec = replace(spec, folder=str(self._folder), interface=self._interface)
        account = values["account"]
        if account is not None:
            self._this.ledger.put(spec.replica, account)
        slot, accounts = values["slot"], account is not None
        key = spec.number, spec.incarnation
        try:
            process = self._this.start(spec, log, accounts=accounts, slot=slot)
        except OSError as error:
            logger.error("cannot start %s: %s", spec.name, error)
            how = f"could not be started on {self._card.name}: {error}"
            return self._report_end(*key, code=1, how=how)
        self._workers[key] = _Worker(spec, slot, accounts, process)
        logger.info("started %s", spec.name)

    def _send_to_worker(self, number: int, incarnation: int, message: Message) -> None:
        worker = self._workers.get((number, incarnation))
        if worker:
            worker.begun = worker.begun or message.kind == ControlMessage.START
            if self._relay and message.kind in (ControlMessage.START, ControlMessage.PEERS):
                message = self._by_relay(message, self._relay)
            self._this.send(number, message)

    def _start_relay(self) -> Relay:
        """Starts the relay that hands parameters on to the workers here, and to other hosts."""
        listener = listen(
            "cluster",
            self._identity,
            limit_bytes=STATE_BYTES,
            interface=self._interface,
            keys=self._keys,
        )
        return Relay(listener, lambda to, sender: self._connect(to, sender, STATE_BYTES))

    def _by_relay(self, message: Message, relay: Relay) -> Message:
        """The message about its peers to a worker, whose parameters come from this host."""
        values = unpack(message)
        publisher, *others = values["peers"][self._publisher] or [{}]
        by_relay = {**publisher, "parameters": relay.address}
        values["peers"][self._publisher] = [by_relay, *others]
        return pack(message.kind, values)

    def _look_after(self, timeout: float = 0.0) -> None:
        """Passes on the messages of workers, and reports those that have ended."""
        received = self._this.receive(timeout)
        while received is not None:
            self._take(received)
            received = self._this.receive(0)
        for key in [key for key, worker in self._workers.items() if worker.process.ended]:
            self._handle_exit(*key)

    def _take(self, received: WorkerMessage) -> None:
        number, incarnation, message = received
        worker = self._workers.get((number, incarnation))
        if worker is None:
            return
        if message.kind in (JOINED, LEFT):
            worker.connected = message.kind == JOINED
        if message.kind in _KEPT:
            worker.kept.append(message)
        self._pass_on(*received)

    def _handle_exit(self, number: int, incarnation: int, how: str = "") -> None:
        while (received := self._this.receive(0)) is not None:  # its last messages
            self._take(received)
        if self._connection is None:
            return  # it is reported to the next controller
        self._send(HostMessage.BEAT, self._beat())
        worker = self._workers.pop((number, incarnation))
        code, by_itself, dump = worker.process.reap()
        how = how or by_itself
        self._report_end(number, incarnation, code=code, how=how, dump=dump, stack=worker.stack)

    def _report_end(self, number: int, incarnation: int, **ending: Any) -> None:
        key = {"number": number, "incarnation": incarnation}
        self._send(HostMessage.ENDED, {"dump": "", "stack": "", **key, **ending})

    def _finish_learners(self) -> None:
        """Has the learners here write a checkpoint, for which the engine leaves some time.

        The controller, which may live on, does not learn that they end as if the run were over.
        """
        learners = list(self._workers.values()) if self._updates else []
        connection, self._connection = self._connection, None
        for worker in learners:
            if worker.connected:
                drain = pack(ControlMessage.DRAIN, {"hurry": _HURRY_SECONDS})
                self._this.send(worker.spec.number, drain)
            else:
                worker.process.kill()
        deadline = time.monotonic() + _FINISH_SECONDS
        while time.monotonic() < deadline and not all(w.process.ended for w in learners):
            received = self._this.receive(_ROUND_SECONDS)
            if received is not None:
                self._take(received)
        self._connection = connection

    def _leave(self) -> None:
        """Reports to the controller what ends here: it need not wait for this host's return."""
        card = replace(self._card, slots=0, workers=self._present())
        self._send(HostMessage.HOST, asdict(card))
        for worker in self._workers.values():
            worker.process.kill()
        for key in list(self._workers):
            self._handle_exit(*key, how=f"left with its host, {self._card.name}")

    def _end_all(self) -> None:
        for worker in self._workers.values():
            worker.process.kill()
        for worker in self._workers.values():
            worker.process.reap()
        if self._relay:
            self._relay.close()
        self._this.close()
        self._this.ledger.close()


def _room(plan: Plan, fragment: str, slots: int, run: int) -> ThisHost:
    """The resources of this host, for so many workers of one fragment."""
    own = replace(plan.fragments[fragment], replicas=slots)
    others_ask = not own.gpus and any(other.gpus for other in plan.fragments.values())
    # Cores that are not set apart for this job may be those of another job, too.
    apart = len(os.sched_getaffinity(0)) < (os.cpu_count() or 1)
    room = replace(plan, fragments={fragment: own})
    return ThisHost(room, run, gpus=() if others_ask else None, pinned=apart and binds(plan))


def _end_once(*_: Any) -> None:
    """Ends this process in good order; an engine may send the signal several times."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def main(argv: list[str]) -> int:
    """Serves one host of a run; gives its exit code: 2 where the run cannot have this host."""
    logging.basicConfig(format="%(asctime)s %(levelname)s supervisor: %(message)s")
    logging.getLogger("srl").setLevel(logging.INFO)
    signal.signal(signal.SIGTERM, _end_once)
    folder, fragment, slots = argv
    try:
        with contextlib.suppress(KeyboardInterrupt):
            return Supervisor(Path(folder), fragment, int(slots), socket.gethostname()).run()
        return 130
    except (UserError, RunError) as error:
        logger.error("%s: %s", socket.gethostname(), error)
        return 2 if isinstance(error, UserError) else BROKEN
    except Exception:
        logger.exception("%s: the supervisor has failed", socket.gethostname())
        return BROKEN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
