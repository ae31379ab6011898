"""The process beside a run that plays whole episodes of the versions that the run offers.

It reads the run's folder and writes one file there; nothing of the training depends on it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from srl.config.experiment import Experiment
from srl.core.episodes import evaluated_metrics, teams_of
from srl.core.errors import RunError, UserError, explained
from srl.evaluation.episodes import Episodes, Evaluator, Player, estimates
from srl.evaluation.playing import keep_playing, one_thread_pool
from srl.evaluation.video import Film
from srl.loop.acting.trained import acting_policy_set, trained_policies
from srl.loop.seeds import environment_seed
from srl.pools.mixture import fewest_environments
from srl.record.run_record import RunFolder, films, remove_unfinished_films
from srl.record.versions import OFFERED, Versions
from srl.system.background.cpu_limit import CpuLimit

logger = logging.getLogger(__name__)

_MOST_ENVIRONMENTS = 100  # as `srl eval` has it, so that it gives the same numbers
_FILM_SECONDS = 20.0  # as much as TensorBoard shows
_MOST_FILMS = 20
_POLL_SECONDS = 0.2  # between two looks for a version


def main(argv: Sequence[str]) -> int:
    """Evaluates the versions that the run in a folder offers, until the parent ends.

    Args:
        argv: The folder, and URGENT if it need not rest.

    Returns:
        The exit code: 2 for an error that another start would not fix.
    """
    return keep_playing("evaluator", argv, _Evaluating, _POLL_SECONDS)


class _Evaluating:
    """Evaluates one version after another, on the same environments."""

    def __init__(self, folder: Path, experiment: Experiment, cpu_limit: CpuLimit) -> None:
        assert experiment.evaluation is not None
        self._settings = settings = experiment.evaluation
        self._versions, self._cpu_limit = Versions(folder), cpu_limit
        env = settings.environment(experiment.env)
        num_envs = min(settings.episodes, max(_MOST_ENVIRONMENTS, fewest_environments(env)))
        self._environments = one_thread_pool(env, num_envs, experiment.action_repeat)
        self._specs = specs = self._environments.specs
        self._policy_set = acting_policy_set(
            experiment.algorithm, experiment.policies, specs, experiment.num_envs
        )
        self._teams = teams_of(specs.agents, self._policy_set.members).members
        self._names = evaluated_metrics(specs, self._policy_set.members)
        settings.expect_fit(specs, self._policy_set.members)
        self._filmed = replace(experiment, env=env)
        self._run = RunFolder(folder)
        self._film: Film | None = None
        self._versions.note_death()
        remove_unfinished_films(self._run)
        self._evaluators = {name: self._evaluator(greedy) for name, greedy in self._ways()}

    def close(self) -> None:
        self._environments.close()

    def _ways(self) -> Iterator[tuple[str, bool]]:
        """Names of metrics, as far as they depend on how actions are chosen, and whether greedy."""
        if self._settings.actions != "sampled":
            yield "eval/", True
        if self._settings.actions != "greedy":
            yield "eval/sampled/" if self._settings.actions == "both" else "eval/", False

    def _evaluator(self, greedy: bool) -> Evaluator:
        seed = self._settings.seed
        return Evaluator(
            self._environments,
            self._settings.episodes,
            env_seed=environment_seed(seed, "evaluation"),
            seed=seed,
            greedy=greedy,
            sides=self._teams,
        )

    def play(self) -> bool:
        """Evaluates the version that is offered; False if there is none without a result."""
        identity = self._versions.offered()
        if identity is None or identity == self._versions.evaluated():
            return False
        try:
            policies, counts = trained_policies(
                self._policy_set, self._versions.checkpoints, OFFERED
            )
        except RunError as error:  # it is just being replaced, or is damaged
            logger.info("%s", error)
            return False
        except UserError as error:
            if options := dict(self._settings.options):
                raise UserError(
                    f"evaluation.options {options} make environments in which the policies cannot "
                    f"play: {error}"
                ) from error
            raise
        player = Player(self._policy_set, policies)
        lineup = dict.fromkeys(self._teams, player)
        metrics: dict[str, float] = {"eval/episodes": self._settings.episodes}
        for name, evaluator in self._evaluators.items():
            played = evaluator.play(lineup, lambda ended: self._cpu_limit.rest())
            metrics |= self._metrics(name, played)
        self._versions.put_result(identity, metrics)
        logger.info("version %d: %s", counts["updates"], metrics)
        if self._settings.video and not self._versions.urgent and not self._versions.no_films():
            self._record(player, self._run.film(counts["env_steps"]))
        return True

    def _record(self, player: Player, file: Path) -> None:
        """Films the first episode of the evaluation; a failure ends filming, and nothing else.

        No film is left where the run waits for another result before this one ends.
        """
        settings = self._settings
        try:
            with self._versions.filming() as expect_time:

                def progress(ended: int) -> None:
                    expect_time()
                    self._cpu_limit.rest()

                self._film = self._film or _film_of(self._filmed)
                self._film.record(
                    *(file, player, 1, settings.seed, settings.actions != "sampled"),
                    progress=progress,
                    most_seconds=_FILM_SECONDS,
                )
        except Exception as error:  # of a library that renders, too
            logger.warning("versions are not filmed any more: %s", explained(error))
        for old in list(films(self._run))[:-_MOST_FILMS]:
            old.unlink(missing_ok=True)

    def _metrics(self, name: str, played: Episodes) -> dict[str, float]:
        found = estimates(played, self._specs, self._teams, self._policy_set.members)
        means = {key.removeprefix("episode_"): x.mean for key, x in found.items()}
        _, error, deviation = found["episode_return"]
        means |= {"return_error": error, "return_std": deviation}
        return {
            f"{name}{key}": x for key, x in means.items() if x is not None and key in self._names
        }


def _film_of(experiment: Experiment) -> Film:
    """A film of the drawing, which takes little time; where there is none, of what it renders."""
    with suppress(UserError):
        return Film(experiment, drawing=True)
    return Film(experiment)
