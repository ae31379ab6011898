"""Recorded episodes of the reference environment, and the worlds they were recorded in.

A recording is an .npz file without pickled objects. Its arrays are time-major: `state/*` and
`obs/*` have T + 1 rows, before each step and after the last; `action/*`, `reward`, `done`,
`obj_grabbed`, `locked/<i>` and `which_locked/<i>` have T rows, after each step. `model/*` are
MuJoCo's arrays of the world, and `meta` is JSON: the configuration, and the names of bodies and
geoms.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from srl.core.errors import UserError
from srl.envs.hide_and_seek.config import HideAndSeek

_PLAYED = {"grab_selective": False, "n_substeps": 15, "n_lidar_per_agent": 30, "n_food": 0}
"""The settings that a recording has to have been played with."""
# A damaged header may also ask for what zipfile lacks, which is a RuntimeError.
_DAMAGED = (ValueError, TypeError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
_NEEDED = ("n_hiders", "n_seekers", "horizon", "prep_fraction", "rew_type")
_RULES = ("lock_type", "lock_out_of_vision", "grab_out_of_vision", "grab_exclusive")


@dataclass(frozen=True)
class Recording:
    """One episode of T steps, with A agents and O objects: boxes, then ramps."""

    path: Path
    arrays: dict[str, np.ndarray]
    config: dict[str, Any]
    names: dict[str, list[str]]
    lock_groups: list[str]

    @staticmethod
    def load(path: Path) -> Recording:
        """Reads a file.

        Raises:
            UserError: It is no recording, lacks an array, has one of a wrong length, or was played
                by rules that are not known here.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            meta = json.loads(arrays.pop("meta").tobytes())
            config, names = {**meta["config"]}, {**meta["names"]}
            fields = config, names, [*meta["lock_prefix"]]
            lacking = {*_RULES, *_NEEDED} - {*config} or {"body"} - {*names}
            if lacking:
                raise ValueError(f"it does not tell {', '.join(sorted(lacking))}")
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror or error}") from error
        except KeyError as error:
            raise UserError(
                f"{path} is no recording of hide-and-seek: it has no {error}"
            ) from error
        except _DAMAGED as error:
            told = str(error)
            why = "it is not an .npz file" if "pickle" in told else " ".join(told.split())
            raise UserError(f"{path} is no recording of hide-and-seek: {why}") from error
        recording = Recording(path, arrays, *fields)
        recording._check()
        return recording

    def _check(self) -> None:
        for name, expected in _PLAYED.items():
            given = self.config.get(name, expected)
            if given != expected:
                raise UserError(
                    f"{self.path} was played with {name}={given!r}; expected {expected!r}"
                )
        if self.config.get("scenario") not in ("quadrant", "randomwalls"):
            raise UserError(
                f"{self.path} is of the scenario {self.config.get('scenario')!r}; expected "
                "'quadrant' or 'randomwalls'"
            )
        shapes = {
            **{f"state/{name}": (self.steps + 1, 4 * self.things) for name in ("qpos", "qvel")},
            **{f"obs/{name}": (self.steps + 1, self.agents) for name in ("observation_self",)},
            "action/action_movement": (self.steps, self.agents, 3),
            "action/action_pull": (self.steps, self.agents),
            "action/action_glueall": (self.steps, self.agents),
            "done": (self.steps,),
            "obj_grabbed": (self.steps, self.agents, self.things - self.agents),
            **{f"locked/{i}": (self.steps,) for i in range(len(self.lock_groups))},
            **{f"which_locked/{i}": (self.steps,) for i in range(len(self.lock_groups))},
        }
        for name, shape in shapes.items():
            given = self[name].shape
            if given[: len(shape)] != shape:
                raise UserError(f"{self.path}: {name} has the shape {given}, expected {shape}")

        for name in ("state/qpos", "state/qvel"):
            if not np.isfinite(self[name]).all():
                raise UserError(f"{self.path}: {name} has numbers that are not finite")

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.arrays:
            raise UserError(f"{self.path} has no array {name!r}")
        return self.arrays[name]

    @cached_property
    def steps(self) -> int:
        """T."""
        return len(self["reward"])

    @cached_property
    def agents(self) -> int:
        """A."""
        return int(self.config["n_hiders"]) + int(self.config["n_seekers"])

    @cached_property
    def boxes(self) -> int:
        """The number of boxes."""
        return len(self.bodies("moveable_box"))

    @cached_property
    def things(self) -> int:
        """Agents, boxes and ramps."""
        return self.agents + self.boxes + len(self.bodies("ramp"))

    @property
    def observed(self) -> list[str]:
        """The keys of an observation."""
        return [name[len("obs/") :] for name in self.arrays if name.startswith("obs/")]

    @cached_property
    def actions(self) -> np.ndarray:
        """int32 [T, A, 5], as the environment takes them."""
        moves = self["action/action_movement"]
        presses = [self[f"action/action_{name}"][..., None] for name in ("pull", "glueall")]
        return np.concatenate([moves, *presses], axis=-1).astype(np.int32)

    @cached_property
    def locked(self) -> np.ndarray:
        """Locks after each step, bool [T, L]; lockable objects are the first L of all."""
        return self._of_locks("locked")

    @cached_property
    def last_locker(self) -> np.ndarray:
        """The agent whose team may unlock an object, int [T, L]."""
        return self._of_locks("which_locked")

    def _of_locks(self, name: str) -> np.ndarray:
        order = sorted(range(len(self.lock_groups)), key=lambda i: self.lock_groups[i] != "")
        return np.concatenate([self[f"{name}/{i}"] for i in order], axis=1)

    def bodies(self, prefix: str) -> list[int]:
        """The bodies whose name begins so."""
        return [i for i, name in enumerate(self.names["body"]) if name.startswith(prefix)]

    def geoms(self, body: int) -> np.ndarray:
        """The geoms of a body."""
        return np.flatnonzero(self["model/geom_bodyid"] == body)

    @cached_property
    def walls(self) -> np.ndarray:
        """[W, 5]: x, y, half sizes along x and y, height."""
        rows = []
        for body in self.bodies("wall"):
            geom = self.geoms(body)[0]
            center = self["model/body_pos"][body] + self["model/geom_pos"][geom]
            half = self["model/geom_size"][geom]
            rows.append([*center[:2], *half[:2], 2 * half[2]])
        return np.array(rows)

    @cached_property
    def box_sizes(self) -> np.ndarray:
        """[boxes, 3]: full sizes along x, y, z."""
        geoms = [self.geoms(body)[0] for body in self.bodies("moveable_box")]
        return 2 * self["model/geom_size"][geoms]

    def environment(self) -> HideAndSeek:
        """The game it was played in, without sleep, as the reference has none."""
        config = self.config
        return HideAndSeek(
            scenario="full" if config["scenario"] == "randomwalls" else "quadrant",
            hiders=config["n_hiders"],
            seekers=config["n_seekers"],
            horizon=config["horizon"],
            prep_fraction=config["prep_fraction"],
            reward_type=config["rew_type"],
            sleep=False,
            **{name: config[name] for name in _RULES},
        )
