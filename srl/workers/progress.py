"""How far a run is, and what it reports."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from srl.errors import RunError
from srl.lazy import jax, jnp
from srl.types import Metrics, Specs, Tree
from srl.workers.episodes import EpisodeWindow


class Progress:
    """Counts of a run, its last episodes, and the losses and times since its last report."""

    def __init__(
        self, specs: Specs, members: Mapping[str, tuple[int, ...]], activities: tuple[str, ...]
    ) -> None:
        """Starts at nothing.

        Args:
            specs: Of the environments.
            members: Agent indices of each policy.
            activities: What the trainer's time goes to, as reports name it.
        """
        self.env_steps = self.agent_steps = self.updates = 0
        self.epoch = 0
        self.losses: Metrics = {}
        """Sums since the last report, by policy; they are added up where learning is compiled."""
        self.seconds = dict.fromkeys(activities, 0.0)
        """Time spent since the last report."""
        self.episodes = EpisodeWindow(specs, members)
        self._agents = len(specs.agents)
        self._updates_reported = 0
        self.restart_clock()

    @property
    def version(self) -> np.ndarray:
        """Of the policies that act now: int32 [2], (epoch, n)."""
        return np.array([self.epoch, self.updates], np.int32)

    def restart_clock(self) -> None:
        """Lets the time until the next report begin now."""
        self._last_report = (time.perf_counter(), self.env_steps)

    def count_update(self, env_steps: int, losses: Metrics) -> None:
        """Counts an update from so many steps, after which the losses' sums are `losses`."""
        self.updates += 1
        self.env_steps += env_steps
        self.agent_steps += env_steps * self._agents
        self.losses = losses

    def report(self) -> dict[str, Any]:
        """Gives a line of metrics: since the last report, or over the last 100 episodes.

        Raises:
            RunError: If training has diverged.
        """
        self.check()
        since, steps = self._last_report
        self.restart_clock()
        elapsed = max(self._last_report[0] - since, 1e-9)
        shares = {name: value / elapsed for name, value in self.seconds.items()}
        self.seconds = dict.fromkeys(self.seconds, 0.0)
        report = {
            "env_steps": self.env_steps,
            "agent_steps": self.agent_steps,
            "updates": self.updates,
            "fps": (self.env_steps - steps) / elapsed,
            **self.episodes.report(),
            "policy_version": self.updates,
            "staleness_mean": 0.0,
            "staleness_max": 0,
            **self._mean_losses(),
            **{f"time/trainer/{name}": share for name, share in shares.items()},
            "time/trainer/other": max(0.0, 1 - sum(shares.values())),
        }
        self._updates_reported = self.updates
        self.losses = jax.tree.map(jnp.zeros_like, self.losses)
        return report

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
        updates = max(self.updates - self._updates_reported, 1)
        means: dict[str, float] = {}
        for policy, losses in jax.device_get(self.losses).items():
            prefix = "loss/" if len(self.losses) == 1 else f"loss/{policy}/"
            means.update({prefix + name: float(total) / updates for name, total in losses.items()})
        return means

    def state(self) -> dict[str, Tree]:
        """Gives what `restore` needs."""
        counts = (
            self.epoch,
            self.updates,
            self.env_steps,
            self.agent_steps,
            self._updates_reported,
        )
        return {
            "episodes": self.episodes.state(),
            "losses": self.losses,
            "counts": np.array(counts),
        }

    def restore(self, state: Mapping[str, Tree]) -> None:
        """Goes on from a saved state, in the next epoch."""
        self.episodes.restore(state["episodes"])
        self.losses = jax.device_put(state["losses"])
        epoch, *counts = (int(count) for count in state["counts"])
        self.updates, self.env_steps, self.agent_steps, self._updates_reported = counts
        self.epoch = epoch + 1
        self.restart_clock()
