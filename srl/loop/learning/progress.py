"""The progress of a run, and its reports."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from srl.core.episodes import episode_window
from srl.core.errors import RunError
from srl.core.lazy import jax
from srl.core.tree import map_tree
from srl.core.types import Metrics, Specs, Timestep, Tree
from srl.loop.busy_time import BusyTime
from srl.loop.learning.bottleneck import bottleneck
from srl.loop.learning.curriculum import Curriculum
from srl.loop.projection import Gathered

if TYPE_CHECKING:
    from srl.loop.self_play.league import League


class Progress:
    """Counts of a run, its last episodes, and the losses and times since its last report."""

    def __init__(
        self, specs: Specs, members: Mapping[str, tuple[int, ...]], action_repeat: int = 1
    ) -> None:
        self._action_repeat = action_repeat
        self.env_steps = self.updates = 0
        self.epoch = 0
        self.losses: Metrics = {}
        """Sums since the last report, by policy; they are added up where learning is compiled."""
        self._no_losses: Metrics = {}
        self.busy: dict[str, BusyTime] = defaultdict(BusyTime)
        """The time of workers by their kind; of those in other processes, as far as they have
        reported it."""
        self._shares: dict[str, dict[str, float]] = {}  # of their time, by kind and activity
        self.replicas = 1
        """Learners that see as many steps as this one, each."""
        self.episodes = episode_window(specs, members)
        self.episodes_lost = 0
        """Episodes that ended as the process which stepped them died, since this one began."""
        self.curriculum: Curriculum | None = None
        """Decides the lesson, where there are several."""
        self.opponents: League | None = None
        """Counts matches against past versions, where these are played."""
        self._staleness: list[int] = []  # of batches since the last report
        self._agents = len(specs.agents)
        self._reported = _Reported()
        self.restart_clock()

    def begin_losses(self, zeros: Metrics) -> None:
        """Takes the losses' sums before the first update, which are those after a report, too."""
        self.losses = self._no_losses = zeros

    @property
    def agent_steps(self) -> int:
        """Steps of all agents of the environments."""
        return self.env_steps * self._agents

    @property
    def counts(self) -> dict[str, int]:
        """Steps and updates, by name."""
        names = ("env_steps", "agent_steps", "updates")
        return {name: int(getattr(self, name)) for name in names}

    @property
    def version(self) -> np.ndarray:
        """The version of the policies that act now: int32 [2], (epoch, n)."""
        return np.array([self.epoch, self.updates], np.int32)

    def restart_clock(self) -> None:
        """Lets the time until the next report begin now."""
        now, steps = time.perf_counter(), self.env_steps
        self._reported = self._reported._replace(time=now, env_steps=steps)
        self._take_shares()

    def spend(self, worker: str, activity: str, seconds: float) -> None:
        """Adds to the time that workers of a kind have spent since the last report."""
        self.busy[worker].add({activity: seconds})

    def count_steps(self, timesteps: Timestep, lessons: np.ndarray | None = None) -> None:
        """Counts steps, and the episodes of the present lesson that ended.

        Args:
            timesteps: Those that the steps led to, [T, ...], of N environments.
            lessons: The lesson of each group of environments, int [G], where G divides N; by
                default the present one.
        """
        self.env_steps += timesteps.episode_length.size * self._action_repeat * self.replicas
        self.episodes_lost += int(np.count_nonzero(timesteps.lost))
        opponents = self.opponents
        counted = None if opponents is None else opponents.count(timesteps, self.updates)
        if lessons is not None and (lessons != self.lesson).any():
            envs = timesteps.episode_length.shape[1]
            present = np.repeat(lessons == self.lesson, envs // len(lessons))
            counted = present if counted is None else counted & present
        self.episodes.add(timesteps, counted)

    def count_batch(self, batch: Gathered) -> None:
        """Counts a batch's steps, and how old the policies were that acted."""
        timesteps, version = batch.batch.timesteps, batch.batch.version
        self.count_steps(map_tree(lambda x: x[1:], timesteps), batch.lessons)
        self._staleness.append(self.updates - batch.lag - int(version[..., 1].min()))

    def count_update(self, losses: Metrics) -> None:
        """Counts an update, after which the losses' sums are `losses`."""
        self.updates += 1
        self.losses = losses

    @property
    def lesson(self) -> int:
        """The present lesson of the curriculum, from 0."""
        return 0 if self.curriculum is None else self.curriculum.lesson

    def end_pass(self) -> None:
        """Begins the next lesson, where the present one's condition holds after a pass."""
        if self.curriculum is not None:
            if self.curriculum.advance({**self.episodes.report(), **self.counts}):
                self.episodes.forget()

    def report(self) -> dict[str, Any]:
        """Gives a line of metrics: since the last report, or over the last 100 episodes.

        Raises:
            RunError: If training has diverged.
        """
        self.check()
        since, steps, _ = self._reported
        self.restart_clock()
        elapsed = max(self._reported.time - since, 1e-9)
        staleness, self._staleness = self._staleness or [0], []
        report = {
            **self.counts,
            "fps": (self.env_steps - steps) / elapsed,
            **self.episodes.report(),
            "episodes_lost": self.episodes_lost,
            **({} if self.curriculum is None else {"lesson": self.lesson + 1}),
            **({} if self.opponents is None else self.opponents.report()),
            "policy_version": self.updates,
            "staleness_mean": sum(staleness) / len(staleness),
            "staleness_max": max(staleness),
            **self._mean_losses(),
            **{f"time/{kind}/{a}": x for kind, own in self._shares.items() for a, x in own.items()},
            "bottleneck": bottleneck(self._shares),
        }
        self._reported = self._reported._replace(updates=self.updates)
        self.losses = self._no_losses
        return report

    def _take_shares(self) -> None:
        """Takes the share of its time that each kind of worker has spent on each activity.

        They add up to 1. The shares of a kind that has not reported since stay as they were. What
        is negative counts later: threads add an activity when it has ended, so that it may have
        been taken for idle time before, and waits may be moved to another activity before threads
        report them.
        """
        for worker, busy in tuple(self.busy.items()):
            if seconds := busy.take():
                positive = {activity: max(s, 0.0) for activity, s in seconds.items()}
                busy.add({activity: min(s, 0.0) for activity, s in seconds.items()})
                if whole := sum(positive.values()):
                    self._shares[worker] = {a: s / whole for a, s in positive.items()}

    def check(self) -> None:
        """Raises RunError if training has diverged since the last report."""
        for name, value in self._mean_losses().items():
            if not math.isfinite(value):
                raise RunError(
                    f"{name} is {value} after update {self.updates}: training has diverged; lower "
                    "the learning rate, or look for rewards and observations of extreme size"
                )

    def _mean_losses(self) -> dict[str, float]:
        """Means over the updates since the last report."""
        updates = max(self.updates - self._reported.updates, 1)
        means: dict[str, float] = {}
        for policy, losses in jax.device_get(self.losses).items():
            prefix = "loss/" if len(self.losses) == 1 else f"loss/{policy}/"
            means.update({prefix + name: float(total) / updates for name, total in losses.items()})
        return means

    def state(self) -> dict[str, Tree]:
        """Gives what `restore` needs."""
        done = self.updates, self.env_steps, self.agent_steps
        return {
            **({} if self.curriculum is None else {"curriculum": self.curriculum.state()}),
            "episodes": self.episodes.state(),
            "losses": self.losses,
            "counts": np.array((self.epoch, *done, self._reported.updates)),
        }

    def restore(self, state: Mapping[str, Tree]) -> None:
        """Goes on from a saved state, in the next epoch."""
        self.episodes.restore(state["episodes"])
        self.losses = state["losses"]
        if self.curriculum is not None and "curriculum" in state:
            self.curriculum.restore(state["curriculum"])
        epoch, self.updates, self.env_steps, _, reported = (int(n) for n in state["counts"])
        self.epoch, self._reported = epoch + 1, _Reported(updates=reported)
        self.restart_clock()


class _Reported(NamedTuple):
    """The moment of the last report; the time may be that of a later start."""

    time: float = 0.0
    env_steps: int = 0
    updates: int = 0
