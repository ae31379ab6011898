"""The nodes `act` and `teach` for other workers: calls are answered in batches of one shape."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from srl.core.lazy import jax
from srl.core.tree import Leaves, copy_tree, leaves_of, map_tree
from srl.core.types import Array, Decision, Tree
from srl.dataflow.nodes import ANSWERING, read_by
from srl.loop.acting.parameters import Source
from srl.loop.acting.taught_acting import advised
from srl.loop.binding import decision_spec, run_key
from srl.loop.devices import to_host
from srl.loop.policy_set import PolicySet
from srl.loop.wiring import Endpoints
from srl.pools.timestep_arrays import empty_timestep
from srl.streams.batch import UnrollWriter
from srl.streams.group_state import Start, unpacked_state
from srl.streams.inference import FIELDS, InferenceMessage, Session
from srl.streams.layout import Layout
from srl.streams.sample import Grant
from srl.streams.sample_forwarder import SampleForwarder
from srl.streams.sample_sink import SampleSink
from srl.streams.transport import Listener, Peer
from srl.streams.transport.message import JOINED, LEFT, Message, Refused
from srl.streams.transport.schema import check, reject


def inference_layout(
    policy_set: PolicySet, num_envs: int, request: set[str], reply: set[str]
) -> Layout:
    """Gives the layout of a group's shared buffers.

    Args:
        policy_set: The policies.
        num_envs: Of a group.
        request: Names of the asking end's arrays: fields of a timestep, memory, and advice.
        reply: Names of fields of the decision.
    """
    decision = decision_spec(policy_set, num_envs)
    sent = {**empty_timestep(policy_set.specs, num_envs)._asdict(), **decision._asdict()}
    return Layout.of(
        {
            "request": {name: sent[name] for name in sorted(request)},
            "reply": {name: getattr(decision, name) for name in sorted(reply)},
        }
    )


Collected = SampleSink | SampleForwarder
"""The way of unrolls that are collected here: a learner in this process, or streams to some."""


class PolicyServer:
    """Answers groups. Where it collects, it writes their unrolls, too, and keeps their memory."""

    def __init__(
        self,
        endpoints: Endpoints,
        policy_set: PolicySet,
        parameters: Source,
        listener: Listener,
        sink: Collected | None = None,
    ) -> None:
        """Compiles the call, so that no request waits for a compiler.

        Args:
            endpoints: Of the worker.
            policy_set: The run's policies.
            parameters: Where they come from.
            listener: Where groups connect.
            sink: Where unrolls go, if they are collected here.
        """
        self.listener, self._parameters, self._busy = listener, parameters, endpoints.busy
        self._nodes = nodes = [node for node in endpoints.nodes if node in ANSWERING]
        self._policy_set, self._reads = policy_set.within(nodes), read_by(*nodes)
        num_envs, stream = endpoints.group_envs, endpoints.served["inference"]
        request, reply = ({field.name for field in part} for part in (stream.request, stream.reply))
        self._layout = inference_layout(policy_set, num_envs, request, reply)
        # So many groups ask at a time; so many of them are acted for in one call. A group always
        # has the same index in it, and an unused one is filled up: so results never depend on the
        # other requests.
        self._groups, self._width = _most_groups(endpoints), batch_envs(endpoints) // num_envs
        self._deadline = endpoints.fragment.deadline
        # Where unrolls are collected, a group belongs to the learner; else any worker may act.
        self._group_range = range(endpoints.num_groups) if sink is None else sink.groups
        self._sink = sink
        self._sessions: dict[int, Session] = {}
        self._waiting: dict[int, Session] = {}  # that have asked, first come first
        self._early: dict[int, int] = {}  # of these, for versions to come: what each waits for
        self._batch_indices_taken = 0  # by all sessions
        self._unrolls: dict[int, _Unroll] = {}
        self._initial_memory = map_tree(np.asarray, policy_set.initial_memory(num_envs))
        self._memory_of = Leaves(decision_spec(policy_set, num_envs).memory)
        self.answered = 0
        """The number of requests answered so far."""
        self.on_ticket_wait: Callable[[float], None] = lambda seconds: None
        """Called with the seconds for which a group has waited for a ticket; it has counted these
        as waiting for a reply."""
        self._key = run_key(endpoints.experiment)
        self._act = jax.jit(self._act_on)
        self._to_host = to_host()
        self._inputs = _Inputs(policy_set, num_envs, self._width, self._reads)
        if sink is not None:
            sink.on_room = listener.wake
        _, policies = parameters.newest((0, 0))
        jax.block_until_ready(self._act(policies, self._inputs.arrays, self._key))

    def _act_on(
        self, policies: Any, inputs: dict[str, Tree], key: Any
    ) -> dict[str, tuple[Array, ...]]:
        """The arrays of each field of the decision; of a teacher alone only the advice."""
        observation = inputs["observation"]
        if "act" in self._nodes:
            ended = inputs["terminated"] | inputs["truncated"]
            drawing = key, inputs["clock"], inputs["slots"]
            decision = self._policy_set.act(
                policies, observation, ended, inputs["memory"], *drawing
            )
        else:
            decision = Decision((), (), (), self._policy_set.teach(observation))
        return {name: tuple(leaves_of(part)) for name, part in decision._asdict().items()}

    def serve(self, stopped: Callable[[], bool]) -> None:
        """Answers until `stopped()`, which is looked at twice a second."""
        self._busy.begin(threads=1)
        while not stopped():
            self._receive(self._patience())
            due = self._due()
            if due:
                self._answer(due)
                self.answered += len(due)

    # ---- requests ----

    def _patience(self) -> float:
        """Gives the seconds to wait for messages."""
        for group, session in self._waiting.items():
            if group not in self._early and not self._blocked(group):
                return max(0.0, session.arrived + self._deadline - time.monotonic())
        return 0.5

    def _receive(self, patience: float) -> None:
        """Takes in what has come; waits only for the first message, or for newer parameters."""
        awaited = {*self._early.values(), *(self._sink.awaited() if self._sink else ())}
        received = self.listener.receive(0 if awaited else patience)
        if received is None and awaited:
            readable = select.poll()
            for fd in {self.listener.fileno(), *awaited}:
                readable.register(fd, select.POLLIN)
            readable.poll(1000 * patience)
            received = self.listener.receive(0)
        while received is not None:
            self._hear(*received)
            received = self.listener.receive(0)

    def _hear(self, peer: Peer, message: Message) -> None:
        try:
            self._take_in(peer, message)
        except Refused as reason:  # its answer would be waited for
            reject(self.listener, peer, reason)

    def _take_in(self, peer: Peer, message: Message) -> None:
        group = peer.identity.sender
        session = self._sessions.get(group)
        if message.kind == LEFT and session is not None and session.peer is peer:
            self._close(group)
        if message.kind in (JOINED, LEFT):
            return
        check(message, FIELDS)
        if message.kind == InferenceMessage.OPEN:
            self._open(peer, group, goes_on=any(message.counts))
        elif session is None or session.peer is not peer:
            raise Refused(f"a message of kind {message.kind} before OPEN")
        elif message.kind == InferenceMessage.REQUEST:
            session.take_in(message, time.monotonic())
            self._waiting.pop(group, None)  # its turn is the last one's
            self._waiting[group] = session
        elif message.kind == InferenceMessage.STATE and self._sink is not None:
            memory = self._memory_of.tree(map(np.array, self._unrolls[group].memory))
            self._sink.give_state(group, {**unpacked_state(message), "memory": memory})
        else:
            message.close_fds()
            raise Refused(f"a message of kind {message.kind}")

    def _count_batch_indices(self, changed: int) -> None:
        """Counts the groups anew after one has come or gone, of which nothing waits."""
        self._waiting.pop(changed, None)
        self._early.pop(changed, None)
        self._batch_indices_taken = len({self._batch_index(group) for group in self._sessions})

    def _close(self, group: int) -> None:
        """Lets go of a group that has gone."""
        del self._sessions[group]
        self._count_batch_indices(group)
        if self._sink is not None:
            self._sink.leave(group)

    def _open(self, peer: Peer, group: int, *, goes_on: bool) -> None:
        if group not in self._group_range:
            own = self._group_range
            raise Refused(
                f"group {group} does not ask here; expected {own.start} to {own.stop - 1}"
            )
        session = self._sessions[group] = Session(self.listener, peer, self._layout, self._reads)
        self._count_batch_indices(group)
        if "memory" in session.buffers["reply"]:
            copy_tree(self._initial_memory, session.buffers["reply"]["memory"])
        if self._sink is None:
            session.open(Start(0, 0, None))
            return
        start = self._sink.join(group)
        if goes_on:  # from where it is, which is not where a checkpoint has it
            start = start._replace(saved=None)
        memory = self._initial_memory if start.saved is None else start.saved["memory"]
        self._unrolls[group] = _Unroll(list(map(np.array, leaves_of(memory))))
        session.open(start)

    def _blocked(self, group: int) -> bool:
        unroll = self._unrolls.get(group)
        return unroll is not None and unroll.grant is None

    def _batch_index(self, group: int) -> int:
        """The group's index in the batch, which neighbours share: one is stepped meanwhile."""
        return group % self._groups * self._width // self._groups

    def _due(self) -> dict[int, Session]:
        """The groups to answer now, by index: enough, or some that have waited long enough."""
        ready = [session for session in tuple(self._waiting.values()) if self._is_there(session)]
        if self._sink is not None:
            ready = [session for session in ready if self._collect(session)]
        if not ready:
            return {}
        late = ready[0].arrived + self._deadline <= time.monotonic()
        enough = self._enough()
        if not late and len(ready) < enough:  # as it is most often
            return {}
        chosen: dict[int, Session] = {}
        for session in ready:
            chosen.setdefault(self._batch_index(session.group), session)
        return chosen if late or len(chosen) >= enough else {}

    def _is_there(self, session: Session) -> bool:
        """Tells if parameters as new as the request wants are there; refuses one for the future."""
        self._early.pop(session.group, None)
        try:
            source = self._parameters.awaited(session.oldest_version, session.arrived)
        except Refused as reason:
            del self._waiting[session.group]
            reject(self.listener, session.peer, reason)
            return False
        if source is not None:
            self._early[session.group] = source
        return source is None

    def _enough(self) -> int:
        """Counts the indices of all groups that may ask."""
        if self._sink is None:
            return self._batch_indices_taken
        return len(
            {self._batch_index(group) for group in self._sessions if not self._blocked(group)}
        )

    # ---- collecting ----

    def _collect(self, session: Session) -> bool:
        """Writes the timestep of a request into its unroll; False while that may not begin."""
        assert self._sink is not None
        unroll, group = self._unrolls[session.group], session.group
        timestep = session.timestep
        if unroll.grant is not None and unroll.t == unroll.writer.length:
            unroll.writer.write_timestep(unroll.t, timestep)
            self._sink.deliver(group, unroll.grant.ticket)
            unroll.grant, unroll.t = None, 0
        if unroll.grant is None and not self._begin_unroll(session, unroll):
            return False
        if not unroll.written:
            unroll.writer.write_timestep(unroll.t, timestep)
            unroll.writer.write_memory(unroll.t, tuple(unroll.memory))
            unroll.written = True
        return True

    def _begin_unroll(self, session: Session, unroll: _Unroll) -> bool:
        """Takes a ticket, if there is one; asks for the group's state where that is wanted."""
        assert self._sink is not None
        group = session.group
        if not self._sink.wants_state(group):
            unroll.asked_state = False
            unroll.grant = self._sink.take(group)
        if unroll.grant is None:
            if self._sink.wants_state(group) and not unroll.asked_state:
                session.send(Message(InferenceMessage.WANT_STATE))
                unroll.asked_state = True
            return False
        unroll.writer = UnrollWriter(unroll.grant.columns)
        session.oldest_version = unroll.grant.oldest_version
        self.on_ticket_wait(time.monotonic() - session.arrived)
        return self._is_there(session)  # the parameters that the ticket asks for

    # ---- acting ----

    def _answer(self, sessions: dict[int, Session]) -> None:
        oldest = max(session.oldest_version for session in sessions.values())
        version, policies = self._parameters.newest(oldest)
        before = time.perf_counter()
        for index, session in sessions.items():
            unroll = self._unrolls.get(session.group)
            kept = () if unroll is None else unroll.memory
            self._inputs.write(index, session.group, [*session.asked, *kept], session.clock)
        fields = self._to_host(self._act(policies, self._inputs.arrays, self._key))
        part = self._inputs.part  # memory has as many rows as its policy has slots
        for index, session in sessions.items():
            own = {name: [part(x, index) for x in leaves] for name, leaves in fields.items()}
            if session.advice:
                own |= advised(self._policy_set, own, session.advice)
            for name, targets in session.replied.items():
                for target, source in zip(targets, own[name], strict=True):
                    target[...] = source
            unroll = self._unrolls.get(session.group)
            if unroll is not None:
                unroll.decide(own, version)
            del self._waiting[session.group]
            session.reply(version)
        self._busy.add({self._nodes[0]: time.perf_counter() - before})


