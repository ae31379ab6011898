"""The hosts of a run that spans several, as the controller sees them: each has a supervisor."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from srl.core.errors import UserError
from srl.core.optional_packages import installed_version
from srl.launch.hosts.hosts import Found, Hosts, Process, Superseded, WorkerMessage
from srl.launch.hosts.messages import (
    SCHEMAS,
    SILENT_SECONDS,
    HostCard,
    HostMessage,
    unwrapped,
    wrapped,
)
from srl.launch.hosts.rooms import Room
from srl.loop.learning.unroll_ledger import Ledger
from srl.record.run_record import RunFolder, read_config
from srl.run.status import note_begun, note_unrolls, read_address, read_unrolls, write_address
from srl.streams.relay import parents
from srl.streams.transport import JOINED, LEFT, Identity, Message, Peer, Refused, listen
from srl.streams.transport.keys import keys_of
from srl.system.supervised import Ended, Presence
from srl.workers.control import CONTROLLER, LIMIT_BYTES, pack
from srl.workers.message_schemas import checked_values
from srl.workers.worker_spec import WorkerSpec

logger = logging.getLogger(__name__)

LEASE_SECONDS = 15.0
_LOOK_SECONDS = 0.5  # between two looks at all hosts: there may be thousands
_NOTE_SECONDS = 2.0  # between two records of the account of unrolls
_MOST_INCARNATIONS = 1 << 12  # that one controller starts
_RETURN_SECONDS = 8.0  # for hosts to find a controller that was started again


@dataclass(eq=False)
class Host:
    """One supervisor, through all its connections."""

    card: HostCard
    peer: Peer | None
    """The peer at the present connection; None while it is out of reach."""
    heard_at: float = field(default_factory=time.monotonic)
    """When it last sent something."""
    lost_at: float = 0.0
    relay_sent: dict[str, str] | None = None
    """The addresses from which its relay gets the parameters, as last sent."""
    processes: dict[int, RemoteProcess] = field(default_factory=dict)
    """The processes by slot, until their ends are known."""

    @property
    def free(self) -> int:
        """Slots without a process; 0 while it is out of reach."""
        return self.card.slots - len(self.processes) if self.peer else 0

    @property
    def load(self) -> float:
        """The part of its slots that have a process."""
        return len(self.processes) / self.card.slots


class RemoteProcess:
    """A worker's process on another host: what is known of it."""

    def __init__(self, hosts: RemoteHosts, host: Host, key: tuple[int, int]) -> None:
        """Takes the worker's `key`: its number and its incarnation."""
        self.host, self.key = host, key
        self.reported_state = "running"
        self._hosts = hosts
        self._end: Ended | None = None
        self.unwanted = False

    @property
    def ended(self) -> bool:
        """True if the process has ended; `reap` must follow."""
        return self._end is not None

    def end(self, how: str, code: int = -9, dump: str = "", stack: str = "") -> None:
        """Notes that it has ended, or is given up."""
        self._end = self._end or Ended(code, how, f"{dump}\n{stack}".strip())

    def state(self) -> str:
        """Describes whether it runs, sleeps or is stopped."""
        return self.reported_state

    def stack(self) -> str:
        """Empty: its supervisor reports the stack with the end."""
        return ""

    def kill(self) -> None:
        """Has it killed; while its host is out of reach, as soon as that comes back."""
        number, incarnation = self.key
        self.unwanted = True
        values = {"number": number, "incarnation": incarnation}
        self._hosts.send_to_host(self.host, HostMessage.KILL, values)

    def reap(self) -> Ended:
        """Its end."""
        return self._end or Ended(-9, "was killed", "")


