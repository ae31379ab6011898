"""What the trainers that hold environments and learner in one process share."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from srl.algorithms.algorithm import State
from srl.experiment import Experiment
from srl.lazy import jax
from srl.pools import Pool, make_pool
from srl.types import Timestep, Tree
from srl.workers.progress import Progress
from srl.workers.teams import Teams


def environment_seed(seed: int, purpose: str) -> int:
    """Gives the first environment's seed; neighbouring run seeds share no environment."""
    digest = hashlib.sha256(f"{purpose} {seed}".encode()).digest()
    return int.from_bytes(digest[:4], "little") >> 1


class Training(ABC):
    """All of a training run that does not depend on how its loop is run.

    Between two updates it is: the learners' states, the policies' memory, the pool, the timestep
    that is acted on next, the clock of the random keys, and the progress.
    """

    activities: tuple[str, ...]
    """What the time goes to, as reports name it."""

    def __init__(self, experiment: Experiment) -> None:
        """Takes the experiment; `start` does the work."""
        self.experiment = experiment
        self.parameters: dict[str, int] = {}
        self.agents: dict[str, tuple[str, ...]] = {}
        self._open_pool: Pool | None = None

    def start(self) -> None:
        """Makes the environments and the policies, compiles, and resets."""
        experiment = self.experiment
        self._open_pool = pool = make_pool(
            experiment.env,
            experiment.num_envs,
            threads=experiment.threads,
            workers=experiment.workers,
            step_timeout=experiment.step_timeout,
        )
        self._length = experiment.algorithm.unroll_length
        self._steps_per_update = self._length * experiment.num_envs
        updates = experiment.updates or math.ceil(experiment.env_steps / self._steps_per_update)
        teams = Teams.of(experiment.algorithm, experiment.policies, pool.specs, updates)
        self._teams = teams
        self._progress = Progress(pool.specs, teams.members, self.activities)

        root = jax.random.key(experiment.seed)
        self._act_key = jax.random.fold_in(root, 1)
        self._states = teams.init(jax.random.fold_in(root, 0))
        self._memory: Tree = teams.initial_memory(experiment.num_envs)
        self._clock = np.uint32(0)
        for name, state in self._states.items():
            self.parameters[name] = sum(x.size for x in jax.tree.leaves(state.params))
            self.agents[name] = tuple(pool.specs.agents[i] for i in teams.members[name])

        self._prepare()
        self._reset(environment_seed(experiment.seed, "environments"))
        self._progress.restart_clock()

    @abstractmethod
    def _prepare(self) -> None:
        """Compiles all that training calls, and sets the progress' losses to zeros."""

    @abstractmethod
    def _reset(self, seed: int) -> None:
        """Starts new episodes everywhere."""

    @abstractmethod
    def _timestep(self) -> Timestep:
        """What is acted on next."""

    @abstractmethod
    def _go_on_from(self, timestep: Timestep) -> None:
        """Acts on this next; the pool has been restored to it."""

    @abstractmethod
    def update(self) -> None:
        """Takes one unroll with the present policies, and learns from it."""

    @property
    def _pool(self) -> Pool:
        assert self._open_pool is not None, "start() comes first"
        return self._open_pool

    # ---- progress ----

    @property
    def env_steps(self) -> int:
        """Steps that environments have done."""
        return self._progress.env_steps

    @property
    def agent_steps(self) -> int:
        """Steps that agents have done."""
        return self._progress.agent_steps

    @property
    def updates(self) -> int:
        """Finished calls of `learn`."""
        return self._progress.updates

    @property
    def resumes_exactly(self) -> bool:
        """False where environments cannot be saved and restart their episodes."""
        return self._pool.saves_exactly

    def report(self) -> dict[str, Any]:
        """Gives a line of metrics: since the last report, or over the last 100 episodes."""
        return self._progress.report()

    def check(self) -> None:
        """Raises RunError if training has diverged since the last report."""
        self._progress.check()

    # ---- state ----

    def state(self) -> Tree:
        """Gives everything that the rest of the run depends on."""
        return {
            "learners": {name: state._asdict() for name, state in self._states.items()},
            "memory": self._memory,
            "pool": np.frombuffer(self._pool.save(), np.uint8),
            "timestep": self._timestep()._asdict(),
            "clock": self._clock,
            **self._progress.state(),
        }

    def restore(self, tree: Tree) -> None:
        """Goes on from a saved state, of whichever trainer."""
        self._states = {
            name: State(**jax.device_put(state)) for name, state in tree["learners"].items()
        }
        self._memory = jax.device_put(tree["memory"])
        self._clock = np.uint32(tree["clock"])
        self._progress.restore(tree)
        if self._pool.saves_exactly:
            self._pool.restore(tree["pool"].tobytes())
            self._go_on_from(Timestep(**tree["timestep"]))
        else:
            purpose = f"environments {self._progress.epoch}"
            self._reset(environment_seed(self.experiment.seed, purpose))
        self._progress.restart_clock()

    def close(self) -> None:
        """Ends the environments."""
        if self._open_pool is not None:
            self._open_pool.close()
