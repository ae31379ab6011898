"""Groups of environments in other workers, or threads, whose unrolls are learned from here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from srl.core.types import Specs, Tree
from srl.loop.acting.parameters import Published
from srl.loop.acting.policy_server import PolicyServer
from srl.loop.binding import batch_specs
from srl.loop.learning.learner import Learner
from srl.loop.learning.unroll_ledger import Ledger
from srl.loop.projection import Gathered
from srl.loop.wiring import Endpoints
from srl.streams.batch import Batch
from srl.streams.group_state import Stopped
from srl.streams.sample_sink import SampleSink
from srl.streams.tickets import Counts, StalenessLimiter
from srl.streams.transport import Listener, listen
from srl.system.gpu_switches import gpu_choice

_ACTING = "acting"
"""The kind under which the time of the learner's thread is reported that acts for others."""
_PREFETCH_SECONDS = 0.002  # between two looks whether the present update is done


class RemoteEnvironments:
    """The learner's end of the streams: takes unrolls in, and publishes the parameters.

    Where `act` or `teach` is in the same fragment and `step` is not, a thread answers the groups'
    calls, and collects if `collect` is there, too.
    """

    groups = ()
    resumes_exactly = True
    account = ""
    awaited = ""

    def __init__(
        self,
        endpoints: Endpoints,
        listeners: Mapping[str, Listener],
        specs: Specs | None,
        ledger: Ledger | None = None,
    ) -> None:
        """Takes the streams' ends; a subclass that makes the environments gives no specs."""
        self.experiment, self.worker = endpoints.experiment, endpoints.fragment_name
        self.replica, self.replicas = endpoints.replica, endpoints.fragment.replicas
        self._endpoints, self._listeners = endpoints, listeners
        self._specs, self._ledger = specs, ledger
        self._numbers = endpoints.share("learn", endpoints.replica)
        self._prepared = self._begun = self._closed = False
        self._newest_gathered = -1  # of the batches' numbers
        self._unreleased = 0  # versions that no other worker knows of yet
        self._saved: Mapping[int, Tree] = {}
        self._prefetched: Gathered | None = None
        self._policy_server: PolicyServer | None = None
        self._threads: list[threading.Thread] = []

    @property
    def calls_one_program(self) -> bool:
        """True if nothing acts or teaches in this process while it learns."""
        return "inference" not in self._listeners

    def make(self) -> Specs:
        """Gives the specs that the other workers' environments have."""
        assert self._specs is not None
        return self._specs

    def slots(self, specs: Specs) -> range:
        """The slots of the groups that are learned from here."""
        slots = self._endpoints.group_envs * len(specs.agents)
        return range(self._numbers.start * slots, self._numbers.stop * slots)

    def prepare(self, learner: Learner, alive: Callable[[], None]) -> Sequence[Batch]:
        """Takes the memory of the batches; groups may connect from now on."""
        endpoints, graph = self._endpoints, self.experiment.graph
        self._learner, self.alive = learner, alive
        if gpu_choice("prefetch") == "on":
            learner.meanwhile = self._prefetch
        learner.progress.replicas = endpoints.fragment.replicas
        algorithm, network = self.experiment.algorithm, self.experiment.algorithm.network
        remembers = algorithm.values_see_more and network.memory and not network.shared
        self._limiter = StalenessLimiter(
            len(self._numbers),
            self.experiment.max_staleness,
            unrolls=[unrolled.learns for unrolled in graph.unrolls],
            learns=graph.learns,
            # An opponent stays as long as an episode takes: see `opponent_interval`. Memory of
            # values and critics goes on from a slot's unroll to its next one.
            fixed=self.experiment.self_play is not None or bool(remembers),
        )
        self.sink = SampleSink(
            self._listeners.get("sample") or listen("thread", endpoints.identity, limit_bytes=1),
            self._limiter,
            batch_specs(self.experiment, learner.policy_set, endpoints.group_envs),
            first_group=self._numbers.start,
            on_counts=self._account,
        )
        self.published = Published(learner.policies, self._listeners.get("parameters"))
        self._prepared = True
        return self.sink.batches[: len(graph.unrolls)]

    def begin(self) -> None:
        """Compiles what is computed here for others; they begin with the first pass."""
        endpoints = self._endpoints
        if "inference" in self._listeners:
            sink = self.sink if endpoints.has("collect") else None
            requests = self._listeners["inference"]
            self._policy_server = server = PolicyServer(
                replace(endpoints, busy=self._learner.progress.busy[_ACTING]),
                self._learner.policy_set,
                self.published,
                requests,
                sink,
            )
            server.on_ticket_wait = self._count_ticket_wait

    def _begin(self) -> None:
        """Lets actors begin: with the parameters as they are, which may have been restored."""
        progress, graph = self._learner.progress, self.experiment.graph
        # A version of a learner that died since the checkpoint must never pass for a newer one.
        progress.epoch += self._endpoints.identity.incarnation
        self._limiter.begin(progress.updates)
        self.sink.epoch, self.sink.saved = progress.epoch, dict(self._saved)
        self.sink.lesson = progress.lesson
        if self._ledger is not None:  # nothing is in flight, whatever was before
            batches = progress.updates * len(graph.unrolls) // graph.learns
            self._ledger.restart(batches * self._limiter.positions)
        self._publish()
        self.sink.start()
        if self._policy_server is not None:
            thread = threading.Thread(
                target=self._act, args=(self._policy_server,), name="act", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        progress.restart_clock()
        self._begun = True

    def _act(self, server: PolicyServer) -> None:
        try:
            server.serve(lambda: self._closed)  # also while stopping, until the state is saved
        except BaseException as error:
            self.sink.fail(error)

    # ---- the loop's operations ----

    def latest(self) -> None:
        """Lets groups act with the newest policies; from the first call on."""
        if self._begun:
            self._release()
        else:
            self._begin()

    def gather(self, unroll: int) -> Gathered:
        """Waits for the batch of an unroll of this pass.

        Raises:
            Stopped: If the worker is to end, and in a hurry, or without a group whose unroll may
                never come.
        """
        number = self._limiter.batch_of(unroll)
        before = time.perf_counter()
        while (batch := self.sink.gather(number, 0.5)) is None:
            self._wait()
            stopping = self._endpoints.stopping.is_set() and self.replicas == 1
            if stopping and (self._endpoints.hurried.is_set() or not self.sink.whole):
                raise Stopped
        self._learner.progress.spend(self.worker, "batch wait", time.perf_counter() - before)
        self._newest_gathered = max(number, self._newest_gathered)
        if self._prefetched is not None and self._prefetched.number == number:
            prefetched, self._prefetched = self._prefetched, None
            return prefetched
        return Gathered(batch, number=number, lessons=self.sink.lessons(number))

    def learned(self, batch: Gathered) -> None:
        """Counts a version, and the batch's unrolls as learned from if they were not yet."""
        self.sink.learn_from(batch.number)  # now: what is reported next includes it
        self._unreleased += 1
        self._endpoints.alive()

    def _release(self) -> None:
        """Lets actors go on after an update; not before it is known whether to ask their states."""
        if self._unreleased:
            before = time.perf_counter()
            self.sink.lesson = self._learner.progress.lesson
            self._publish()
            self._learner.progress.spend(self.worker, "publish", time.perf_counter() - before)
            for _ in range(self._unreleased):
                self.sink.learned()
            self._unreleased = 0

    def _wait(self) -> None:
        """Called while there is no batch."""
        self._endpoints.alive()

    def _wait_for_states(self) -> None:
        """Called while states are to come."""
        if self._endpoints.hurried.is_set():
            raise Stopped
        self._wait()

    def _prefetch(self, learned: Callable[[], bool]) -> None:
        """Puts the following batch onto the device while the present one is learned from."""
        following = self._newest_gathered + 1
        while self._limiter.ahead and self._prefetched is None and not learned():
            batch = self.sink.gather(following, _PREFETCH_SECONDS)
            if batch is not None:
                unroll = self._learner.prepared(batch)
                lessons = self.sink.lessons(following)
                self._prefetched = Gathered(batch, unroll, number=following, lessons=lessons)

    def _publish(self) -> None:
        learner = self._learner
        self.published.publish(learner.progress.version, learner.policies)

    def _count_ticket_wait(self, seconds: float) -> None:
        """Counts a group's wait for a ticket, which the group took for one for its action.

        The groups of other learners, which learn in step with this one, are taken to wait as long.
        """
        seconds *= self.replicas
        actors = self._learner.progress.busy[self._endpoints.plan.home("step")]
        actors.add({"send wait": seconds, "inference wait": -seconds})

    def _account(self, counts: Counts) -> None:
        if self._ledger is not None:
            self._ledger.write(counts)

    def report(self) -> dict[str, Any]:
        """Reports the account of all unrolls.

        Raises:
            Final: If the counts do not add up.
        """
        return {} if self._ledger is None else self._ledger.report()

    # ---- state ----

    def states(self) -> Mapping[int, Tree]:
        """Asks every group for its state."""
        if not self._begun:
            return {}
        self.sink.ask_states()
        self._release()
        try:
            return self.sink.states(self._wait_for_states)
        except Stopped:  # the policies are worth more than the episodes
            return {}

    def restore(self, states: Mapping[int, Tree]) -> None:
        """Keeps the states for the groups that will come."""
        # Pools that cannot be saved give nothing.
        fits = len(states) == self._endpoints.num_groups and all(
            len(s["pool"]) for s in states.values()
        )
        self.resumes_exactly = fits
        self._saved = {group: states[group] for group in self._numbers} if fits else {}

    def close(self) -> None:
        """Ends the streams."""
        self._closed = True
        self._endpoints.stopping.set()
        for thread in self._threads:
            thread.join()
        if self._prepared:
            self.sink.close()
            self.published.close()
        for listener in self._listeners.values():
            listener.close()
