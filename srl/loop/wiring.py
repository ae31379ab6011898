"""Streams in place of cut edges: the worker at each end, and its connections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

from srl.config.experiment import Experiment
from srl.core.errors import UserError
from srl.dataflow.cut import Stream, call_stream, cut
from srl.dataflow.plan import Fragment, Plan, steps_as_ready
from srl.loop.acting.assignment import assignment
from srl.loop.busy_time import BusyTime
from srl.streams.group_state import STATE_BYTES, Stopped
from srl.streams.transport import Connection, Disconnected, Listener, Transport, connect, listen
from srl.streams.transport.keys import Keys
from srl.streams.transport.message import Identity

Addresses = Mapping[str, Sequence[Mapping[str, str]]]
"""The addresses of streams, by fragment and replica; empty where a worker is absent at present."""

_FIRST_PAUSE_SECONDS, _MOST_PAUSE_SECONDS = 0.05, 1.0  # between two looks for an absent worker


def streams_of(experiment: Experiment) -> dict[str, Stream]:
    """The streams that the plan needs, by name; collectives are JAX's matter."""
    streams = cut(experiment.graph, experiment.settled_plan)
    return {stream.name: stream for stream in streams if stream.transport != "collective"}


def server(stream: Stream) -> str:
    """The fragment that a stream's other end connects to: parameters are fetched, the rest sent."""
    return stream.source if stream.kind == "parameters" else stream.target


