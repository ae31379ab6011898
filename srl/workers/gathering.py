"""A learner whose batches are made by other workers, or by other threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from srl.streams.sample_sink import SampleSink
from srl.streams.tickets import StalenessLimiter
from srl.streams.transport import Listener, listen
from srl.types import Specs, Tree, Unroll
from srl.workers.actor import ACTIVITIES
from srl.workers.learner import Learner, form_of
from srl.workers.ledger import Ledger
from srl.workers.parameters import Published
from srl.workers.policy import PolicyServer, serve_policies
from srl.workers.stage import Stage
from srl.workers.training import Training
from srl.workers.wiring import Site

_ACTING = "acting"
"""The kind that the learner's thread is told as which acts for others."""
_PREFETCH_SECONDS = 0.002  # between two looks whether the present update is done


class Gathering(Training):
    """Learns from batches as they become complete, and publishes the parameters.

    Where `act` is in the same fragment, a thread answers the groups' requests and collects.
    """

    def __init__(
        self,
        site: Site,
        listeners: Mapping[str, Listener],
        specs: Specs | None,
        ledger: Ledger | None = None,
    ) -> None:
        """Takes the streams' ends; `start` does the work.

        Args:
            site: Of the worker.
            listeners: For the streams that end here.
            specs: Of the environments; None where a subclass makes these.
            ledger: Where to account for unrolls.
        """
        super().__init__(site.experiment)
        self._site, self._listeners, self._specs, self._ledger = site, listeners, specs, ledger
        self._made = self._begun = self._unreleased = self._closed = False
        self._saved: Mapping[int, Tree] = {}
        self._prefetched: Unroll | None = None
        self._policy_server: PolicyServer | None = None
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Makes the policies and compiles."""
        site, experiment = self._site, self.experiment
        assert self._specs is not None
        self.on_stage(Stage.COMPILING)
        self._groups = site.share("gradient", site.replica)
        slots = site.group_envs * len(self._specs.agents)
        own_slots = range(self._groups.start * slots, self._groups.stop * slots)
        self._maybe_learner = learner = Learner(
            experiment, self._specs, site.fragment_name, own_slots
        )
        self._enter_league(learner, writes=site.replica == 0)
        learner.progress.workers = {
            site.fragment_name: 1,
            site.plan.home("step"): len(self._groups),
            **self._acting_workers(),
        }
        learner.progress.replicas = site.fragment.replicas
        self._limiter = StalenessLimiter(len(self._groups), experiment.max_staleness)
        self.sink = SampleSink(
            self._listeners.get("sample") or listen("thread", site.identity, limit_bytes=1),
            self._limiter,
            form_of(experiment, learner.teams, site.group_envs),
            first_group=self._groups.start,
            on_seconds=self._spend,
            on_counts=self._account,
        )
        self.published = Published(
            learner.policies,
            self._listeners.get("parameters"),
            on_seconds=self._spend_acting,
        )
        self._made = True
        learner.compile(self.sink.batches[0])
        if site.has("act"):
            sink = self.sink if site.has("collect") else None
            requests = self._listeners["inference"]
            self._policy_server = serve_policies(
                site, learner.teams, self.published, requests, sink, self._spend_acting
            )
        self._accounted = (0, 0)

    def _begin(self) -> None:
        """Lets actors begin: with the parameters as they are, which may have been restored."""
        progress = self._learner.progress
        # A version of a learner that died since the checkpoint must never pass for a newer one.
        progress.epoch += self._site.identity.incarnation
        self._limiter.version = progress.updates
        self.sink.epoch, self.sink.saved = progress.epoch, dict(self._saved)
        if self._ledger is not None:  # nothing is in flight, whatever was before
            self._ledger.restart(progress.updates * self._limiter.positions)
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
            server.serve(lambda: self._closed)  # also when told to end, until the state is kept
        except BaseException as error:
            self.sink.fail(error)

    def update(self) -> None:
        """Waits for the next batch and learns from it.

        If the worker is to end, it still does, as the groups are in the middle of their unrolls,
        and between two of them is the only state that can be gone on from exactly. It does nothing
        only where a group is not there.
        """
        if self._begun:
            self._release()
        else:
            self._begin()
        before = time.perf_counter()
        while (batch := self.sink.gather(0.5)) is None:
            self._wait()
            stopping = self._site.stopping.is_set() and self._site.fragment.replicas == 1
            if stopping and not self.sink.whole:
                return
        progress = self._learner.progress
        progress.spend(self._site.fragment_name, "batch wait", time.perf_counter() - before)
        unroll, self._prefetched = self._prefetched, None
        self._learner.learn(batch, unroll, meanwhile=self._prefetch)
        if self._ledger is not None:
            self._ledger.learn(self._limiter.positions)  # now: what is reported next includes it
        self._unreleased = True
        self._site.alive()

    def _release(self) -> None:
        """Lets actors go on after an update; not before it is known whether to ask their states."""
        if self._unreleased:
            self._unreleased = False
            before = time.perf_counter()
            self._publish()
            progress = self._learner.progress
            progress.spend(self._site.fragment_name, "publish", time.perf_counter() - before)
            self.sink.learned()

    def _wait(self) -> None:
        """Called while there is no batch."""
        self._site.alive()

    def _prefetch(self, learned: Callable[[], bool]) -> None:
        """Puts the following batch onto the device while the present one is learned from."""
        while self._limiter.ahead and self._prefetched is None and not learned():
            following = self.sink.following(_PREFETCH_SECONDS)
            if following is not None:
                self._prefetched = self._learner.prepared(following)

    def _publish(self) -> None:
        learner = self._learner
        self.published.publish(learner.progress.version, learner.policies)

    def _acting_workers(self) -> dict[str, int]:
        """How many there are that act for others: workers, or this one's thread."""
        home = self._site.plan.home("act")
        if home == self._site.plan.home("step"):
            return {}
        if home == self._site.fragment_name:
            return {_ACTING: 1}
        return {home: self._site.plan.fragments[home].replicas}

    def _spend_acting(self, seconds: float) -> None:
        for worker in self._acting_workers():
            self._learner.progress.spend(worker, "act", seconds)

    def _spend(self, seconds: Sequence[float]) -> None:
        worker = self._site.plan.home("step")
        for activity, spent in zip(ACTIVITIES, seconds, strict=False):
            self._learner.progress.spend(worker, activity, spent)

    def _account(self, limiter: StalenessLimiter) -> None:
        """Writes into the ledger what was granted and lost; `update` writes what was learned."""
        now = (limiter.counts.granted, limiter.counts.lost)
        granted, lost = (b - a for a, b in zip(self._accounted, now, strict=True))
        self._accounted = now
        if self._ledger is not None:
            if granted:
                self._ledger.grant(granted)
            if lost:
                self._ledger.lose(lost)

    def report(self) -> dict[str, Any]:
        """Gives a line of metrics, with what has become of all unrolls."""
        unrolls = {} if self._ledger is None else self._ledger.report()
        return {**super().report(), **unrolls}

    # ---- state ----

    def _group_states(self) -> Mapping[int, Tree]:
        if not self._begun:
            return {}
        self.sink.ask_states()
        self._release()
        return self.sink.states(self._wait)

    def _restore_groups(self, states: Mapping[int, Tree]) -> None:
        # Pools that cannot be saved give nothing.
        fits = len(states) == self._site.num_groups and all(len(s["pool"]) for s in states.values())
        self.resumes_exactly = fits
        self._saved = {group: states[group] for group in self._groups} if fits else {}

    def finish(self) -> None:
        """Tells every group that no further unroll is wanted."""
        if self._begun:
            self.sink.drain()

    def close(self) -> None:
        """Ends the streams."""
        self._closed = True
        self._site.stopping.set()
        for thread in self._threads:
            thread.join()
        if self._begun:
            self.sink.close()
        if self._made:
            self.published.close()
        for listener in self._listeners.values():
            listener.close()
