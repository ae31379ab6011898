"""The command `srl watch`: episodes as one HTML file, to be looked at in a browser."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from srl.config.built_in_envs import built_in_configs, config_class
from srl.config.experiment import Experiment
from srl.core.console.stages import Stages
from srl.core.errors import UserError, expect_number
from srl.core.settings import MOST_SEED
from srl.evaluation.episodes import Evaluator
from srl.evaluation.matches import FIXED, OTHER, OURS, lineups, plural
from srl.evaluation.players import UNTRAINED, Side, opponent, trained
from srl.loop.seeds import environment_seed
from srl.pools import Pool, make_pool
from srl.pools.config import Recorder
from srl.record.files import expect_place, write_output
from srl.run.folder import open_run
from srl.system.compilation import keep_compiled_programs

_PAGE = Path(__file__).parent / "page"
_DECIMALS = 3


def watch(
    run_dir: Path,
    *,
    out: Path | None = None,
    episodes: int = 3,
    seed: int = 0,
    version: int | str | None = None,
    against: str | None = None,
    sampled: bool = False,
    trust: bool = False,
) -> Path:
    """Plays whole episodes and writes a page that shows them; it needs no network.

    Args:
        run_dir: The run's folder.
        out: The page; by default watch.html in the run's folder.
        episodes: How many; with `against`, of each lineup of the two sides.
        seed: Of the environments, the drawing, and untrained policies.
        version: Of the checkpoint; the newest by default.
        against: RUN_DIR[:V] or `untrained`: the policies that play the other kinds of agents.
        sampled: Draw actions, as training does, in place of taking the most probable ones.
        trust: As for `srl.load`, of both sides' folders.

    Returns:
        The file.

    Raises:
        UserError: For an environment that cannot be watched, a number out of range, a run without
            such a checkpoint, policies that cannot play here, or a file that cannot be written.
    """
    expect_number("--episodes", episodes, 1)
    expect_number("--seed", seed, 0, MOST_SEED)
    folder, resolved = open_run(run_dir, trained=True, trust=trust)
    experiment = resolved.experiment
    recorder = _recorder(experiment)
    out = out or folder.path / "watch.html"
    expect_place("--out", out)
    keep_compiled_programs()
    repeat = experiment.action_repeat
    with make_pool(experiment.env, 1, threads=1, action_repeat=repeat) as pool:
        ours = trained(experiment, folder, pool.specs, version)
        other = opponent(against, experiment, pool.specs, seed, trust) if against else None
        env_seed, sides = environment_seed(seed, "evaluation"), ours.player.teams.members
        evaluator = Evaluator(
            *(pool, 1), env_seed=env_seed, seed=seed, greedy=not sampled, sides=sides
        )
        data = {
            "title": experiment.name,
            "about": _about(ours, seed),
            "agents": pool.specs.agents,
            "episodes": [],
        }
        for title, sides in _lineups(ours, other):
            with Stages() as stages:
                progress = stages.counter("playing", f"episodes {title}".strip(), episodes)
                shown = list(_play(evaluator, pool, recorder, sides, episodes, progress))
            data["episodes"] += [{"title": title, **episode} for episode in shown]
    write_output(out, page(recorder.script, data).encode())
    return out


def page(script: Path, data: Mapping[str, Any]) -> str:
    """The text of a page that needs no other file; the script shows the data, which are JSON."""
    parts = {
        "title": html.escape(data["title"]),
        "style": (_PAGE / "page.css").read_text(),
        # No text in the data can end the element that it stands in.
        "data": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
        "stage": script.read_text(),
        "player": (_PAGE / "player.js").read_text(),
    }
    template = (_PAGE / "page.html").read_text()
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def encoded(steps: Sequence[np.ndarray]) -> dict[str, Any]:
    """One array at T steps, as whole numbers: each the difference to the step before.

    What never changes is kept once. The values are the running sums over the steps, divided by
    `scale`: 1 for integers, 1000 for floats, which are rounded.
    """
    values = np.stack(steps)
    scale = 10**_DECIMALS if values.dtype.kind == "f" else 1
    whole = np.round(values.astype(np.float64) * scale).astype(np.int64)
    if (whole == whole[0]).all():
        whole = whole[:1]
    deltas = np.diff(whole, axis=0, prepend=np.zeros_like(whole[:1]))
    return {"shape": whole.shape, "scale": scale, "deltas": deltas.ravel().tolist()}


def _recorder(experiment: Experiment) -> Recorder:
    config = config_class(experiment.env)
    recorder = config.recorder() if config else None
    if recorder is None:
        watchable = [f"{c.__name__} ({c.pool_id})" for c in built_in_configs() if c.recorder()]
        raise UserError(
            f"{experiment.env} cannot be watched in a browser; {', '.join(watchable)} can. "
            "`srl eval --video` films environments that render"
        )
    return recorder


def _lineups(ours: Side, other: Side | None) -> Iterator[tuple[str, dict[str, Side]]]:
    """Gives which side plays each kind of agents; of two sides, each way in which both play."""
    members, fixed = ours.player.teams
    if other is None:
        yield "", dict.fromkeys(members, ours)
        return
    sides = {OURS: ours, OTHER: other, FIXED: ours}
    names = {OURS: OURS, OTHER: UNTRAINED if other.untrained else OTHER, FIXED: FIXED}
    for lineup in lineups(list(members), fixed):
        trained = [side for side in lineup.values() if side != FIXED]
        if len(trained) == 1 or len(set(trained)) > 1:
            title = ", ".join(f"{plural(kind)}: {names[side]}" for kind, side in lineup.items())
            yield title, {kind: sides[side] for kind, side in lineup.items()}


def _play(
    evaluator: Evaluator,
    pool: Pool,
    recorder: Recorder,
    sides: Mapping[str, Side],
    episodes: int,
    progress: Callable[[int], None],
) -> Iterator[dict[str, Any]]:
    """Whole episodes of a pool's one environment, by the names of what was recorded.

    The actions have a row less than all else: row t led from step t to step t + 1. `progress` is
    called at each step with how many episodes have ended.
    """
    ended = 0
    frames: list[Mapping[str, np.ndarray]] = []
    actions: list[np.ndarray] = []
    for action, timestep in evaluator.steps({kind: side.player for kind, side in sides.items()}):
        if frames and action is not None:
            actions.append(action)
        own = {"reward": timestep.reward.copy(), "return": timestep.episode_return.copy()}
        frames.append({**recorder.record(pool, 0, timestep), **own})
        if (timestep.terminated | timestep.truncated).all():
            tracks = {name: encoded([frame[name] for frame in frames]) for name in frames[0]}
            yield {"steps": len(frames), "tracks": {**tracks, "action": encoded(actions)}}
            frames, actions, ended = [], [], ended + 1
            if ended == episodes:
                return
        progress(ended)


def _about(side: Side, seed: int) -> str:
    return f"version {side.source['version']}, {side.source['env_steps']:,} env steps, seed {seed}"
