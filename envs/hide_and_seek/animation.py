"""Hide-and-seek from above as one SVG file that moves: a film for pages that show pictures only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from srl.core.types import Timestep
from srl.envs.hide_and_seek.drawing import INK, WHITE
from srl.envs.hide_and_seek.scene import (
    AGENT_RADIUS,
    CYLINDER_COLOR,
    FOOD_COLOR,
    FOOD_SIZE,
    LOCK_SHARE,
    RAMP_SIZE,
    SEEKERS,
    SITE_COLOR,
    SITE_SIZE,
    TEAM_COLORS,
    Color,
    Scene,
    mixed,
)

_UNIT = 100  # of the picture, for each metre: a centimetre is as exact as anyone sees
_MARGIN, _CAPTION = 0.35, 0.6  # metres around the floor, and above it
_STEPS_PER_SECOND = 10.0
_LAST_STEPS = 10  # for which the end stands still
_RAYS = 13  # of a vision cone, whose length in metres is
_VIEW_LENGTH = 1.1
_GROUND, _FLOOR, _WALL = (206, 211, 217), (238, 240, 242), (84, 92, 104)


class GameAnimation:
    """Collects the steps of an episode; `text` gives the film."""

    def __init__(self) -> None:
        self._scenes: list[Scene] = []

    def add(self, pool: Any, env_id: int, timestep: Timestep) -> None:
        """Takes the next step of an environment; at the end of the episode the film waits.

        Args:
            pool: Of hide-and-seek.
            env_id: The environment.
            timestep: The pool's last.
        """
        scene = Scene.at(pool, env_id, timestep)[0]
        ended = bool((timestep.terminated | timestep.truncated).all())
        self._scenes += [scene] * (1 + ended * _LAST_STEPS)

    def text(self) -> str:
        """The SVG file; what stands still is written once."""
        return _Film(self._scenes).text()


class _Film:
    """The parts of the picture, of scenes that have the same things."""

    def __init__(self, scenes: Sequence[Scene]) -> None:
        self.scenes, self.first = scenes, scenes[0]
        self.size = self.first.floor_size
        self.seconds = f"{len(scenes) / _STEPS_PER_SECOND:g}s"

    def text(self) -> str:
        width = round((self.size + 2 * _MARGIN) * _UNIT)
        height = width + round(_CAPTION * _UNIT)
        origin = round(_MARGIN * _UNIT)
        items = range(len(self.first.objects))
        agents = range(len(self.first.agents))
        world = [
            _shape("rect", width=self._length(self.size), height=self._length(self.size))
            + f' fill="{_hex(_FLOOR)}"/>',
            *self._sites(),
            *(self._cone(agent) for agent in agents),
            *self._cylinders(),
            *(self._item(item) for item in items),
            *self._walls(),
            *self._food(),
            *self._sightings(),
            *(self._agent(agent) for agent in agents),
        ]
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
                'font-family="Helvetica, Arial, sans-serif">',
                f'<rect width="{width}" height="{height}" fill="{_hex(_GROUND)}"/>',
                *self._caption(width),
                f'<g transform="translate({origin} {height - width + origin})">',
                *world,
                "</g>",
                "</svg>",
                "",
            ]
        )

    def _caption(self, width: int) -> Iterable[str]:
        height = round(_CAPTION * _UNIT)
        yield f'<rect width="{width}" height="{height}" fill="#fff"/>'
        seeking = [not scene.in_preparation for scene in self.scenes]
        if not self.first.is_game:
            yield from self._progress(width)
            return
        middle, text = height * 0.62, f'font-size="{height * 0.45:g}" fill="{_hex(INK)}"'
        for title, shown in (("Preparation", np.invert(seeking)), ("Seeking", seeking)):
            fade = self._switched("opacity", shown)
            yield f'<text x="16" y="{middle:g}" {text}{fade[0]}>{title}{fade[1]}</text>'
        seen = np.array([scene.seen for scene in self.scenes])
        hiders, seekers = (_hex(color) for color in TEAM_COLORS)
        for word, color, shown in (("HIDDEN", hiders, ~seen), ("SEEN", seekers, seen)):
            fade = self._switched("opacity", shown)
            yield (
                f'<text x="{width - 16}" y="{middle:g}" text-anchor="end" font-weight="bold" '
                f'font-size="{height * 0.45:g}" fill="{color}"{fade[0]}>{word}{fade[1]}</text>'
            )
        yield from self._progress(width)

    def _progress(self, width: int) -> Iterable[str]:
        height = round(_CAPTION * _UNIT)
        steps = [scene.step / scene.horizon * width for scene in self.scenes]
        grow = self._moving("width", _numbers(steps))
        yield f'<rect y="{height - 5}" height="5" fill="{_hex(INK)}"{grow[0]}>{grow[1]}</rect>'

    def _cone(self, agent: int) -> str:
        outlines = []
        for scene in self.scenes:
            edge = scene.view(agent, _VIEW_LENGTH, _RAYS)
            outlines.append(self._points([scene.agents[agent, :2], *edge]))
        move = self._moving("points", outlines)
        color = _hex(TEAM_COLORS[self.first.teams[agent]])
        return f'<polygon fill="{color}" fill-opacity="0.2"{move[0]}>{move[1]}</polygon>'

    def _item(self, item: int) -> str:
        """A box or a ramp: its colour shows whose lock it has, a thick rim that it is held."""
        first = self.first
        ramp = item >= len(first.boxes)
        width, depth = (RAMP_SIZE, RAMP_SIZE) if ramp else first.boxes[item, 4:6]
        fills, rims = [], []
        for scene in self.scenes:
            team, color = scene.locking_team(item), scene.color(item)
            locked = team is not None
            fills.append(_hex(mixed(color, TEAM_COLORS[team], LOCK_SHARE) if locked else color))
            holders = scene.holders(item)
            holder = TEAM_COLORS[scene.teams[holders[0]]] if holders else mixed(color, INK, 0.5)
            rims.append(_hex(holder))
        fill, rim = self._switching("fill", fills), self._switching("stroke", rims)
        w, d = self._length(width), self._length(depth)
        slope = (
            f'<path d="M{-w * 0.4:g} {d * 0.4:g}H{w * 0.4:g}M0 {-d * 0.35:g}V{d * 0.25:g}" '
            f'stroke="{_hex(INK)}" stroke-width="3"/>'
            if ramp
            else ""
        )
        body = (
            f'<rect x="{-w / 2:g}" y="{-d / 2:g}" width="{w}" height="{d}" stroke-width="4"'
            f"{fill[0]}{rim[0]}>{fill[1]}{rim[1]}</rect>{slope}"
        )
        poses = np.array([scene.objects[item] for scene in self.scenes])
        return self._placed(poses[:, :2], poses[:, 3], body)

    def _walls(self) -> Iterable[str]:
        for x, y, half_x, half_y, _ in self.first.walls:
            yield (
                _shape(
                    "rect",
                    x=self._length(x - half_x),
                    y=self._length(self.size - y - half_y),
                    width=self._length(2 * half_x),
                    height=self._length(2 * half_y),
                )
                + f' fill="{_hex(_WALL)}"/>'
            )

    def _sites(self) -> Iterable[str]:
        side = self._length(SITE_SIZE)
        for x, y in self._place(self.first.sites) - side / 2:
            place = _shape("rect", x=f"{x:.0f}", y=f"{y:.0f}", width=side, height=side)
            yield f'{place} fill="{_hex(SITE_COLOR)}" fill-opacity="0.4"/>'

    def _cylinders(self) -> Iterable[str]:
        for x, y, radius in self.first.cylinders:
            (x, y), r = self._place(np.array([x, y])), self._length(radius)
            yield _shape("circle", cx=f"{x:.0f}", cy=f"{y:.0f}", r=r) + (
                f' fill="{_hex(CYLINDER_COLOR)}"/>'
            )

    def _food(self) -> Iterable[str]:
        """A disc for each piece, the smaller the less is left."""
        for piece, (x, y, *_) in enumerate(self.first.food):
            x, y = self._place(np.array([x, y]))
            left = [scene.food[piece, 3] * FOOD_SIZE * _UNIT for scene in self.scenes]
            shrink = self._moving("r", _numbers(left))
            color = _hex(FOOD_COLOR)
            place = _shape("circle", cx=f"{x:.0f}", cy=f"{y:.0f}", fill=color)
            yield f"{place}{shrink[0]}>{shrink[1]}</circle>"

    def _sightings(self) -> Iterable[str]:
        """A dashed line from each seeker to each hider, while it sees it."""
        pairs = sorted({pair for scene in self.scenes for pair in scene.sightings()})
        for pair in pairs:
            seen = self._switched("opacity", [pair in scene.sightings() for scene in self.scenes])
            ends = np.array([self._place(scene.agents[list(pair), :2]) for scene in self.scenes])
            moves = [
                self._moving(name, _numbers(ends[:, end, axis]))
                for end, axis, name in ((0, 0, "x1"), (0, 1, "y1"), (1, 0, "x2"), (1, 1, "y2"))
            ]
            fixed, changing = ("".join(parts) for parts in zip(seen, *moves, strict=True))
            color = _hex(TEAM_COLORS[SEEKERS])
            yield (
                f'<line stroke="{color}" stroke-width="3" stroke-dasharray="9 7"{fixed}>'
                f"{changing}</line>"
            )

    def _agent(self, agent: int) -> str:
        """A disc with two eyes."""
        color = TEAM_COLORS[self.first.teams[agent]]
        radius = round(AGENT_RADIUS * _UNIT)
        body = (
            f'<circle r="{radius}" fill="{_hex(color)}" stroke="{_hex(mixed(color, INK, 0.5))}"/>'
            f'<circle cx="-6" cy="8" r="5" fill="{_hex(WHITE)}"/>'
            f'<circle cx="6" cy="8" r="5" fill="{_hex(WHITE)}"/>'
            '<circle cx="-6" cy="10" r="2.6"/><circle cx="6" cy="10" r="2.6"/>'
        )
        poses = np.array([scene.agents[agent] for scene in self.scenes])
        return self._placed(poses[:, :2], poses[:, 3], body)

    # ---- places and movements ----

    def _placed(self, centers: np.ndarray, angles: np.ndarray, body: str) -> str:
        """A body that is moved and turned about its centre; y points up in the world."""
        places = [f"{x:.0f} {y:.0f}" for x, y in self._place(centers)]
        turns = [f"{-angle:.0f}" for angle in np.degrees(np.unwrap(angles))]
        return self._transformed("translate", places, self._transformed("rotate", turns, body))

    def _transformed(self, kind: str, values: Sequence[str], body: str) -> str:
        if len(set(values)) == 1:
            return f'<g transform="{kind}({values[0]})">{body}</g>'
        return (
            f'<g><animateTransform attributeName="transform" type="{kind}" dur="{self.seconds}" '
            f'repeatCount="indefinite" values="{";".join(values)}"/>{body}</g>'
        )

    def _moving(self, name: str, values: Sequence[str], mode: str = "") -> tuple[str, str]:
        """An attribute that changes with the steps: what the tag has, and what is inside of it."""
        if len(set(values)) == 1:
            return f' {name}="{values[0]}"', ""
        return "", (
            f'<animate attributeName="{name}" dur="{self.seconds}" repeatCount="indefinite"'
            f'{mode} values="{";".join(values)}"/>'
        )

    def _switching(self, name: str, values: Sequence[str]) -> tuple[str, str]:
        """Gives what `_moving` does, without steps between the values; only changes are written."""
        starts = [0, *(i for i in range(1, len(values)) if values[i] != values[i - 1])]
        times = ";".join(f"{start / len(values):.4g}" for start in starts)
        mode = f' calcMode="discrete" keyTimes="{times}"'
        return self._moving(name, [values[start] for start in starts], mode)

    def _switched(self, name: str, on: Iterable[bool]) -> tuple[str, str]:
        return self._switching(name, [str(int(shown)) for shown in on])

    def _place(self, points: np.ndarray) -> np.ndarray:
        """Points [..., 2] of the world, in the picture's units."""
        return np.stack([points[..., 0], self.size - points[..., 1]], -1) * _UNIT

    def _points(self, points: Sequence[np.ndarray]) -> str:
        return " ".join(f"{x:.0f},{y:.0f}" for x, y in self._place(np.array(points)))

    def _length(self, metres: float) -> int:
        return round(float(metres) * _UNIT)


def _numbers(values: Iterable[float]) -> list[str]:
    return [f"{value:.0f}" for value in values]


def _shape(tag: str, **attributes: Any) -> str:
    return f"<{tag} " + " ".join(f'{name}="{value}"' for name, value in attributes.items())


def _hex(color: Color) -> str:
    return "#{:02x}{:02x}{:02x}".format(*color)
