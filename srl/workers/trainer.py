"""The plain loop: one thread steps, acts, collects and learns; every edge is a function call."""

from __future__ import annotations

from typing import Any

import numpy as np

from srl.dataflow.plan import groups
from srl.experiment import Experiment
from srl.pools import Pool, make_pool
from srl.pools.pool import aligned_zeros
from srl.streams.batch import Batch, widened
from srl.streams.parcel import pack, unpack
from srl.streams.sample import STATE_BYTES
from srl.tree import map_tree
from srl.types import Tree
from srl.workers.acting import LocalActing
from srl.workers.actor import Actor
from srl.workers.learner import Learner, form_of
from srl.workers.seeds import environment_seed
from srl.workers.unrolls import OwnUnrolls
from srl.dataflow.plans import resolve


class Trainer:
    """Trains an experiment's policies in this thread; groups of environments take turns."""

    def __init__(self, experiment: Experiment) -> None:
        """Takes the experiment; `start` does the work."""
        self.experiment = experiment
        self._actors: list[Actor] = []
        self._pools: list[Pool] = []

    def start(self) -> None:
        """Makes the environments and the policies, compiles, and resets."""
        experiment = self.experiment
        count = groups(resolve(experiment.plan, experiment.env), experiment)
        each = experiment.num_envs // count
        self._pools = [make_group(experiment, each) for _ in range(count)]
        self._learner = learner = Learner(experiment, self._pools[0].specs)
        self.parameters, self.agents = learner.parameters, learner.agents
        form = widened(form_of(experiment, learner.teams, each), count)
        batch = map_tree(lambda f: aligned_zeros(f.shape, f.dtype), form)
        for group, pool in enumerate(self._pools):
            envs = range(group * each, (group + 1) * each)
            acting = LocalActing(experiment, learner.teams, self._newest, envs, swaps=False)
            unrolls = OwnUnrolls(pool, batch, group, count)
            self._actors.append(
                Actor(experiment.algorithm, pool, acting, unrolls, learner.teams, self._learn)
            )
        self._actors[0].rehearse()
        learner.compile(batch)
        self._reset("environments")

    def _newest(self, oldest_version: tuple[int, int]) -> Any:
        return self._learner.progress.version, self._learner.policies

    def _learn(self, batch: Batch) -> None:
        self._learner.learn(batch)

    def _reset(self, purpose: str) -> None:
        seed = environment_seed(self.experiment.seed, purpose)
        for group, actor in enumerate(self._actors):
            actor.reset(seed + group * actor.pool.num_envs)
        self._learner.progress.restart_clock()

    def update(self) -> None:
        """Runs the loop once for each group, the last of which learns."""
        for actor in self._actors:
            actor.run()
        for actor in self._actors:
            for activity, seconds in actor.spent().items():
                self._learner.progress.spend("trainer", activity, seconds)

    # ---- progress ----

    @property
    def env_steps(self) -> int:
        """Steps that environments have done."""
        return self._learner.progress.env_steps

    @property
    def agent_steps(self) -> int:
        """Steps that agents have done."""
        return self._learner.progress.agent_steps

    @property
    def updates(self) -> int:
        """Finished calls of `learn`."""
        return self._learner.progress.updates

    @property
    def resumes_exactly(self) -> bool:
        """False where environments cannot be saved and restart their episodes."""
        return self._pools[0].saves_exactly

    def report(self) -> dict[str, Any]:
        """Gives a line of metrics: since the last report, or over the last 100 episodes."""
        return self._learner.progress.report()

    def check(self) -> None:
        """Raises RunError if training has diverged since the last report."""
        self._learner.progress.check()

    # ---- state ----

    def state(self) -> Tree:
        """Gives everything that the rest of the run depends on."""
        states = {str(group): actor.state() for group, actor in enumerate(self._actors)}
        return {**self._learner.state(), "environments": pack(states)}

    def restore(self, tree: Tree) -> None:
        """Goes on from a saved state, of whichever plan; environments too, where they can."""
        self._learner.restore(tree)
        states = unpack(np.ascontiguousarray(tree["environments"]), STATE_BYTES)
        if self.resumes_exactly and len(states) == len(self._actors):
            for group, actor in enumerate(self._actors):
                actor.restore(states[str(group)])
            self._learner.progress.restart_clock()
        else:
            self._reset(f"environments {self._learner.progress.epoch}")

    def close(self) -> None:
        """Ends the environments."""
        for pool in self._pools:
            pool.close()


def make_group(experiment: Experiment, num_envs: int) -> Pool:
    """A pool of one group's environments."""
    return make_pool(
        experiment.env,
        num_envs,
        threads=experiment.threads,
        workers=experiment.workers,
        step_timeout=experiment.step_timeout,
    )
