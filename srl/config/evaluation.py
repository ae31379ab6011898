"""The settings of evaluation while a run trains.

    experiment = Experiment(..., evaluation=Evaluation(episodes=20, target=475))

Importing this loads neither jax nor flax: experiment files do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from srl.core.episodes import evaluated_metrics
from srl.core.errors import UserError, expect, nearest
from srl.core.settings import Count, NotNegative, Range, Seed, Settings, expect_settings
from srl.core.types import Specs
from srl.pools.config import with_options

_LARGEST = 1e300  # a return may have any size, but has to be a number
Actions = Literal["greedy", "sampled", "both"]


@dataclass(frozen=True)
class Evaluation(Settings):
    """Whole episodes of versions of the policies, played by a background process."""

    episodes: Annotated[int, Range(1, 100_000)] = 20
    """Episodes in the evaluation of each version."""
    every: Count = 0
    """Updates between versions; 0 takes those of report lines. Versions that come during an
    evaluation are skipped, except the newest."""
    actions: Actions = "greedy"
    """The most probable actions, sampled actions as in training, or both, with the metrics of
    sampled actions in eval/sampled/."""
    seed: Seed = 0
    """The seed of the environments and of sampling, the same for all versions."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the environment that differ from training's, by name. The spaces must stay the
    same, but for privileged keys. As arguments: --evaluation.options.NAME VALUE."""
    metric: str = "return"
    """The metric of eval/* that selects the best version; more is better."""
    target: Annotated[float | None, Range(-_LARGEST, _LARGEST)] = None
    """Ends the run as soon as a version's metric is at least this."""
    video: bool = False
    """Films of the evaluated versions in the run's videos/: the first 20 seconds of an episode of
    each. The newest 20 films are kept."""
    share: Annotated[float, Range(1e-3, 1.0)] = 0.03
    """Largest share of the CPUs' time; 1 takes all, with the priority of training."""
    last_seconds: NotNegative = 120.0
    """Longest wait in seconds, at the end of the run, for the evaluation of its last version, which
    then has no limit of CPU time; 0 does not wait."""

    def validate(self) -> None:
        """Raises UserError where a setting is out of its limits."""
        expect_settings("evaluation", self)
        good = bool(self.metric) and "eval/" not in self.metric
        expect(good, "evaluation.metric", self.metric, "a name such as return, for eval/return")

    def expect_fit(self, specs: Specs, policies: Mapping[str, tuple[int, ...]]) -> None:
        """Raises UserError if evaluation will have no such metric, or not play all tasks."""
        least = len(specs.task_of)
        wanted = f"at least {least}, one for each share of the mixture"
        expect(self.episodes >= least, "evaluation.episodes", self.episodes, wanted)
        names = evaluated_metrics(specs, policies)
        both = [f"sampled/{name}" for name in names] if self.actions == "both" else []
        if self.metric not in (known := [*names, *both]):
            hint = nearest(self.metric, known)
            raise UserError(f"evaluation.metric is {self.metric!r}, which is none: {hint}")

    def environment(self, env: Any) -> Any:
        """Training's environment, with the options of evaluation.

        Raises:
            UserError: If it has no such option.
        """
        return with_options("evaluation.options", env, self.options)
