"""Hide-and-seek from above, and the caption of every picture; needs nothing but Pillow."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from srl.envs.hide_and_seek.camera import Camera
from srl.envs.hide_and_seek.scene import (
    AGENT_RADIUS,
    CUBE_COLOR,
    CYLINDER_COLOR,
    FOOD_COLOR,
    FOOD_SIZE,
    HIDERS,
    LOCK_SHARE,
    LONG_BOX_COLOR,
    RAMP_COLOR,
    RAMP_SIZE,
    SEEKERS,
    SITE_COLOR,
    SITE_SIZE,
    TEAM_COLORS,
    TEAM_NAMES,
    Color,
    Scene,
    mixed,
)

WHITE: Color = (255, 255, 255)
INK: Color = (34, 40, 49)
_GREY: Color = (120, 128, 138)
_GROUND: Color = (206, 211, 217)
_FLOOR: Color = (238, 240, 242)
_WALL: Color = (84, 92, 104)
_CAPTION_HEIGHT = 64
_LEGEND_HEIGHT = 30
_SMOOTH = 2  # everything is drawn so many times larger, then made smaller
_MARGIN = 0.35  # metres around the floor
_OPEN_MARGIN = 1.2  # where no walls keep agents on it
_FOLLOWED_WIDTH = 3.6  # metres of the floor around an agent
_VIEW_LENGTH = 1.1  # metres of the vision cone that are shown


def draw(scene: Scene, size: int = 768, camera: Camera | None = None) -> np.ndarray:
    """The game from above, uint8 [height, width, 3].

    Args:
        scene: What is shown.
        size: Width in pixels.
        camera: Aimed at an agent, it shows a part of the game.
    """
    camera = camera or Camera()
    view = _View(scene, size, camera.place)
    view.floor()
    view.sites()
    view.cones()
    view.cylinders()
    for item in range(len(scene.objects)):
        view.item(item)
    view.walls()
    view.food()
    view.sightings()
    for agent in range(len(scene.agents)):
        view.agent(agent, marked=agent == camera.followed)
    picture = view.image.resize((size, size), Image.Resampling.LANCZOS)
    return captioned(np.asarray(picture), scene, camera.note)


class _View:
    """A picture in the making; positions are in metres."""

    def __init__(self, scene: Scene, size: int, center: np.ndarray | None = None) -> None:
        self.scene = scene
        self.image = Image.new("RGB", (size * _SMOOTH, size * _SMOOTH), _GROUND)
        self._pen = ImageDraw.Draw(self.image, "RGBA")
        self._whole = center is None
        middle = np.full(2, scene.floor_size / 2) if center is None else center
        margin = _MARGIN if scene.enclosed else _OPEN_MARGIN
        half = scene.floor_size / 2 + margin if self._whole else _FOLLOWED_WIDTH / 2
        self._low, self._high = middle - half, middle + half
        self._scale = size * _SMOOTH / (2 * half)

    def floor(self) -> None:
        end = self.scene.floor_size
        self._polygon([(0, 0), (end, 0), (end, end), (0, end)], _FLOOR)

    def sites(self) -> None:
        """The squares that boxes are to be moved onto."""
        half = SITE_SIZE / 2
        for x, y in self.scene.sites:
            corners = self._ordered([(x - half, y - half), (x + half, y + half)])
            width = round(0.04 * self._scale)
            self._pen.rectangle(corners, fill=(*SITE_COLOR, 70), outline=SITE_COLOR, width=width)

    def cylinders(self) -> None:
        for x, y, radius in self.scene.cylinders:
            self._disc(np.array([x, y]), radius, mixed(CYLINDER_COLOR, INK, 0.4))
            self._disc(np.array([x, y]), radius - 0.03, CYLINDER_COLOR)

    def food(self) -> None:
        """A disc for each piece, the smaller the less is left, in a ring that stays."""
        for x, y, _, left in self.scene.food:
            center = np.array([x, y])
            self._disc(center, FOOD_SIZE, (*FOOD_COLOR, 90))
            self._disc(center, FOOD_SIZE * left, mixed(FOOD_COLOR, INK, 0.15))

    def walls(self) -> None:
        for x, y, half_x, half_y, _ in self.scene.walls:
            corners = [(x - half_x, y - half_y), (x + half_x, y + half_y)]
            self._pen.rectangle(self._ordered(corners), fill=_WALL)

    def cones(self) -> None:
        for agent in range(len(self.scene.agents)):
            center = self.scene.agents[agent, :2]
            edge = self.scene.view(agent, _VIEW_LENGTH)
            asleep = self.scene.in_preparation and self.scene.teams[agent] == SEEKERS
            color = TEAM_COLORS[self.scene.teams[agent]]
            self._polygon([center, *edge], (*color, 22 if asleep else 52))

    def item(self, item: int) -> None:
        """A box or a ramp: its colour shows whose lock it has, a bright rim that it is held."""
        scene = self.scene
        team = scene.locking_team(item)
        color = scene.color(item)
        fill = mixed(color, TEAM_COLORS[team], LOCK_SHARE) if team is not None else color
        ramp = item >= len(scene.boxes)
        size = (RAMP_SIZE, RAMP_SIZE) if ramp else scene.boxes[item, 4:6]
        outline = self._outline(item, size)
        self._polygon(outline, fill)
        holders = scene.holders(item)
        rim, width = (mixed(fill, INK, 0.5), 0.02)
        if holders:
            rim, width = mixed(TEAM_COLORS[scene.teams[holders[0]]], WHITE, 0.35), 0.06
        self._line([*outline, outline[0]], rim, width)
        if ramp:
            self._slope(item, mixed(fill, INK, 0.55))
        if team is not None:
            self._padlock(scene.objects[item, :2], TEAM_COLORS[team])
        for agent in holders:
            color = TEAM_COLORS[scene.teams[agent]]
            self._line([scene.agents[agent, :2], scene.objects[item, :2]], color, 0.05)

    def sightings(self) -> None:
        for seeker, hider in self.scene.sightings():
            ends = [self.scene.agents[seeker, :2], self.scene.agents[hider, :2]]
            self._dashes(ends, TEAM_COLORS[SEEKERS])

    def agent(self, agent: int, marked: bool = False) -> None:
        """A disc with two eyes, with a ring if it is a hider that is seen.

        Who has left the picture of the whole game is shown at its edge.
        """
        scene, center = self.scene, self.scene.agents[agent, :2]
        if self._whole:
            edge = AGENT_RADIUS / 2
            center = np.clip(center, self._low + edge, self._high - edge)
        facing = scene.facing(agent)
        side = np.array([-facing[1], facing[0]])
        color = TEAM_COLORS[scene.teams[agent]]
        if any(hider == agent for _, hider in scene.sightings()):
            self._disc(center, AGENT_RADIUS + 0.07, (*TEAM_COLORS[SEEKERS], 110))
        asleep = scene.in_preparation and scene.teams[agent] == SEEKERS
        if marked:
            self._disc(center, AGENT_RADIUS + 0.04, INK)
            self._disc(center, AGENT_RADIUS + 0.03, WHITE)
        self._disc(center, AGENT_RADIUS + 0.012, mixed(color, INK, 0.5))
        self._disc(center, AGENT_RADIUS, mixed(color, WHITE, 0.45) if asleep else color)
        for hand in (-1, 1):
            self._disc(center + 0.085 * facing + hand * 0.062 * side, 0.048, WHITE)
            if not asleep:
                self._disc(center + 0.105 * facing + hand * 0.062 * side, 0.026, INK)

    def _outline(self, item: int, size: np.ndarray | tuple[float, float]) -> list[np.ndarray]:
        x, y = np.asarray(size) / 2
        return [self._at(item, a, b) for a, b in ((-x, -y), (x, -y), (x, y), (-x, y))]

    def _at(self, item: int, x: float, y: float) -> np.ndarray:
        """A point in the frame of an object."""
        angle = self.scene.objects[item, 3]
        cosine, sine = np.cos(angle), np.sin(angle)
        return self.scene.objects[item, :2] + [cosine * x - sine * y, sine * x + cosine * y]

    def _slope(self, item: int, color: Color) -> None:
        """An arrow up the slope, to the high edge, which is drawn thick."""
        self._line([self._at(item, 0, 0.19), self._at(item, 0, -0.12)], color, 0.03)
        head = [self._at(item, x, y) for x, y in ((-0.09, -0.06), (0, -0.18), (0.09, -0.06))]
        self._polygon(head, color)
        self._line([self._at(item, -0.25, -0.235), self._at(item, 0.25, -0.235)], color, 0.05)

    def _padlock(self, center: np.ndarray, color: Color) -> None:
        x, y = center
        box = self._ordered([(x - 0.055, y - 0.01), (x + 0.055, y + 0.115)])
        self._pen.arc(box, 180, 360, fill=WHITE, width=round(0.03 * self._scale))
        body = self._ordered([(x - 0.085, y - 0.085), (x + 0.085, y + 0.045)])
        self._pen.rounded_rectangle(body, radius=0.02 * self._scale, fill=WHITE)
        self._disc(np.array([x, y - 0.02]), 0.026, color)

    def _dashes(self, ends: list[np.ndarray], color: Color) -> None:
        start, end = ends
        length = float(np.linalg.norm(end - start))
        for along in np.arange(0, length, 0.16):
            parts = [start + (end - start) * min(a / length, 1) for a in (along, along + 0.09)]
            self._line(parts, color, 0.028)

    # ---- metres to pixels ----

    def _pixel(self, point: np.ndarray | tuple[float, float]) -> tuple[float, float]:
        x, y = point
        return float((x - self._low[0]) * self._scale), float((self._high[1] - y) * self._scale)

    def _ordered(self, corners: list[tuple[float, float]]) -> list[float]:
        (x0, y0), (x1, y1) = map(self._pixel, corners)
        return [min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)]

    def _polygon(self, points: list, color: tuple[int, ...]) -> None:
        self._pen.polygon([self._pixel(point) for point in points], fill=color)

    def _line(self, points: list, color: tuple[int, ...], width: float) -> None:
        pixels = [self._pixel(point) for point in points]
        self._pen.line(pixels, fill=color, width=max(1, round(width * self._scale)), joint="curve")

    def _disc(self, center: np.ndarray, radius: float, color: tuple[int, ...]) -> None:
        x, y = self._pixel(center)
        r = radius * self._scale
        self._pen.ellipse([x - r, y - r, x + r, y + r], fill=color)


# ---- the caption ----


def captioned(picture: np.ndarray, scene: Scene, remark: str = "") -> np.ndarray:
    """The picture [height, width, 3] under a strip that shows how the game stands, and a remark."""
    width = picture.shape[1]
    strip = Image.new("RGB", (width, _CAPTION_HEIGHT), WHITE)
    pen = ImageDraw.Draw(strip)
    large, small = ImageFont.load_default(22), ImageFont.load_default(15)

    phase = "Preparation" if scene.in_preparation else "Seeking"
    title = phase if scene.is_game else scene.task.replace("_", " ").capitalize()
    pen.text((16, 9), title, fill=INK, font=large)
    place = ", ".join(filter(None, (f"step {scene.step} of {scene.horizon}", remark)))
    pen.text((16, 38), place, fill=_GREY, font=small)
    if scene.is_game:
        _caption_sight(scene, pen, width / 2)

    for row, team in enumerate(sorted(set(scene.teams.tolist()))):
        members = scene.teams == team
        reward, total = scene.rewards[members].mean(), scene.returns[members].mean()
        digits = 0 if scene.is_game else 2
        name = TEAM_NAMES[team] if scene.is_game else "reward"
        text = f"{name}  {reward:+.{digits}f}  total {total:+.{digits}f}"
        place = (width - 16, 10 + 24 * row)
        pen.text(place, text, fill=TEAM_COLORS[team], font=small, anchor="ra")
    done = round(width * min(1.0, scene.step / scene.horizon))
    bar = _CAPTION_HEIGHT - 5
    pen.rectangle([0, bar, width, _CAPTION_HEIGHT], fill=_GROUND)
    pen.rectangle([0, bar, done, _CAPTION_HEIGHT], fill=_GREY)
    if scene.is_game:
        ready = round(width * scene.preparation_steps / scene.horizon)
        pen.rectangle([ready - 1, bar - 3, ready + 1, _CAPTION_HEIGHT], fill=INK)
    return np.concatenate([np.asarray(strip), picture, _legend(scene, width)])


def _caption_sight(scene: Scene, pen: ImageDraw.ImageDraw, middle: float) -> None:
    """Writes if a seeker sees a hider, in the middle of the strip."""
    state, color = ("HIDDEN", TEAM_COLORS[HIDERS])
    if scene.seen:
        state, color = ("SEEN", TEAM_COLORS[SEEKERS])
    note = "a seeker sees a hider" if scene.seen else "no seeker sees a hider"
    if scene.in_preparation:
        color, note = mixed(color, _GROUND, 0.6), "seekers wait, nobody is rewarded"
    pen.rounded_rectangle([middle - 66, 7, middle + 66, 35], radius=14, fill=color)
    pen.text((middle, 21), state, fill=WHITE, font=ImageFont.load_default(22), anchor="mm")
    pen.text((middle, 47), note, fill=_GREY, font=ImageFont.load_default(15), anchor="mm")


def _legend(scene: Scene, width: int) -> np.ndarray:
    strip = Image.new("RGB", (width * _SMOOTH, _LEGEND_HEIGHT * _SMOOTH), WHITE)
    pen, font = ImageDraw.Draw(strip), ImageFont.load_default(14 * _SMOOTH)
    hiders, seekers = TEAM_COLORS
    entries = [
        ("hider", hiders, True),
        ("seeker", seekers, True),
        ("box", CUBE_COLOR, False),
        ("long box", LONG_BOX_COLOR, False),
        ("ramp", RAMP_COLOR, False),
        ("locked by hiders", mixed(CUBE_COLOR, hiders, LOCK_SHARE), False),
        ("by seekers", mixed(CUBE_COLOR, seekers, LOCK_SHARE), False),
    ]
    if not scene.is_game:
        locked = ("locked", mixed(CUBE_COLOR, hiders, LOCK_SHARE), False)
        entries = [("agent", hiders, True), *entries[2:5], locked]
    if len(scene.sites):
        entries.append(("site", SITE_COLOR, False))
    if len(scene.cylinders):
        entries.append(("cylinder", CYLINDER_COLOR, True))
    if len(scene.food):
        entries.append(("food", FOOD_COLOR, True))
    x, middle, half = 16 * _SMOOTH, _LEGEND_HEIGHT * _SMOOTH // 2, 6 * _SMOOTH
    for text, color, is_round in entries:
        mark = [x, middle - half, x + 2 * half, middle + half]
        (pen.ellipse if is_round else pen.rectangle)(mark, fill=color)
        x += 2 * half + 6 * _SMOOTH
        pen.text((x, middle), text, fill=_GREY, font=font, anchor="lm")
        x += round(pen.textlength(text, font=font)) + 18 * _SMOOTH
    size = (width, _LEGEND_HEIGHT)
    return np.asarray(strip.resize(size, Image.Resampling.LANCZOS))
