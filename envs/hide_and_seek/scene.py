"""The looks of a game at one step, for drawing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from srl.core.types import Timestep
from srl.envs.hide_and_seek.tasks import Task

HIDERS, SEEKERS = 0, 1
TEAM_NAMES = ("hiders", "seekers")

TASKS: tuple[str, ...] = get_args(Task)
"""The tasks, by the number that the environment gives."""

Color = tuple[int, int, int]

TEAM_COLORS: tuple[Color, Color] = ((38, 108, 228), (222, 48, 44))
CUBE_COLOR: Color = (158, 110, 66)
LONG_BOX_COLOR: Color = (226, 150, 62)
RAMP_COLOR: Color = (240, 206, 66)
SITE_COLOR: Color = (52, 160, 110)
CYLINDER_COLOR: Color = (170, 150, 196)
FOOD_COLOR: Color = (96, 190, 62)

LOCK_SHARE = 0.72
"""The share of the locking team's colour in a locked object."""

AGENT_RADIUS = 0.15
SITE_SIZE = 0.5
FOOD_SIZE = 0.1
INNER_WALL_HEIGHT = 0.5
RAMP_SIZE = 0.5
CYLINDER_HEIGHT = 0.5
HALF_VIEW_ANGLE = 3 / 8 * np.pi


@dataclass(frozen=True)
class Scene:
    """One step of one game. Objects are numbered: boxes, then ramps."""

    agents: np.ndarray
    """x, y, z of the centre and the angle, [A, 4]."""
    boxes: np.ndarray
    """x, y, z of the centre, the angle, and the three sizes, [B, 7]."""
    ramps: np.ndarray
    """x, y, z of the centre and the angle, [R, 4]."""
    walls: np.ndarray
    """x, y of the centre, half of the size along x and y, and the height, [W, 5]."""
    teams: np.ndarray
    """The team of each agent, 0 for hiders and 1 for seekers, [A]."""
    sees: np.ndarray
    """True where agent i sees agent j, [A, A]."""
    locked_by: np.ndarray
    """The agent that locked each object, -1 if it is not locked, [B + R]."""
    grabbed: np.ndarray
    """The object that each agent holds, -1 without one, [A]."""
    floor_size: float
    step: int
    preparation_steps: float
    horizon: int
    seen: bool
    """True if a seeker sees a hider."""
    rewards: np.ndarray
    """The rewards of the last step, [A]."""
    returns: np.ndarray
    """The returns of the episode so far, [A]."""
    task: str
    """One of TASKS."""
    sites: np.ndarray
    """x, y of the centres of the squares to be built on, [S, 2]."""
    cylinders: np.ndarray
    """x, y of the centre, and the radius, [C, 3]."""
    food: np.ndarray
    """x, y, z, and the share that is left, [F, 4]."""

    @staticmethod
    def at(
        pool: Any, env_id: int, timestep: Timestep
    ) -> tuple[Scene, Mapping[str, np.ndarray], slice]:
        """The scene of an environment as it stands, what it was read from, and its slots.

        Args:
            pool: Of hide-and-seek.
            env_id: The environment.
            timestep: The pool's last.
        """
        numbers = pool.inspect(env_id)
        agents = len(pool.specs.agents)
        slots = slice(env_id * agents, (env_id + 1) * agents)
        rewards, returns = timestep.reward[slots], timestep.episode_return[slots]
        return Scene.of(numbers, rewards, returns), numbers, slots

    @staticmethod
    def of(numbers: Mapping[str, np.ndarray], rewards: np.ndarray, returns: np.ndarray) -> Scene:
        """Reads what the environment reports of itself.

        Args:
            numbers: What the pool's `inspect` gives.
            rewards: Of each agent, [A].
            returns: Of each agent so far, [A].
        """

        def rows(name: str, columns: int) -> np.ndarray:
            return np.asarray(numbers.get(name, ())).reshape(-1, columns)

        food = rows("food", 4).copy()
        food[:, 3] /= numbers.get("food_health", np.ones(1))
        agents = rows("agents", 4)
        count = len(agents)
        sees = np.zeros((count, count), bool)
        for agent, row in enumerate(numbers["mask_agents"].reshape(count, count - 1)):
            for place, seen in enumerate(row):
                sees[agent, (agent - 1 - place) % count] = bool(seen)
        return Scene(
            agents=agents,
            boxes=rows("boxes", 7),
            ramps=rows("ramps", 4),
            walls=rows("walls", 5),
            teams=numbers["teams"].astype(int),
            sees=sees,
            locked_by=numbers["locked_by"].astype(int),
            grabbed=numbers["grabbed"].astype(int),
            floor_size=float(numbers["floor_size"][0]),
            step=int(numbers["step"][0]),
            preparation_steps=float(numbers["prep_steps"][0]),
            horizon=int(numbers["horizon"][0]),
            seen=bool(numbers["seen"][0]),
            rewards=np.asarray(rewards),
            returns=np.asarray(returns),
            task=TASKS[int(numbers["task"][0])],
            sites=rows("sites", 2),
            cylinders=rows("cylinder", 3),
            food=food,
        )

    @property
    def in_preparation(self) -> bool:
        """True if the last action, or the first, is of the preparation, where seekers rest."""
        return self.is_game and max(self.step - 1, 0) < self.preparation_steps

    @property
    def is_game(self) -> bool:
        """True for hide and seek, false for the tasks of a single agent."""
        return self.task == TASKS[0]

    @property
    def enclosed(self) -> bool:
        """True if there are walls around the floor; they are higher than those of the rooms."""
        return bool((self.walls[:, 4] > INNER_WALL_HEIGHT).any())

    @property
    def objects(self) -> np.ndarray:
        """x, y, z of the centre and the angle of boxes and ramps, [B + R, 4]."""
        return np.concatenate([self.boxes[:, :4], self.ramps])

    def locking_team(self, item: int) -> int | None:
        """The team that locked an object."""
        locker = self.locked_by[item]
        return None if locker < 0 else int(self.teams[locker])

    def holders(self, item: int) -> list[int]:
        """The agents that hold an object."""
        return [int(agent) for agent in np.flatnonzero(self.grabbed == item)]

    def facing(self, agent: int) -> np.ndarray:
        """Gives the direction in which an agent looks, a unit vector [2]."""
        angle = self.agents[agent, 3]
        return np.array([np.sin(angle), -np.cos(angle)])

    def view(self, agent: int, length: float, count: int = 49) -> np.ndarray:
        """Gives the end of an agent's field of view on the floor, from right to left, [count, 2].

        It reaches `length` metres, and less far where something stands in the way that is higher
        than the agent's centre, from which lines of sight start in the game.
        """
        eye, height = self.agents[agent, :2], self.agents[agent, 2]
        facing = self.facing(agent)
        turns = np.linspace(-HALF_VIEW_ANGLE, HALF_VIEW_ANGLE, count)
        angles = np.arctan2(facing[1], facing[0]) + turns
        rays = np.stack([np.cos(angles), np.sin(angles)], 1)
        reach = np.full(count, float(length))
        for x, y, angle, half_x, half_y, top in self._obstacles():
            if height < top:
                half = np.array([half_x, half_y])
                reach = np.minimum(reach, _into_rectangle(eye - (x, y), rays, angle, half))
        if height < CYLINDER_HEIGHT:
            for x, y, radius in self.cylinders:
                reach = np.minimum(reach, _into_circle(eye - (x, y), rays, radius))
        return eye + reach[:, None] * rays

    def _obstacles(self) -> np.ndarray:
        """The obstacles to sight: x, y, angle, half of both sides, top; no cylinders, [N, 6]."""
        walls, boxes, ramps = self.walls, self.boxes, self.ramps
        straight, half = np.zeros(len(walls)), np.full(len(ramps), RAMP_SIZE / 2)
        return np.concatenate(
            [
                np.stack([*walls[:, :2].T, straight, *walls[:, 2:5].T], 1),
                np.stack(
                    [*boxes[:, (0, 1, 3)].T, *boxes[:, 4:6].T / 2, boxes[:, 2] + boxes[:, 6] / 2], 1
                ),
                np.stack([*ramps[:, (0, 1, 3)].T, half, half, ramps[:, 2] + half], 1),
            ]
        )

    def sightings(self) -> list[tuple[int, int]]:
        """The pairs of a seeker and a hider that it sees."""
        pairs = np.argwhere(self.sees)
        return [
            (int(a), int(b))
            for a, b in pairs
            if self.teams[a] == SEEKERS and self.teams[b] == HIDERS
        ]

    def color(self, item: int) -> Color:
        """The natural colour of an object."""
        if item >= len(self.boxes):
            return RAMP_COLOR
        size = self.boxes[item, 4:6]
        return CUBE_COLOR if size[0] == size[1] else LONG_BOX_COLOR