class RemoteHosts(Hosts):
    """The hosts whose supervisors have found the controller."""

    def __init__(
        self,
        folder: RunFolder,
        interface: str = "127.0.0.1",
        lease_seconds: float = LEASE_SECONDS,
        expected: Mapping[str, int] | None = None,
        publisher: str = "",
    ) -> None:
        """Listens, and writes the address into the run's folder.

        Args:
            folder: The run's.
            interface: Address of this host at which others reach it.
            lease_seconds: That a host may be out of reach before its workers are given up.
            expected: Hosts of each fragment; where they are all there, none is waited for before
                a worker is started anew.
            publisher: The fragment whose first replica publishes parameters, if there is one.
        """
        self._lease_seconds, self._expected = lease_seconds, expected or {}
        self._publisher, self._published_at = publisher, ""
        self._looked, self._presence = 0.0, Presence()  # at all hosts
        self._relays: list[Host] = []  # as the tree has them
        self._relays_changed = False
        keys = keys_of(folder.path)
        self.run = keys.run
        self.ledger = Ledger.create()
        identity = Identity(self.run, CONTROLLER, 0)
        self._listener = listen(
            "network", identity, limit_bytes=LIMIT_BYTES, interface=interface, keys=keys
        )
        self._source = read_config(folder)["sha256"] or ""
        self._hosts: dict[int, Host] = {}  # by sender
        self._rooms: defaultdict[str, Room] = defaultdict(Room)
        self._ready: deque[WorkerMessage] = deque()
        self._found: list[Found] = []
        self._newest: dict[int, RemoteProcess] = {}  # of each worker
        self.superseded = False
        """True if another controller has taken the run over."""
        self._folder, self._next_look = folder.path, 0.0
        term = write_address(folder.path, self._listener.address)
        self._start_at = time.monotonic() + (_RETURN_SECONDS if term else 0.0)
        self.first_incarnation = term * _MOST_INCARNATIONS
        # Of learners that were lost with the last controller nobody else knows it.
        self._noted = read_unrolls(folder.path) if term else {}
        self._next_note = 0.0
        for learner, part in self._noted.items():
            self.ledger.put(learner, part)

    # ---- for the controller ----

    def has_room(self, fragment: str) -> bool:
        """Tells if a present host has a free slot, and no host with this worker may come."""
        if self._rooms[fragment].emptiest() is None:
            return False
        return self.settled or self._complete(fragment)

    def start(self, spec: WorkerSpec, log: Path, *, accounts: bool) -> Process | None:
        """Starts a worker on the emptiest host that is there for its fragment."""
        host = self._rooms[spec.fragment].emptiest()
        if host is None:
            return None
        slot = next(k for k in range(host.card.slots) if k not in host.processes)
        process = RemoteProcess(self, host, (spec.number, spec.incarnation))
        host.processes[slot] = self._newest[spec.number] = process
        self._rooms[spec.fragment].note(host)
        account = self.ledger.part(spec.replica) if accounts else None
        values = {"spec": spec.to_json(), "log": str(log), "slot": slot, "account": account}
        self.send_to_host(host, HostMessage.START, values)
        logger.info("%s goes to %s", spec.name, host.card.name)
        return process

    @property
    def settled(self) -> bool:
        """True if all hosts of an earlier controller have had the time to come."""
        return time.monotonic() >= self._start_at

    def _complete(self, fragment: str) -> bool:
        """Tells if no host of a fragment is yet to come, which might have its workers already."""
        expected = self._expected.get(fragment)
        there = (h.peer and h.card.fragment == fragment for h in self._hosts.values())
        return expected is not None and sum(map(bool, there)) >= expected

    def note_addresses(self, addresses: Mapping[str, Sequence[Mapping[str, str]]]) -> None:
        """Sends to hosts' relays where parameters are published."""
        publishers = addresses.get(self._publisher) or [{}]
        self._published_at = publishers[0].get("parameters", "") or self._published_at
        self._arrange_relays()

    def note_begun(self) -> None:
        """Records it in the run's folder."""
        with contextlib.suppress(OSError):  # the run can do without
            note_begun(self._folder)

    def receive(self, timeout: float) -> WorkerMessage | None:
        """The next message; None after `timeout` seconds, or earlier, without one."""
        if not self._ready:
            received = self._listener.receive(timeout)
            if received is not None:
                self._receive(*received)
            elif self._relays_changed:  # once for all hosts that have just come
                self._arrange_relays()
            self._give_up()
            self._look_for_successor()
        return self._ready.popleft() if self._ready else None

    def send(self, number: int, message: Message) -> None:
        """Sends a message to a worker; it is lost if that has gone, or is out of reach."""
        process = self._newest.get(number)
        if process and process.host.peer:
            self._listener.send(process.host.peer, wrapped(*process.key, message))

    def found(self) -> list[Found]:
        """The processes that supervisors had when they came, since the last call."""
        found, self._found = self._found, []
        return found

    def send_to_host(self, host: Host, kind: HostMessage, values: dict[str, Any]) -> None:
        """Sends a message to a supervisor, if it is connected."""
        if host.peer and not self.superseded:
            self._listener.send(host.peer, pack(kind, values))

    def close(self) -> None:
        """Reports to all supervisors that the run is over, and ends the connections."""
        for host in self._hosts.values():
            self.send_to_host(host, HostMessage.END, {})
        super().close()

    # ---- messages of supervisors ----

    def _receive(self, peer: Peer, message: Message) -> None:
        host = self._hosts.get(peer.identity.sender)
        try:
            if message.kind == HostMessage.HOST:
                self._take_host(peer, checked_values(message, SCHEMAS))
            elif host is None or host.peer is not peer:
                if message.kind not in (JOINED, LEFT):
                    raise Refused(f"a message of kind {message.kind} before HOST")
            elif message.kind == LEFT:
                self._lose_sight(host)
            else:
                host.heard_at = time.monotonic()
                self._take(host, message)
        except Refused as error:
            self._listener.refuse(host.card.name if host else peer, error)

    def _take(self, host: Host, message: Message) -> None:
        if message.kind == HostMessage.WORKER:
            number, incarnation, inner = unwrapped(message)
            self._ready.append(WorkerMessage(number, incarnation, inner))
            return
        values = checked_values(message, SCHEMAS)
        if message.kind == HostMessage.ENDED:
            key = values["number"], values["incarnation"]
            end = {name: values[name] for name in ("how", "code", "dump", "stack")}
            for slot, process in list(host.processes.items()):
                if process.key == key:
                    process.end(**end)
                    del host.processes[slot]
            self._rooms[host.card.fragment].note(host)
        elif message.kind == HostMessage.BEAT:
            for number, incarnation, replica, part in values["accounts"]:
                newest = self._newest.get(number)
                if newest and newest.key == (number, incarnation):
                    self.ledger.put(replica, part)
            for process in host.processes.values():
                process.reported_state = values["states"].get(str(process.key[0]), "gone")

    def _take_host(self, peer: Peer, values: dict[str, Any]) -> None:
        """Takes in a supervisor that connects, or connects again."""
        if mismatch := self._mismatch(values):
            self._listener.send(peer, pack(HostMessage.REFUSED, {"text": mismatch}))
            if not self._newest:
                raise UserError(mismatch)
            logger.error("%s", mismatch)
            return
        card = HostCard.of(values)
        known = self._hosts.get(peer.identity.sender)
        if known is None:
            logger.info("%s is there, for %d x %s", card.name, card.slots, card.fragment)
            known = self._hosts[peer.identity.sender] = Host(card, peer)
        known.card, known.peer, known.relay_sent = card, peer, None
        known.heard_at = time.monotonic()
        if card.relay and known not in self._relays:
            self._relays.append(known)
        self._relays_changed = True
        there = {(n, incarnation): (slot, begun) for n, incarnation, slot, begun in card.workers}
        for slot, process in list(known.processes.items()):
            if process.key not in there:
                process.end("ended while its host was out of reach")
                del known.processes[slot]
            elif process.unwanted:
                process.kill()
        held = {process.key for process in known.processes.values()}
        for key, (slot, begun) in there.items():
            if key not in held:
                self._adopt(known, key, slot, begun)
        self._rooms[card.fragment].note(known)

    def _arrange_relays(self) -> None:
        """Sends to hosts which relay hands parameters on to theirs, where that has changed."""
        relays, self._relays_changed = self._relays, False
        for host, above in zip(relays, parents([h.card.name for h in relays]), strict=True):
            parent = "" if above is None else relays[above].card.relay
            sources = {"source": self._published_at, "parent": parent}
            if host.peer and sources != host.relay_sent:
                host.relay_sent = sources
                self.send_to_host(host, HostMessage.RELAY, sources)

    def _drop_relay(self, host: Host) -> None:
        """Takes a host out of the tree; the last comes in its place, and all others stay."""
        if host in self._relays:
            last = self._relays.pop()
            if last is not host:
                self._relays[self._relays.index(host)] = last
            self._relays_changed = True

    def _adopt(self, host: Host, key: tuple[int, int], slot: int, begun: bool) -> None:
        """Takes in a process that another controller has started, or that was given up."""
        process = host.processes[slot] = RemoteProcess(self, host, key)
        number, incarnation = key
        known = self._newest.get(number)
        if known is None or known.key[1] <= incarnation:
            self._newest[number] = process
        self._found.append(Found(number, incarnation, process, begun))

    def _mismatch(self, values: dict[str, Any]) -> str:
        """Why a host cannot take part; empty if it can."""
        name, version, ours = values.get("name"), values.get("version"), installed_version()
        if version != ours:
            return f"{name} has srl {version}, the controller {ours}: install the same"
        if values.get("source") != self._source:
            return f"{name} sees another experiment file than the run's: is its folder shared?"
        return ""

    def _look_for_successor(self) -> None:
        """Leaves everything to a later controller: of a job that was started again elsewhere."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + 1.0
        if read_address(self._folder) not in (self._listener.address, None):
            self.superseded = True
            raise Superseded("another controller has taken this run over; this one leaves it alone")

    def _lose_sight(self, host: Host) -> None:
        host.peer, host.lost_at = None, time.monotonic()
        logger.warning("%s is out of reach", host.card.name)
        for process in host.processes.values():
            self._ready.append(WorkerMessage(*process.key, Message(LEFT)))

    def _give_up(self) -> None:
        """Gives up the workers of hosts that have been out of reach for too long."""
        now = time.monotonic()
        if now < self._looked + _LOOK_SECONDS:
            return
        self._looked = now
        self._note_unrolls(now)
        self._beat(now, absent=self._presence.was_stopped())
        for sender, host in list(self._hosts.items()):
            if host.peer is None and now > host.lost_at + self._lease_seconds:
                for process in host.processes.values():
                    process.end(f"was lost with its host, {host.card.name}")
                del self._hosts[sender]
                self._drop_relay(host)
        if self._relays_changed:
            self._arrange_relays()

    def _note_unrolls(self, now: float) -> None:
        if now >= self._next_note and (parts := self.ledger.parts()) != self._noted:
            self._noted, self._next_note = parts, now + _NOTE_SECONDS
            note_unrolls(self._folder, parts)

    def _beat(self, now: float, absent: bool) -> None:
        """Beats to all hosts, and disconnects those that do not beat."""
        beat = pack(HostMessage.BEAT, {})
        for host in self._hosts.values():
            if absent:
                host.heard_at = now
            if host.peer is None or self.superseded:
                continue
            if now > host.heard_at + SILENT_SECONDS:
                self._listener.cut_off(host.peer, "its supervisor does not beat")
            else:
                self._listener.send(host.peer, beat)
