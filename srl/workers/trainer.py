"""The plain loop: one thread steps, acts, collects and learns; every edge is a function call."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from srl.dataflow.plan import groups
from srl.experiment import Experiment, plan_of
from srl.pools import Pool
from srl.pools.memory import aligned_zeros
from srl.streams.batch import Batch, expect_room, widened
from srl.tree import map_tree
from srl.types import Policy, Specs, Tree
from srl.workers.acting import LocalActing, compiled_act
from srl.workers.actor import Actor
from srl.workers.learner import Learner, form_of
from srl.workers.seeds import environment_seed
from srl.workers.stage import Stage
from srl.workers.training import Training, environments, make_group
from srl.workers.unrolls import OwnUnrolls


class Trainer(Training):
    """Trains an experiment's policies in this thread; groups of environments take turns.

    With several replicas each has its own groups, and `learn` adds the sums of all.
    """

    def __init__(self, experiment: Experiment, replica: int = 0) -> None:
        """Takes the experiment; `start` does the work.

        Args:
            experiment: What is trained.
            replica: Which of the plan's replicas this is.
        """
        super().__init__(experiment)
        plan = plan_of(experiment)
        self._replica, self._replicas = replica, plan.fragment("step").replicas
        self._num_groups = count = groups(plan, experiment)
        self._each = experiment.num_envs // count
        own = count // self._replicas
        self._groups = range(replica * own, (replica + 1) * own)
        self._actors: list[Actor] = []
        self._pools: list[Pool] = []

    def make_pools(self) -> Specs:
        """Makes the environments; needs no JAX."""
        self._pools = [make_group(self.experiment, self._each) for _ in self._groups]
        self.resumes_exactly = self._pools[0].saves_exactly
        return self._pools[0].specs

    def start(self) -> None:
        """Makes what is not made yet, compiles, and resets."""
        experiment, each, count = self.experiment, self._each, len(self._groups)
        specs = self._pools[0].specs if self._pools else self.make_pools()
        self.on_stage(Stage.COMPILING)
        slots = each * len(specs.agents)
        own_slots = range(self._groups.start * slots, self._groups.stop * slots)
        self._maybe_learner = learner = Learner(experiment, specs, slots=own_slots)
        learner.progress.replicas = self._replicas
        self._enter_league(learner, writes=self._replica == 0)
        form = widened(form_of(experiment, learner.teams, each), count)
        expect_room(form)
        batch = map_tree(lambda f: aligned_zeros(f.shape, f.dtype), form)
        act = compiled_act(learner.teams)
        for position, (group, pool) in enumerate(zip(self._groups, self._pools, strict=True)):
            envs = range(group * each, (group + 1) * each)
            acting = LocalActing(experiment, learner.teams, act, self._newest, envs, swaps=False)
            unrolls = OwnUnrolls(pool, batch, position, count)
            actor = Actor(
                experiment.algorithm,
                pool,
                acting,
                unrolls,
                learner.teams,
                self._learn,
                self.alive,
            )
            self._actors.append(actor)
        self._actors[0].rehearse()
        self._compile(batch)
        self.on_stage(Stage.RESETTING)
        self._begin()
        learner.progress.restart_clock()

    # What a trainer does otherwise whose learning is not all here.

    def _compile(self, batch: Batch) -> None:
        """Runs `learn` once on empty memory."""
        self._learner.compile(batch)

    def _begin(self) -> None:
        """Starts the first episodes."""
        self._reset("environments")

    def _learn(self, batch: Batch) -> None:
        """Learns from the batch of all groups."""
        self._learner.learn(batch)

    def _newest(self, oldest_version: tuple[int, int]) -> tuple[np.ndarray, Mapping[str, Policy]]:
        """The version and the policies that act in an unroll which begins now."""
        return self._learner.progress.version, self._learner.policies

    def _reset(self, purpose: str) -> None:
        seed = environment_seed(self.experiment.seed, purpose)
        for group, actor in zip(self._groups, self._actors, strict=True):
            actor.reset(seed + group * self._each)

    def update(self) -> None:
        """Runs the loop once for each group; the last one's batch is of all."""
        for actor in self._actors:
            actor.run()
        for actor in self._actors:
            for activity, seconds in actor.spent().items():
                self._learner.progress.spend("trainer", activity, seconds)

    @property
    def awaited(self) -> str:
        """What it waits for now, in words."""
        for group, actor in zip(self._groups, self._actors, strict=True):
            if actor.doing:
                return f"{environments(group, self._each)} to {actor.doing}"
        return "learning to end" if self._actors else ""

    def _group_states(self) -> Mapping[int, Tree]:
        pairs = zip(self._groups, self._actors, strict=True)
        return {group: actor.state() for group, actor in pairs}

    def _restore_groups(self, states: Mapping[int, Tree]) -> None:
        if self.resumes_exactly and len(states) == self._num_groups:
            for group, actor in zip(self._groups, self._actors, strict=True):
                actor.restore(states[group])
        else:
            self.resumes_exactly = False
            self._reset(f"environments {self._learner.progress.epoch}")

    def close(self) -> None:
        """Ends the environments."""
        for pool in self._pools:
            pool.close()
