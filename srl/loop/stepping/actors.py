"""The groups of an actor worker, each in a thread of its own: one waits while another steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from srl.core.types import Tree
from srl.loop.acting.local_acting import LocalActing, Newest, compiled_act
from srl.loop.acting.taught_acting import TaughtElsewhere, TaughtHere, compiled_teach
from srl.loop.policy_set import PolicySet
from srl.loop.projection import Gathered, Projection
from srl.loop.seeds import environment_seed
from srl.loop.stage import BEGIN_SECONDS
from srl.loop.stepping.asynchronous import AsynchronousGroup
from srl.loop.stepping.compiled import local_groups
from srl.loop.stepping.group import Acting, Group, Unrolls
from srl.loop.stepping.unrolls import NoUnrolls, SentUnrolls
from srl.loop.wiring import Endpoints
from srl.pools import Pool
from srl.pools.python.python_pool import PythonPool
from srl.streams.group_state import Stopped
from srl.streams.inference import RemoteActing


class OneGroup:
    """The acting half of the loop for one group, whose unrolls are learned from elsewhere."""

    def __init__(self, group: Group | AsynchronousGroup) -> None:
        self.groups = (group,)

    def latest(self) -> None:
        """Does nothing: the group waits for its ticket."""

    def gather(self, unroll: int) -> None:
        """Does nothing: the group has delivered its unroll."""

    def learned(self, batch: Gathered) -> None:
        """Is never called."""


_LAST_SECONDS = 10.0  # for the steps of other groups after an error


class ActorThreads:
    """Runs the loop for each group of a worker until that is to end."""

    def __init__(
        self,
        endpoints: Endpoints,
        pools: Sequence[Pool],
        policy_set: PolicySet,
        newest: Newest | None = None,
    ) -> None:
        """Takes a pool for each group; parameters come from `newest` if `act` is done here."""
        self._endpoints, self._pools = endpoints, pools
        self._policy_set, self._newest = policy_set, newest
        own = policy_set.within(endpoints.nodes)
        self._act = None if newest is None else compiled_act(own)
        self._teach = None
        if own.taught and newest is None:
            self._teach = compiled_teach(own)
        self._make: Callable[..., Group] = partial(Group, policy_set=policy_set)
        if newest is not None:
            self._make = local_groups(endpoints.experiment, policy_set)
        self.env_steps = 0
        """Done by all groups; for the controller, which sees progress by it."""
        self._error: BaseException | None = None
        self._ended = threading.Event()
        numbers = endpoints.share("step", endpoints.replica)
        self._running = set(numbers)
        self.quiet = set(numbers)
        """The groups that have shown no progress since `all_progressed` was last true."""
        self._idle = set(numbers)  # those that have not begun to step
        self._groups: dict[int, Group] = {}
        self._progress: dict[int, int] = {}  # of each group, when it was last looked at
        owned = [numbers] if endpoints.steps_as_ready else [range(i, i + 1) for i in numbers]
        self._threads = [
            threading.Thread(target=self._run, args=(groups, pool), name=f"group {groups[0]}")
            for groups, pool in zip(owned, pools, strict=True)
        ]

    def start(self) -> None:
        """Starts the threads."""
        self._endpoints.busy.begin(len(self._threads))
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def wait(
        self, alive: Callable[[], None], on_stepping: Callable[[], None] = lambda: None
    ) -> None:
        """Waits until all groups have ended; raises what one of them raised.

        Args:
            alive: Called now and then, whenever every group has shown progress: not while one of
                them hangs, whatever the others do.
            on_stepping: Called once every group has begun to step its environments, also if one of
                them already hangs in its first step.
        """
        stepping = False
        while any(thread.is_alive() for thread in self._threads):
            self._ended.wait(0.5)
            self.check()
            if self.stepping and not stepping:
                stepping = True
                on_stepping()
            if self.all_progressed():
                alive()
        self.check()  # the last may have failed since

    def all_progressed(self) -> bool:
        """Tells if every group has shown progress since this was last true.

        One that begins a lesson has as long for it as a worker has to start.
        """
        for number in tuple(self.quiet):
            if (group := self._groups.get(number)) is not None:
                progress = group.progress
                if progress != self._progress.get(number, progress):
                    self._show(number)
                self._progress[number] = progress
                if time.monotonic() - group.lesson_since < BEGIN_SECONDS:
                    self._show(number)
        if self.quiet:
            return False
        self.quiet = set(self._running)
        return True

    @property
    def stepping(self) -> bool:
        """True if every group has begun to step its environments."""
        return not self._idle

    def check(self) -> None:
        """Raises what one of the groups has raised."""
        if self._error is not None:
            raise self._error

    @property
    def failed(self) -> bool:
        """True if one of the groups has raised an error."""
        return self._error is not None

    def close(self, *, after_error: bool = False) -> None:
        """Waits for the threads, which `endpoints.stopping` ends.

        After an error, of one here or elsewhere, those that hang are left to the process's end.
        """
        deadline = time.monotonic() + _LAST_SECONDS
        patient = not (after_error or self.failed)
        for thread, pool in zip(self._threads, self._pools, strict=True):
            if thread.is_alive():
                left = max(deadline - time.monotonic(), 0.0)
                thread.join(None if patient else left)
            if not thread.is_alive():
                pool.close()

    def _run(self, numbers: range, pool: Pool) -> None:
        """Runs the loop for groups that one thread steps: one, or all where they step as ready."""
        try:
            experiment = self._endpoints.experiment
            together = len(numbers) > 1
            group = (self._asynchronous if together else self._group)(numbers, pool)
            projection = Projection(experiment, OneGroup(group))
            steps = pool.num_envs * experiment.graph.steps
            while True:
                projection.run()
                self.env_steps += steps
                self._endpoints.busy.add(group.take_busy_time())
        except Stopped:
            return
        except BaseException as error:
            self._error = error
        finally:
            self._running.difference_update(numbers)
            self.quiet.difference_update(numbers)
            if self.failed or not self._running:
                self._ended.set()

    def _asynchronous(self, numbers: range, pool: Pool) -> AsynchronousGroup:
        """Groups of an environment each that act here and step as they get ready."""
        endpoints, experiment = self._endpoints, self._endpoints.experiment
        assert isinstance(pool, PythonPool)
        assert self._newest is not None
        assert self._act is not None
        acting = LocalActing(
            experiment, self._policy_set, self._act, self._newest, numbers, swaps=True
        )
        made = AsynchronousGroup(
            pool,
            acting,
            [self._sent(number) for number in numbers],
            self._policy_set,
            first=numbers[0],
            width=endpoints.act_envs,
            alive=self._step,
        )
        made.reset(environment_seed(experiment.seed, made.start.seed_salt) + numbers[0])
        return made

    def _sent(self, group: int) -> SentUnrolls:
        """The way of a group's unrolls to the learner."""
        endpoints = replace(self._endpoints, alive=partial(self._show, group))
        return SentUnrolls(
            lambda: endpoints.connect("sample", group),
            endpoints.go_on,
            lessons=1 + len(endpoints.experiment.curriculum),
        )

    def _group(self, numbers: range, pool: Pool) -> Group:
        """A group, with each node that is elsewhere at the end of a stream."""
        experiment, group = self._endpoints.experiment, numbers[0]
        endpoints = replace(self._endpoints, alive=partial(self._show, group))
        stepping = partial(self._step, group)
        made: Group | None = None

        def state() -> Tree:
            assert made is not None
            return made.state()

        def remote(node: str, gives: str) -> RemoteActing:
            name = endpoints.calls(node)
            return RemoteActing(
                lambda: endpoints.connect(name, group),
                state,
                endpoints.go_on,
                lambda address: endpoints.moved(name, group, address),
                gives,
            )

        acting: LocalActing | RemoteActing
        unrolls: Unrolls
        begun: SentUnrolls | RemoteActing
        if self._newest is not None and self._act is not None:
            each = endpoints.group_envs
            envs = range(group * each, (group + 1) * each)
            swaps = experiment.max_staleness != 0
            acting = LocalActing(
                experiment, self._policy_set, self._act, self._newest, envs, swaps=swaps
            )
        else:
            acting = remote("act", "action")
        if endpoints.has("collect"):
            unrolls = begun = self._sent(group)
        else:
            assert isinstance(acting, RemoteActing)
            unrolls, begun = NoUnrolls(), acting
        made = self._make(pool, self._taught(acting, remote), unrolls, alive=stepping)
        self._groups[group] = made
        start = begun.start
        if start.saved is not None and pool.saves_exactly:
            made.restore(start.saved)
        else:
            made.reset(environment_seed(experiment.seed, start.seed_salt) + group * pool.num_envs)
        return made

    def _taught(
        self, acting: LocalActing | RemoteActing, remote: Callable[[str, str], RemoteActing]
    ) -> Acting:
        """Acting with a teacher's advice, where another call than that of `act` gives it."""
        endpoints = self._endpoints
        if self._teach is not None:
            assert isinstance(acting, RemoteActing)
            return TaughtHere(acting, self._teach, self._policy_set)
        apart = endpoints.plan.home("teach") != endpoints.plan.home("act")
        if endpoints.experiment.taught and apart:
            return TaughtElsewhere(acting, remote("teach", "advice"), self._policy_set)
        return acting

    def _show(self, group: int) -> None:
        """Notes that a group has made progress."""
        self.quiet.discard(group)

    def _step(self, group: int) -> None:
        """Notes that a group is about to step its environments."""
        self._idle.discard(group)
        self._show(group)
