"""What a launcher drives, whichever plan trains."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from srl.errors import RunError
from srl.experiment import Experiment
from srl.pools import Pool, make_pool
from srl.pools.make import threaded
from srl.streams.group_state import STATE_BYTES, pack, unpack
from srl.types import Tree
from srl.workers.league import League
from srl.workers.learner import Learner
from srl.workers.replicas import gathered
from srl.workers.stage import Stage


class Training(ABC):
    """A training run: a learner, and groups of environments somewhere.

    Between two updates it is the learner's state and each group's, which is the same under all
    plans that divide the environments alike: a run may go on under another.
    """

    folder: Path | None = None
    """Of the run, for the pool of opponents; to be set before `start` where there is self-play."""
    resumes_exactly = True
    """False where environments cannot be saved and restart their episodes."""

    def __init__(self, experiment: Experiment) -> None:
        """Takes the experiment; `start` does the work."""
        self.experiment = experiment
        self.on_stage: Callable[[Stage], None] = lambda stage: None
        """Called as a stage of `start` begins."""
        self.alive: Callable[[], None] = lambda: None
        """Called when there is progress: before each step, where environments are stepped here."""
        self._maybe_learner: Learner | None = None

    @abstractmethod
    def start(self) -> None:
        """Makes the environments and the policies, compiles, and resets."""

    @abstractmethod
    def update(self) -> None:
        """Takes a batch and learns from it."""

    def finish(self) -> None:
        """Tells whoever makes the batches that no further one is wanted."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Lets go of all that was made."""

    @abstractmethod
    def _group_states(self) -> Mapping[int, Tree]:
        """The state of every group, between two unrolls."""

    @abstractmethod
    def _restore_groups(self, states: Mapping[int, Tree]) -> None:
        """Lets the groups go on from these states, or anew where there is none that fits."""

    def _enter_league(self, learner: Learner, *, writes: bool = True) -> None:
        """Lets past versions play, if the experiment asks for it; `writes` in one of replicas."""
        if self.experiment.self_play is None:
            return
        assert self.folder is not None, "self-play needs the run's folder"
        policies = learner.teams.policies(learner.states)
        learner.league = league = League(
            self.experiment, learner.teams, policies, self.folder, writes=writes
        )
        learner.policies = learner.teams.acting(policies, league.playing)

    @property
    def _learner(self) -> Learner:
        assert self._maybe_learner is not None, "start() comes first"
        return self._maybe_learner

    @property
    def parameters(self) -> Mapping[str, int]:
        """Numbers in each policy's networks."""
        return self._learner.parameters

    @property
    def agents(self) -> Mapping[str, tuple[str, ...]]:
        """Who follows each policy."""
        return self._learner.agents

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

    def agree(self, stop: bool, save: bool) -> tuple[bool, bool]:
        """Which of these to do now: with other replicas, what one of them wanted an update ago."""
        sharded = self._learner.sharded
        if sharded is None or self.replicas == 1:
            return stop, save
        stop, save = sharded.agree(stop, save)
        return stop, save

    @property
    def replicas(self) -> int:
        """Processes that learn together."""
        return self._learner.progress.replicas

    @property
    def awaited(self) -> str:
        """What it waits for now, such as "environments 0 to 7 to step", where it knows."""
        return ""

    @property
    def account(self) -> str:
        """What has become of all unrolls, where they pass a stream in this process."""
        return ""

    def report(self) -> dict[str, Any]:
        """Gives a line of metrics: since the last report, or over the last 100 episodes."""
        learner = self._learner
        league = {} if learner.league is None else learner.league.report()
        return {**learner.progress.report(), **league}

    def check(self) -> None:
        """Raises RunError if training has diverged since the last report."""
        self._learner.progress.check()

    def state(self) -> Tree:
        """Gives everything that the rest of the run depends on; all replicas call it together."""
        body = pack({str(group): state for group, state in self._group_states().items()})
        if self.replicas > 1:
            parts = [unpack(part.copy(), STATE_BYTES) for part in gathered(body)]
            body = pack({group: state for part in parts for group, state in part.items()})
        return {**self._learner.state(), "environments": body}

    def restore(self, tree: Tree) -> None:
        """Goes on from a saved state, of whichever plan."""
        self._learner.restore(tree)
        if self.replicas > 1:
            self._expect_equal_versions()
        states = unpack(np.ascontiguousarray(tree["environments"]), STATE_BYTES)
        self._restore_groups({int(group): state for group, state in states.items()})
        self._learner.progress.restart_clock()

    def _expect_equal_versions(self) -> None:
        """Raises RunError if one replica could not read the checkpoint that another one has."""
        parts = gathered(np.array([self.updates], np.int64).view(np.uint8))
        versions = sorted({int(part.copy().view(np.int64)[0]) for part in parts})
        if len(versions) > 1:
            told = " and ".join(map(str, versions))
            raise RunError(f"learners have read different checkpoints: {told}; one is damaged")


def environments(group: int, each: int) -> str:
    """The environments of a group of so many, in words."""
    first, last = group * each, (group + 1) * each - 1
    return f"environments {first} to {last}" if last > first else f"environment {first}"


def make_group(experiment: Experiment, num_envs: int, beside: int = 1) -> Pool:
    """A pool of one group's environments.

    Args:
        experiment: Whose environments these are.
        num_envs: Of the group.
        beside: Groups that step at the same time in this process, and share its cores.
    """
    threads = experiment.threads
    if not threads and beside > 1 and threaded(experiment.env):
        threads = max(1, len(os.sched_getaffinity(0)) // beside)
    return make_pool(
        experiment.env,
        num_envs,
        threads=threads,
        workers=experiment.workers,
        step_timeout=experiment.step_timeout,
    )