@dataclass
class Endpoints:
    """A worker's place in a plan, and its way to the others."""

    experiment: Experiment
    fragment_name: str
    replica: int
    identity: Identity
    peers: Callable[[], Addresses]
    """The addresses as they are now."""
    stopping: threading.Event
    """Set when the worker is to end."""
    transport: Transport = "host"
    alive: Callable[[], None] = field(default=lambda: None)
    """Called now and then, to show that there is progress."""
    busy: BusyTime = field(default_factory=BusyTime)
    """The time of the worker's threads, for the reports."""
    interface: str = "127.0.0.1"
    """The address of this worker for other hosts, or a network interface's name."""
    keys: Keys | None = None
    """The run's keys; None on one host."""
    host: str = ""
    """A name of this host, for peers that share its memory; by default one that no other has."""
    hurried: threading.Event = field(default_factory=threading.Event)
    """Set when the worker is to end without the update in progress."""
    _listeners: dict[str, Listener] = field(default_factory=dict, init=False)
    _fenced: dict[tuple[str, int], int] = field(default_factory=dict, init=False)

    def go_on(self) -> None:
        """Shows progress where there is nothing to do but wait.

        Raises:
            Stopped: If the worker is to end.
        """
        if self.stopping.is_set():
            raise Stopped
        self.alive()

    @property
    def plan(self) -> Plan:
        """The run's."""
        return self.experiment.settled_plan

    @property
    def fragment(self) -> Fragment:
        """This worker's nodes and resources."""
        return self.plan.fragments[self.fragment_name]

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the loop that this worker executes."""
        return self.plan.nodes_in(self.fragment_name, self.experiment.graph.nodes)

    def has(self, node: str) -> bool:
        """Tells if this worker executes a node."""
        return node in self.nodes

    @property
    def num_groups(self) -> int:
        """The groups of environments in the run."""
        return self.experiment.num_groups

    @property
    def steps_as_ready(self) -> bool:
        """True if actors step each environment as it gets ready, as a group of one."""
        return steps_as_ready(self.plan, self.experiment)

    @property
    def act_envs(self) -> int:
        """Environments in one call of `act` of an actor that acts for itself."""
        share = len(self.share("step", self.replica))
        if self.steps_as_ready:
            return min(share, self.fragment.batch or max(1, share // 2))
        return self.group_envs

    @property
    def group_envs(self) -> int:
        """Environments of one group."""
        return self.experiment.num_envs // self.num_groups

    def share(self, node: str, replica: int) -> range:
        """The groups that a replica of a node's fragment is for: as many as any other has."""
        each = self.num_groups // self.plan.fragment(node).replicas
        return range(replica * each, (replica + 1) * each)

    @cached_property
    def streams(self) -> dict[str, Stream]:
        """The plan's, by name."""
        return streams_of(self.experiment)

    @cached_property
    def served(self) -> dict[str, Stream]:
        """The streams that other workers connect to here, by kind: one of each at most."""
        streams = self.streams.values()
        return {stream.kind: stream for stream in streams if server(stream) == self.fragment_name}

    def listen(self) -> dict[str, Listener]:
        """A listener for each stream that ends here, by kind."""
        self._listeners = {
            kind: listen(
                self.transport,
                self.identity,
                limit_bytes=STATE_BYTES,
                interface=self.interface,
                keys=self.keys,
                host=self.host,
            )
            for kind in self.served
        }
        return self._listeners

    def fence(self, incarnations: Mapping[str, Sequence[int]]) -> None:
        """Lets streams that end here take nothing from earlier starts of workers; any thread may.

        Args:
            incarnations: The starts that count, of each replica of each fragment.
        """
        order = [(name, k) for name, f in self.plan.fragments.items() for k in range(f.replicas)]
        for kind, listener in self._listeners.items():
            for number, (name, replica) in enumerate(order, start=1):
                least = incarnations[name][replica]
                if least == self._fenced.get((kind, number), 0):
                    continue
                self._fenced[kind, number] = least
                if kind == "parameters":  # whose senders are workers
                    listener.fence(number, least)
                elif name == self.served[kind].source:  # and here groups of environments
                    for group in self.share(self.plan.fragments[name].nodes[0], replica):
                        listener.fence(group, least)

    def calls(self, node: str) -> str:
        """Gives the name of the stream by which calls of a node go to another worker."""
        return call_stream(self.plan.home(node))

    def connect(self, name: str, group: int | None = None) -> Connection:
        """Connects to the worker at the other end of a stream now; waits while there is none.

        Args:
            name: Of the stream.
            group: Of environments, whose stream it is; by default the worker's own.

        Raises:
            Stopped: If the worker is to end.
        """
        identity = self.identity if group is None else self.identity._replace(sender=group)
        pause = _FIRST_PAUSE_SECONDS
        while not self.stopping.is_set():
            passed: set[int] = set()  # those that turned out not to be there
            while (found := self.other_end(name, group, passed)) is not None:
                replica, address = found
                try:
                    return self._connect_to(address, identity)
                except (Disconnected, UserError):
                    passed.add(replica)
            self.alive()
            self.stopping.wait(pause)
            pause = min(2 * pause, _MOST_PAUSE_SECONDS)  # hundreds that ask would starve the rest
        raise Stopped

    def moved(self, name: str, group: int, address: str) -> Connection | None:
        """Connects to the worker that a group's stream should lead to now, if that has changed.

        Args:
            name: Of the stream.
            group: Of environments.
            address: Of the worker that it leads to at present.
        """
        found = self.other_end(name, group)
        if found is None or found[1] == address:
            return None
        try:
            return self._connect_to(found[1], self.identity._replace(sender=group))
        except (Disconnected, UserError):
            return None

    def _connect_to(self, address: str, identity: Identity) -> Connection:
        return connect(address, identity, limit_bytes=STATE_BYTES, keys=self.keys, host=self.host)

    def other_end(
        self, name: str, group: int | None, passed: Set[int] = frozenset()
    ) -> tuple[int, str] | None:
        """The replica at the other end of a stream, and its address; None while there is none.

        Args:
            name: Of the stream.
            group: Of environments; None for what all get from the first.
            passed: Replicas to pass over.
        """
        kind, to = self.streams[name].kind, server(self.streams[name])
        replicas, peers = self.plan.fragments[to].replicas, self.peers().get(to, [])
        addresses = {k: peer[kind] for k, peer in enumerate(peers) if kind in peer}
        replica = (group or 0) * replicas // self.num_groups
        # Who collects a group's unrolls is fixed; others that answer it may be any that is there.
        if kind == "inference" and to != self.plan.home("collect"):
            there = tuple(k for k in addresses if k not in passed)
            if not there:
                return None
            replica = assignment(self.num_groups, replicas, there)[group or 0]
        if replica in passed or replica not in addresses:
            return None
        return replica, addresses[replica]
