"""The game as a page in a browser shows it; the page's script is `watch.js`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from srl.envs.hide_and_seek.scene import Scene
from srl.types import Timestep

_MASKS = ("mask_ab_obs", "mask_ar_obs")


class GameRecorder:
    """Where everything is, and what each agent observes."""

    script = Path(__file__).with_name("watch.js")

    def record(self, pool: Any, env_id: int, timestep: Timestep) -> Mapping[str, np.ndarray]:
        """The numbers of one step, for A agents, B boxes, R ramps and W walls.

        Args:
            pool: Of hide-and-seek.
            env_id: The environment.
            timestep: The pool's last.
        """
        numbers = pool.inspect(env_id)
        agents = len(pool.specs.agents)
        slots = slice(env_id * agents, (env_id + 1) * agents)
        scene = Scene.of(numbers, timestep.reward[slots], timestep.episode_return[slots])
        observation = {key: value[slots] for key, value in timestep.observation.items()}
        boxes = len(scene.boxes)
        objects = [observation[key] for key in _MASKS]
        things = np.concatenate([scene.sees, objects[0][:, :boxes], objects[1]], 1)
        return {
            "agents": scene.agents,
            "boxes": scene.boxes,
            "ramps": scene.ramps,
            "walls": scene.walls,
            "teams": scene.teams,
            "locked_by": scene.locked_by,
            "grabbed": scene.grabbed,
            # A bit for each agent, then box, then ramp that the agent sees, [A].
            "sees": things.astype(np.int64) @ (1 << np.arange(things.shape[1])),
            "seen": np.array([scene.seen], int),
            "lidar": observation["lidar"].reshape(agents, -1),
            # x, y, z, angle, their velocities, whether it is a hider, progress of the preparation.
            "observed": observation["observation_self"],
            "floor_size": np.array([scene.floor_size]),
            "preparation_steps": np.array([scene.preparation_steps]),
        }
