"""The command `srl eval`: a checkpoint's policies play, alone or against others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from srl.config.built_in_envs import config_class
from srl.config.experiment import Experiment
from srl.core.console.stages import Stages
from srl.core.errors import UserError, expect, expect_number
from srl.core.settings import MOST_SEED
from srl.evaluation.episodes import Estimate, Evaluator, estimates
from srl.evaluation.matches import OTHER, Match, compare, lineups, tables
from srl.evaluation.players import UNTRAINED, Side, opponent, trained
from srl.evaluation.video import Film, expect_film, live_pool
from srl.loop.seeds import environment_seed
from srl.loop.stepping.environments import make_group
from srl.pools.mixture import fewest_environments
from srl.pools.pool import Pool
from srl.record.ratings import newest_ratings, ratings_line
from srl.record.run_record import RunFolder, find_run
from srl.run.folder import open_run
from srl.system.compilation import keep_compiled_programs


class Results(dict[str, Any]):
    """Evaluation results and settings, JSON-serialisable."""

    text: str
    """The same for a person."""


def evaluate(
    run_dir: Path | str,
    version: int | Literal["best"] | None = None,
    *,
    against: str | None = None,
    episodes: int | None = None,
    sampled: bool = False,
    seed: int = 0,
    num_envs: int = 100,
    video: Path | str | bool = False,
    video_episodes: int | None = None,
    drawing: bool = False,
    camera: str | None = None,
    live: bool = False,
    experiment: Experiment | None = None,
    trust: bool = False,
) -> Results:
    """Plays whole episodes with a run's policies, on environments of their own.

    Args:
        run_dir: The run's folder.
        version: Of the checkpoint, or "best": that of evaluation while the run trained. The newest
            by default.
        against: RUN_DIR[:V] or `untrained`: the policies that play the other agents.
        episodes: Of each combination of teams; by default 100, or 3 of those that are shown live.
        sampled: Draw actions, as training does, in place of taking the most probable ones.
        seed: Of the environments, the drawing, and untrained policies.
        num_envs: Environments stepped together, at most one for each episode.
        video: Films the run's own policies: an .mp4 or .svg, or True for the run's `videos/`.
        video_episodes: How many episodes the film has, 1 by default.
        drawing: Film the environment's drawing in place of its rendering.
        camera: Where it is filmed from; hide-and-seek has top, corner, follow and follow:AGENT.
        live: Show the episodes in a window, one after the other: by render_mode="human".
        experiment: The run's, where it cannot be made again from its folder.
        trust: As for `srl.load`, of both sides' folders.

    Raises:
        UserError: For a number out of range, a run without such a checkpoint, or policies that
            cannot play here.
    """
    episodes = (3 if live else 100) if episodes is None else episodes
    if isinstance(video, str):
        video = bool(video) and Path(video)
    of_films = {"drawing": drawing, "camera": camera, "video-episodes": video_episodes}
    _expect_settings(episodes, num_envs, seed, video, of_films)
    keep_compiled_programs()
    folder, experiment = _opened(run_dir, experiment, trust)
    experiment = replace(experiment, curriculum=())  # its last lesson is played
    suffix = video.suffix if isinstance(video, Path) else ".mp4"
    film = Film(experiment, drawing, camera, suffix) if video else None
    with live_pool(experiment) if live else _group(experiment, num_envs, episodes) as pool:
        ours = trained(experiment, folder, pool.specs, version)
        other = opponent(against, experiment, pool.specs, seed, trust) if against else None
        how = camera, "drawing" * drawing, "sampled" * sampled
        named = _film_in(folder, ours.source["version"], seed, *how)
        if film:
            video = video if isinstance(video, Path) else named
            _record(film, video, ours, video_episodes or 1, seed, not sampled)
        seeds: Any = {"env_seed": environment_seed(seed, "evaluation"), "seed": seed}
        sides = ours.player.teams.members
        evaluator = Evaluator(pool, episodes, **seeds, greedy=not sampled, sides=sides)
        settings = {**ours.source, "episodes": episodes, "seed": seed, "greedy": not sampled}
        found, lines = _played(evaluator, ours, other, experiment, settings)
    return _results(folder, settings, found, lines, film=str(video) if film else "")


def _group(experiment: Experiment, num_envs: int, episodes: int) -> Pool:
    least = fewest_environments(experiment.env)
    wanted = f"at least {least}, one for each share of the mixture"
    expect(episodes >= least, "--episodes", episodes, wanted)
    return make_group(experiment, max(min(num_envs, episodes), least))


def _opened(
    run_dir: Path | str, experiment: Experiment | None, trust: bool
) -> tuple[RunFolder, Experiment]:
    if experiment is not None:
        expect(isinstance(experiment, Experiment), "experiment", experiment, "an Experiment")
        return find_run(run_dir, trained=True), experiment
    folder, resolved = open_run(run_dir, trained=True, trust=trust)
    return folder, resolved.experiment


def _expect_settings(
    episodes: int,
    num_envs: int,
    seed: int,
    video: Path | bool,
    of_films: Mapping[str, Any],
) -> None:
    """Raises UserError for a number out of range, and for settings of a film without one."""
    expect_number("--episodes", episodes, 1)
    expect_number("--num-envs", num_envs, 1)
    expect_number("--video-episodes", of_films["video-episodes"], 1, or_none=True)
    expect_number("--seed", seed, 0, MOST_SEED)
    if isinstance(video, Path):
        expect_film(video)
    elif not video and (given := [name for name, value in of_films.items() if value]):
        raise UserError(f"--{given[0]} is for films: give --video, too")


def _results(
    folder: RunFolder,
    settings: dict[str, Any],
    found: Mapping[str, Any],
    lines: list[str],
    film: str,
) -> Results:
    """The results, with the run's newest ratings, and the file of a film if there is one."""
    if rated := newest_ratings(folder.path):
        settings["ratings"] = rated
        lines += ["", ratings_line(rated)]
    if film:
        settings["video"] = film
        lines += ["", f"The film is in {film}."]
    results = Results(settings, **found)
    results.text = "\n".join([*_heading(settings), "", *lines])
    return results