def _into_rectangle(
    start: np.ndarray, rays: np.ndarray, angle: float, half: np.ndarray
) -> np.ndarray:
    """Gives the lengths of rays until they enter a rectangle, else infinity, [N].

    Args:
        start: Of all rays, from the rectangle's centre, [2]; rays from inside do not enter it.
        rays: Their directions, [N, 2].
        angle: By which the rectangle is turned.
        half: Of its sides, [2].
    """
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    start, rays = start @ turn, rays @ turn
    with np.errstate(divide="ignore", invalid="ignore"):  # along a side
        ends = np.stack([(-half - start) / rays, (half - start) / rays])
    enter, leave = ends.min(0).max(1), ends.max(0).min(1)
    return np.where((enter > 0) & (enter <= leave), enter, np.inf)


def _into_circle(start: np.ndarray, rays: np.ndarray, radius: float) -> np.ndarray:
    """Gives the lengths of rays until they enter a circle; otherwise as `_into_rectangle`."""
    nearest = -(rays @ start)  # the way to the point that is nearest to the centre
    with np.errstate(invalid="ignore"):  # NaN for rays that miss it
        enter = nearest - np.sqrt(radius**2 - start @ start + nearest**2)
    return np.where(enter > 0, enter, np.inf)


def mixed(color: Color, other: Color, share: float) -> Color:
    """A colour with a share of another."""
    red, green, blue = (
        round((1 - share) * a + share * b) for a, b in zip(color, other, strict=True)
    )
    return red, green, blue