class _Unroll:
    """The unroll of a group whose unrolls are collected here."""

    writer: UnrollWriter  # of the grant

    def __init__(self, memory: list[np.ndarray]) -> None:
        self.memory = memory
        """The memory of the group's slots, leaf by leaf."""
        self.grant: Grant | None = None
        self.t = 0
        self.written = False
        """True if row t holds its timestep."""
        self.asked_state = False

    def decide(self, decision: dict[str, list[np.ndarray]], version: np.ndarray) -> None:
        """Completes row t: with the arrays of each field of the decision."""
        row = [*decision["action"], *decision["log_prob"], *decision["advice"]]
        self.writer.write_leaves(self.t, row, version)
        self.memory = [x.copy() for x in decision["memory"]]
        self.t, self.written = self.t + 1, False


class _Inputs:
    """The arguments of a call, for several groups together."""

    def __init__(
        self, policy_set: PolicySet, num_envs: int, width: int, reads: Sequence[str]
    ) -> None:
        self._width, self._slots = width, num_envs * len(policy_set.specs.agents)
        timestep = empty_timestep(policy_set.specs, width * num_envs)
        count = width * self._slots
        self.arrays: dict[str, Tree] = {
            "observation": timestep.observation,
            "terminated": timestep.terminated,
            "truncated": timestep.truncated,
            "memory": map_tree(np.array, policy_set.initial_memory(width * num_envs)),
            "clock": np.zeros(count, np.uint32),
            "slots": np.zeros(count, np.int32),
        }
        self._offsets = np.arange(self._slots, dtype=np.int32)
        self._parts = [
            (
                [self.part(x, index) for name in reads for x in leaves_of(self.arrays[name])],
                self.part(self.arrays["clock"], index),
                self.part(self.arrays["slots"], index),
            )
            for index in range(width)
        ]

    def part(self, x: np.ndarray, index: int) -> np.ndarray:
        """The rows of the group at this index."""
        rows = len(x) // self._width
        return x[index * rows : (index + 1) * rows]

    def write(self, index: int, group: int, asked: list[np.ndarray], clock: int) -> None:
        """Puts what a group asks for at an index of the batch."""
        targets, clocks, slots = self._parts[index]
        for target, value in zip(targets, asked, strict=True):
            target[...] = value
        clocks[:] = clock
        slots[:] = self._offsets
        slots += group * self._slots


def batch_envs(endpoints: Endpoints) -> int:
    """The number of environments that a worker which serves others answers in one call."""
    width = endpoints.fragment.batch or max(1, _most_groups(endpoints) // 2)
    return width * endpoints.group_envs


def _most_groups(endpoints: Endpoints) -> int:
    """The most groups that one of the fragment's replicas acts for."""
    return -(-endpoints.num_groups // endpoints.fragment.replicas)
