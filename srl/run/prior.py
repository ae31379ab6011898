"""The copy of prior data that a run makes when it begins; it reads nothing else of them later."""

from __future__ import annotations

import importlib
import math
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from srl.config.experiment import Experiment
from srl.core.errors import UserError
from srl.core.optional_packages import install_command
from srl.core.tree import map_tree
from srl.record import array_file
from srl.record.array_file import named_leaves
from srl.record.block_files import Blocks
from srl.record.checkpoint import Checkpoints
from srl.record.prior import ANY_POLICY, PriorFiles, write_list
from srl.record.run_record import RunFolder, find_run, read_config

_MINARI = "minari:"
_ALIKE = ("rewards", "reward_scale", "frame_stack")
"""Settings that change what a replay holds."""


def copy_prior(folder: RunFolder, experiment: Experiment) -> None:
    """Copies the prior data that a new run asks for.

    Raises:
        UserError: If there are none, or they are not of this experiment's form.
        OSError: If the copy cannot be written.
    """
    prior = getattr(experiment.algorithm, "prior", "")
    if not prior:
        return
    folder.prior.mkdir()
    if prior.startswith(_MINARI):
        listed = _from_minari(folder.prior, prior.removeprefix(_MINARI), experiment)
    else:
        listed = _from_run(folder.prior, prior, experiment)
    write_list(folder.prior, listed)


def _from_run(folder: Path, given: str, experiment: Experiment) -> PriorFiles:
    """Links the files of another run's newest replay, or copies them to another disk."""
    path = find_run(Path(given), trained=True).path
    whole = read_config(RunFolder(path))["experiment"]
    recorded = whole.get("algorithm") or {}
    checkpoints = Checkpoints(path / "checkpoints")
    files = checkpoints.replay_files()
    if not files:
        raise UserError(
            f"algorithm.prior: the newest checkpoint of {path} holds no replay; give a run of SAC, "
            "TD3, DQN, DiscreteSAC or R2D2, with keep_replay"
        )
    alike = {name: getattr(experiment.settled_algorithm, name) for name in _ALIKE}
    recorded = {**recorded, "team_reward": whole.get("team_reward") or {}}
    alike["team_reward"] = dict(experiment.team_reward)
    for name, here in alike.items():
        there = recorded.get(name)
        if there != here:
            raise UserError(
                f"algorithm.prior: the replay of {path} was made with {name}={there!r}, and this "
                f"run has {name}={here!r}; give both runs the same"
            )
    for name in files:
        source = checkpoints.replay_folder / name
        try:
            os.link(source, folder / name)
        except FileNotFoundError:
            raise UserError(
                f"algorithm.prior: {source} is not there; if {path} still trains, try again"
            ) from None
        except OSError:  # another disk, or one without links
            shutil.copyfile(source, folder / name)
    return PriorFiles(files, f"the replay of {path}", raw=False)


def _from_minari(folder: Path, dataset_id: str, experiment: Experiment) -> PriorFiles:
    """Writes a data set's episodes, one after the other, as unrolls of one slot."""
    if experiment.settled_algorithm.frame_stack > 1:
        raise UserError(
            f"algorithm.prior={_MINARI}{dataset_id} with frame_stack="
            f"{experiment.settled_algorithm.frame_stack}: a data set holds single observations; "
            "leave out frame_stack, or give a run"
        )
    steps = math.gcd(*(unrolled.length for unrolled in experiment.graph.unrolls))
    rows = _episodes(dataset_id)
    if not rows:
        raise UserError(f"algorithm.prior: the data set {dataset_id} has no episodes")
    unrolls = _unrolls(map_tree(lambda *x: np.concatenate(x), *rows), steps)
    arrays = {
        f"{ANY_POLICY}/{name}": np.ascontiguousarray(x) for name, x in named_leaves(unrolls).items()
    }
    name = Blocks(0, len(unrolls["reward"]), 0, 1).name
    checksum = array_file.write(folder / name, arrays, {})
    return PriorFiles({name: checksum}, f"the data set {dataset_id}", raw=True)


def _episodes(dataset_id: str) -> list[dict[str, Any]]:
    """Reads the rows of each episode of a data set."""
    try:
        minari = importlib.import_module("minari")
    except ImportError:
        raise UserError(
            f"algorithm.prior={_MINARI}{dataset_id} needs the package minari: "
            f"{install_command('minari')}"
        ) from None
    try:
        return list(map(_rows, minari.load_dataset(dataset_id).iterate_episodes()))
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise UserError(
            f"algorithm.prior: the data set {dataset_id} cannot be read "
            f"({' '.join(str(error).split())}); `minari list local` shows those that are here, and "
            f"`minari download {dataset_id}` gets it"
        ) from None


def _rows(episode: Any) -> dict[str, Any]:
    """The rows of an episode: one more than its steps, with a last action that counts not."""
    ends = np.zeros((2, len(episode.rewards) + 1), bool)
    ends[:, 1:] = episode.terminations, episode.truncations
    ends[1, -1] |= not ends[0, -1]  # recording ended there
    return {
        "observation": map_tree(np.asarray, episode.observations),
        "reward": np.concatenate([[0.0], episode.rewards]).astype(np.float32),
        "terminated": ends[0],
        "truncated": ends[1],
        "action": map_tree(lambda x: np.concatenate([x, x[-1:]]), episode.actions),
    }


def _unrolls(rows: dict[str, Any], steps: int) -> dict[str, Any]:
    """Cuts rows into unrolls of one slot, [P, steps + 1, 1, ...]; ended rows fill the last."""
    count = len(rows["reward"])
    blocks = max(1, -(-(count - 1) // steps))
    place = np.arange(blocks)[:, None] * steps + np.arange(steps + 1)

    def cut(x: np.ndarray) -> np.ndarray:
        return x[np.minimum(place, count - 1)][:, :, None]

    unrolls = map_tree(cut, rows)
    update = np.arange(blocks, dtype=np.int32)[:, None, None]
    return {**unrolls, "action": map_tree(lambda x: x[:, :-1], unrolls["action"]), "update": update}
