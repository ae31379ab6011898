"""Groups of environments in the worker that learns from them: every edge is a function call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from srl.config.experiment import Experiment
from srl.core.tree import map_tree
from srl.core.types import Policy, Specs, Tree
from srl.loop.acting.local_acting import LocalActing, compiled_act
from srl.loop.binding import batch_specs
from srl.loop.learning.learner import Learner
from srl.loop.projection import Gathered
from srl.loop.seeds import environment_seed
from srl.loop.stepping.compiled import local_groups
from srl.loop.stepping.environments import environments_text, make_group
from srl.loop.stepping.group import Group
from srl.loop.stepping.unrolls import OwnUnrolls
from srl.pools import Pool
from srl.pools.timestep_arrays import aligned_zeros
from srl.streams.batch import Batch, widened


class LocalEnvironments:
    """The groups of one worker, which take turns in its thread.

    Of several replicas each has a share of the groups.
    """

    worker = "trainer"
    """The kind of worker that this is in; its time is reported under this name."""
    calls_one_program = True
    """True: one thread calls the worker's programs, so that no two run at once."""
    resumes_exactly = True
    """False where environments cannot be saved and restart their episodes."""
    account = ""
    """The account of all unrolls, where they pass a stream in this process."""

    def __init__(
        self, experiment: Experiment, replica: int = 0, num_groups: int | None = None
    ) -> None:
        self.experiment, self.replica = experiment, replica
        self.replicas = experiment.settled_plan.fragment("step").replicas
        self._num_groups = count = num_groups or experiment.num_groups
        self._each = experiment.num_envs // count
        own = count // self.replicas
        self._numbers = range(replica * own, (replica + 1) * own)
        self.groups: list[Group] = []
        self._pools: list[Pool] = []

    def make(self) -> Specs:
        """Makes the environments, if that is still to be done; JAX starts only if they use it."""
        if not self._pools:
            for _ in self._numbers:
                self._pools.append(make_group(self.experiment, self._each))
            self.resumes_exactly = self._pools[0].saves_exactly
        return self._pools[0].specs

    def slots(self, specs: Specs) -> range:
        """The slots of the groups here, by their numbers in the run."""
        slots = self._each * len(specs.agents)
        return range(self._numbers.start * slots, self._numbers.stop * slots)

    def prepare(self, learner: Learner, alive: Any) -> list[Batch]:
        """Takes the memory of a pass' batches, and compiles `act`.

        Args:
            learner: Whose policies act.
            alive: Called before each step, or each unroll that is compiled.
        """
        self._learner = learner
        learner.progress.replicas = self.replicas
        experiment, count = self.experiment, len(self._numbers)
        array_specs = widened(batch_specs(experiment, learner.policy_set, self._each), count)
        learner.expect_room_of(array_specs)
        batches = [
            map_tree(lambda f: aligned_zeros(f.shape, f.dtype), spec) for spec in array_specs
        ]
        self._batches = batches
        act = compiled_act(learner.policy_set)
        make = local_groups(experiment, learner.policy_set)
        for position, (number, pool) in enumerate(zip(self._numbers, self._pools, strict=True)):
            envs = range(number * self._each, (number + 1) * self._each)
            acting = LocalActing(
                experiment, learner.policy_set, act, self._newest, envs, swaps=False
            )
            lesson = lambda: learner.progress.lesson  # noqa: E731
            unrolls = OwnUnrolls(pool, batches, position, count, lesson)
            self.groups.append(make(pool, acting, unrolls, alive=alive))
        self.groups[0].act_once()
        return batches

    def _newest(self, oldest_version: tuple[int, int]) -> tuple[np.ndarray, Mapping[str, Policy]]:
        """The version and the policies that act in an unroll which begins now."""
        return self._learner.progress.version, self._learner.policies

    def begin(self) -> None:
        """Starts the first episodes."""
        self.reset("environments")

    def reset(self, salt: str) -> None:
        """Starts episodes whose seeds follow from the run's and from `salt`."""
        seed = environment_seed(self.experiment.seed, salt)
        for number, group in zip(self._numbers, self.groups, strict=True):
            group.reset(seed + number * self._each)

    # ---- the loop's operations ----

    def latest(self) -> None:
        """Does nothing: the groups act with what the learner has."""

    def gather(self, unroll: int) -> Gathered:
        """The batch, which all groups have written."""
        return Gathered(self._batches[unroll])

    def learned(self, batch: Gathered) -> None:
        """Counts what the groups' time went to."""
        for group in self.groups:
            self._learner.progress.busy[self.worker].add(group.take_busy_time())

    # ---- between two passes ----

    @property
    def awaited(self) -> str:
        """The event that the worker waits for now."""
        for number, group in zip(self._numbers, self.groups, strict=True):
            if group.doing:
                return f"{environments_text(number, self._each)} to {group.doing}"
        return "learning to end" if self.groups else ""

    def report(self) -> dict[str, Any]:
        """Gives no metrics: every unroll is learned from."""
        return {}

    def states(self) -> dict[int, Tree]:
        """The state of every group here."""
        pairs = zip(self._numbers, self.groups, strict=True)
        return {number: group.state() for number, group in pairs}

    def restore(self, states: Mapping[int, Tree]) -> None:
        """Lets the groups go on from these states, or anew where they do not fit."""
        if self.resumes_exactly and len(states) == self._num_groups:
            for number, group in zip(self._numbers, self.groups, strict=True):
                group.restore(states[number])
        else:
            self.resumes_exactly = False
            self.reset(f"environments {self._learner.progress.epoch}")

    def close(self) -> None:
        """Ends the environments."""
        for pool in self._pools:
            pool.close()