def _played(
    evaluator: Evaluator,
    ours: Side,
    other: Side | None,
    experiment: Experiment,
    settings: dict[str, Any],
) -> tuple[dict[str, Any], list[str]]:
    """Plays; gives the results for JSON and as lines, and completes the settings."""
    if experiment.fixed:
        settings["fixed"] = {
            pattern: {"run": str(fixed.run), "version": fixed.version}
            for pattern, fixed in experiment.fixed.items()
        }
    if other is None:
        return _alone(evaluator, ours)
    settings["against"] = dict(other.source)
    return _against(evaluator, ours, other, experiment)


def _record(film: Film, file: Path, ours: Side, episodes: int, seed: int, greedy: bool) -> None:
    with Stages() as stages:
        progress = stages.counter("filming", "episodes", episodes)
        film.record(file, ours.player, episodes, seed, greedy, progress)


def _film_in(folder: RunFolder, version: int, seed: int, *how: str | None) -> Path:
    """The file of a film for which none was given; the same film has the same file."""
    name = "_".join([f"version_{version}", f"seed_{seed}", *filter(None, how)])
    return folder.videos / f"{name.replace(':', '_')}.mp4"


def _alone(evaluator: Evaluator, ours: Side) -> tuple[dict[str, Any], list[str]]:
    """The results of one side's policies among themselves, for JSON and as lines."""
    results = _play(evaluator, dict.fromkeys(evaluator.sides, ours), "")
    shown = {k: v for k, v in results.items() if k not in _repeated(evaluator, ours)}
    width = max(map(len, shown))
    lines = [f"{name:<{width}}  {estimate}" for name, estimate in shown.items()]
    return {"results": {name: found.json() for name, found in results.items()}}, lines


def _repeated(evaluator: Evaluator, side: Side) -> set[str]:
    """The returns by kind of agents that a policy of exactly these agents has, too."""
    kinds, policies = evaluator.sides, side.player.policy_set.members
    if len(policies) == 1:  # whose returns are there by kind alone
        return set()
    others = {name: set(agents) for name, agents in policies.items() if name not in kinds}
    return {f"episode_return/{kind}" for kind, own in kinds.items() if set(own) in others.values()}


def _against(
    evaluator: Evaluator, ours: Side, other: Side, experiment: Experiment
) -> tuple[dict[str, Any], list[str]]:
    """The results of all combinations of two sides' teams, for JSON and as lines."""
    combinations = lineups(list(evaluator.sides), ours.player.teams.fixed)
    matches = []
    for number, lineup in enumerate(combinations, 1):
        sides = {kind: other if name == OTHER else ours for kind, name in lineup.items()}
        title = f"combination {number} of {len(combinations)}"
        matches.append(Match(lineup, _play(evaluator, sides, title)))
    config = config_class(experiment.env)
    contest = config.contest if config else None
    if contest and contest.statistic not in evaluator.specs.statistics:
        contest = None  # as in a task for one agent
    label = UNTRAINED if other.untrained else "the other run's"
    comparisons = compare(matches, contest, label)
    found = {
        "matches": [
            {"cast": dict(m.lineup), "results": {k: v.json() for k, v in m.results.items()}}
            for m in matches
        ],
        "comparisons": [comparison.json() for comparison in comparisons],
    }
    return found, [
        *tables(matches, contest, UNTRAINED if other.untrained else OTHER),
        *(c.sentence for c in comparisons),
    ]


def _play(evaluator: Evaluator, sides: Mapping[str, Side], title: str) -> dict[str, Estimate]:
    first, *others = sides.values()
    alone = all(side is first for side in others)
    with Stages() as stages:
        progress = stages.counter("playing", f"episodes {title}".strip(), evaluator.episodes)
        played = evaluator.play({kind: side.player for kind, side in sides.items()}, progress)
    # A policy's own return means something where one side has all the policies.
    policies = first.player.policy_set.members if alone else {}
    return estimates(played, evaluator.specs, evaluator.sides, policies)


def _heading(settings: Mapping[str, Any]) -> list[str]:
    actions = "the most probable actions" if settings["greedy"] else "actions drawn as in training"
    lines = [f"run       {_named(settings)}"]
    for pattern, fixed in settings.get("fixed", {}).items():
        lines.append(f"fixed     {pattern}: {fixed['run']}, version {fixed['version']}")
    if "against" in settings:
        lines.append(f"against   {_named(settings['against'])}")
    return [
        *lines,
        f"episodes  {settings['episodes']}, seed {settings['seed']}, {actions}",
        "numbers   mean ± standard error (standard deviation of episodes)",
    ]


def _named(source: Mapping[str, Any]) -> str:
    if "version" not in source:
        return f"{source['run']} policies"
    return f"{source['run']}, version {source['version']} ({source['env_steps']:,} env steps)"
