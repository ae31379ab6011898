"""The game as a page in a browser shows it; the page's script is `watch.js`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from srl.core.types import Timestep
from srl.envs.hide_and_seek.scene import Scene


class GameRecorder:
    """Records the place of everything, and the observations of each agent."""

    script = Path(__file__).with_name("watch.js")

    def record(self, pool: Any, env_id: int, timestep: Timestep) -> Mapping[str, np.ndarray]:
        """The numbers of one step, for A agents, B boxes, R ramps and W walls.

        Sites, cylinders and food are there where the environment reports them.

        Args:
            pool: Of hide-and-seek.
            env_id: The environment.
            timestep: The pool's last.
        """
        scene, numbers, slots = Scene.at(pool, env_id, timestep)
        agents = len(scene.agents)
        observation = {key: value[slots] for key, value in timestep.observation.items()}

        def rows(name: str, columns: int) -> np.ndarray:
            return np.asarray(numbers.get(name, ())).reshape(-1, columns)

        # Masks have rows for things that are not there, too.
        boxes = observation["mask_ab_obs"][:, : len(scene.boxes)]
        ramps = observation["mask_ar_obs"][:, : len(scene.ramps)]
        food = rows("food", 4)
        return {
            "agents": scene.agents,
            "boxes": scene.boxes,
            "ramps": scene.ramps,
            "walls": scene.walls,
            "teams": scene.teams,
            "locked_by": scene.locked_by,
            "grabbed": scene.grabbed,
            # A bit for each agent, then box, then ramp that the agent sees, [A].
            "sees": _bits(scene.sees, boxes, ramps),
            "sees_food": _bits(observation.get("mask_af_obs", np.zeros((agents, 0)))),
            "seen": np.array([scene.seen], int),
            # Metres, where observations may have them compressed.
            "rays": rows("lidar", len(numbers["lidar"]) // agents),
            # x, y, z, angle, their velocities, whether it is a hider, progress of the preparation.
            "observed": observation["observation_self"],
            "floor_size": np.array([scene.floor_size]),
            "preparation_steps": np.array([scene.preparation_steps]),
            "sites": rows("sites", 2),
            "cylinders": rows("cylinder", 3),
            # x, y, z and the share that is left.
            "food": food / np.append(np.ones(3), numbers.get("food_health", np.ones(1))),
        }


def _bits(*masks: np.ndarray) -> np.ndarray:
    """Masks [A, ...] side by side, as a whole number for each agent; the first are its low bits."""
    bits = np.concatenate(masks, 1).astype(np.int64)
    return bits @ (1 << np.arange(bits.shape[1]))
