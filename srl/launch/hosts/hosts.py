"""The hosts on which a run's workers run: this machine, or others behind the same interface."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol

from srl.core.errors import RunError, UserError
from srl.dataflow.plan import Plan
from srl.launch.hosts.resources import shares
from srl.loop.learning.unroll_ledger import Ledger
from srl.streams.transport import JOINED, LEFT, Identity, Listener, Message, Peer, listen
from srl.system.background.cpu_limit import whole_cores_granted
from srl.system.compilation import cache_environment
from srl.system.gpus import machine_gpus
from srl.system.shared_memory import available_bytes
from srl.system.supervised import Child, Ended
from srl.workers.control import CONTROLLER, LIMIT_BYTES
from srl.workers.worker_spec import WorkerSpec


class Superseded(RunError):
    """Another controller has taken the run over, which goes on."""


class WorkerMessage(NamedTuple):
    """A message that a worker has sent; the first is JOINED, the last LEFT."""

    number: int
    incarnation: int
    message: Message


class Process(Protocol):
    """One process of a worker."""

    @property
    def ended(self) -> bool:
        """True if the process has ended; `reap` must follow."""
        ...

    def state(self) -> str:
        """Describes whether it runs, sleeps or is stopped."""
        ...

    def stack(self) -> str:
        """Its Python stack, if the process can write it now."""
        ...

    def kill(self) -> None:
        """Kills the process and what it has started."""

    def reap(self) -> Ended:
        """Its end, for which it may wait."""
        ...


class Found(NamedTuple):
    """A process that was there before this controller, or that had been given up."""

    number: int
    incarnation: int
    process: Process
    begun: bool
    """True if the worker was sent START."""


class Hosts(ABC):
    """Starts workers' processes, and carries messages between them and the controller."""

    run: int
    """64 random bits that distinguish the processes of this run from those of others."""
    ledger: Ledger
    """The account of unrolls, which learners write."""
    first_incarnation = 0
    """The first incarnation that this controller may start: later than all of earlier ones."""
    _listener: Listener

    def has_room(self, fragment: str) -> bool:
        """Tells if one more worker of a fragment can be started."""
        return True

    @abstractmethod
    def start(self, spec: WorkerSpec, log: Path, *, accounts: bool) -> Process | None:
        """Starts a worker; None while there is no room for it.

        Args:
            spec: For the worker; what its host alone can know is filled in there.
            log: A file for its standard output and error.
            accounts: Whether it writes the ledger.
        """

    @abstractmethod
    def receive(self, timeout: float) -> WorkerMessage | None:
        """The next message; None after `timeout` seconds, or earlier, without one."""

    @abstractmethod
    def send(self, number: int, message: Message) -> None:
        """Sends a message to a worker; it is lost if that has gone."""

    @property
    def settled(self) -> bool:
        """True if all hosts of an earlier controller have had the time to come."""
        return True

    @abstractmethod
    def note_addresses(self, addresses: Mapping[str, Sequence[Mapping[str, str]]]) -> None:
        """Takes workers' addresses, empty of absent ones, for hosts that may have none of them."""

    @abstractmethod
    def note_begun(self) -> None:
        """Records that the run has begun, for commands that may end one that has not."""

    def found(self) -> list[Found]:
        """The processes found since the last call: to be killed, or to go on with."""
        return []

    def refuse(self, sender: str, reason: object) -> None:
        """Counts and logs a message that does not fit."""
        self._listener.refuse(sender, reason)

    def close(self) -> None:
        """Ends the connections, but no worker; the ledger stays."""
        self._listener.close()


class ThisHost(Hosts):
    """Processes on this machine, which they share as the plan has it."""

    def __init__(
        self,
        plan: Plan,
        run: int | None = None,
        *,
        gpus: Sequence[str] | None = None,
        pinned: bool | None = None,
    ) -> None:
        """Takes the machine.

        Args:
            plan: Of the workers that may be started here.
            run: Of the run; drawn by default.
            gpus: That these workers may use; all of the machine by default.
            pinned: Whether each worker stays on cores; by default as `binds` tells. Under a quota
                of processor time none does: others may be on the same cores.
        """
        gpus = machine_gpus() if gpus is None else gpus
        self.run = secrets.randbits(64) if run is None else run
        self.ledger = Ledger.create()
        identity = Identity(self.run, CONTROLLER, 0)
        self._listener = listen("host", identity, limit_bytes=LIMIT_BYTES)
        self._peers: dict[int, Peer] = {}
        cores, granted = sorted(os.sched_getaffinity(0)), whole_cores_granted()
        pinned = pinned if granted == len(cores) else False
        self._shares = shares(plan, cores[:granted], gpus, available_bytes(), pinned=pinned)

    def start(
        self, spec: WorkerSpec, log: Path, *, accounts: bool, slot: int | None = None
    ) -> Child:
        """Starts a worker on a share of the machine: by default on that of its replica."""
        share = self._shares[spec.fragment, spec.replica if slot is None else slot]
        spec = replace(
            spec,
            run=self.run,
            controller=self._listener.address,
            cores=share.cores,
            ledger=self.ledger.fd if accounts else -1,
        )
        with log.open("ab") as output:
            return Child(
                "srl.workers.main",
                spec.to_json(),
                environment={**share.environment, **cache_environment()},
                stdout=output,
                stderr=output,
                pass_fds=[spec.ledger] if accounts else [],
                options=["-u"],  # what a process that is killed has written is in its log
                dies_with_parent=True,
            )

    def receive(self, timeout: float) -> WorkerMessage | None:
        """The next message; None after `timeout` seconds without one."""
        received = self._listener.receive(timeout)
        if received is None:
            return None
        peer, message = received
        message.close_fds()  # workers send none
        number, incarnation = peer.identity.sender, peer.identity.incarnation
        if message.kind == JOINED:
            self._peers[number] = peer
        elif message.kind == LEFT and self._peers.get(number) is peer:
            del self._peers[number]
        return WorkerMessage(number, incarnation, message)

    def send(self, number: int, message: Message) -> None:
        """Sends a message to a worker; it is lost if that has gone."""
        if number in self._peers:
            self._listener.send(self._peers[number], message)

    def note_addresses(self, addresses: Mapping[str, Sequence[Mapping[str, str]]]) -> None:
        """Does nothing: here all processes share memory."""

    def note_begun(self) -> None:
        """Does nothing: commands follow a run of this machine by other files."""

    def fileno(self) -> int:
        """A descriptor that is readable when there may be messages, for `receive(0)`."""
        return self._listener.fileno()


def own_address() -> str:
    """The address at which other hosts reach this one: that of its name, or of its way out.

    Raises:
        UserError: If it has none.
    """
    with contextlib.suppress(OSError):
        address = socket.gethostbyname(socket.gethostname())
        if not address.startswith("127."):
            return address
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # nothing is sent; the kernel chooses the way
        return probe.getsockname()[0]
    raise UserError(
        f"{socket.gethostname()} has no address at which other hosts reach it: its name stands for "
        "itself alone; give it one in /etc/hosts"
    )
