"""Hide-and-seek as MuJoCo renders it, off screen; the drawing from above where that cannot be."""

from __future__ import annotations

import importlib
import itertools
import logging
import os
import subprocess
from collections.abc import Sequence
from typing import Any

import numpy as np

from srl.core.errors import UserError
from srl.core.types import Timestep
from srl.envs.hide_and_seek.camera import Camera
from srl.envs.hide_and_seek.drawing import INK, WHITE, captioned, draw
from srl.envs.hide_and_seek.scene import (
    FOOD_COLOR,
    FOOD_SIZE,
    INNER_WALL_HEIGHT,
    LOCK_SHARE,
    SEEKERS,
    SITE_COLOR,
    SITE_SIZE,
    TEAM_COLORS,
    Color,
    Scene,
    mixed,
)
from srl.system.child_process import child_command

logger = logging.getLogger(__name__)

_AZIMUTH, _ELEVATION, _DISTANCE = 60.0, -54.0, 13.8  # of the corner's camera; degrees, metres
_FOLLOWING_DISTANCE = 6.5
_TOP_DISTANCE, _OPEN_TOP_DISTANCE = 13.0, 16.0  # where no walls keep agents on the floor
_WIDTH, _HEIGHT = 960, 720
_VIEW_LENGTH = 0.9  # metres of the vision cone that are shown
_INNER_WALL: Color = (132, 141, 153)
_OUTER_WALL: Color = (96, 104, 116)
_GROUND: Color = (186, 192, 199)
_PAD: Color = (224, 228, 231)


class Painter:
    """Pictures of one environment of a pool, a frame for each step."""

    frames_per_second = 10.0  # a step takes 0.075 s: somewhat slower, for people to follow

    def __init__(self, camera: Camera | None = None) -> None:
        """Shows the whole game, or a part of it around an agent."""
        self._camera = camera or Camera()

    def paint(self, pool: Any, env_id: int, timestep: Timestep) -> np.ndarray:
        """A picture of an environment as it stands, uint8 [height, width, 3].

        Args:
            pool: Of hide-and-seek.
            env_id: The environment.
            timestep: The pool's last.
        """
        scene, numbers, _ = Scene.at(pool, env_id, timestep)
        self._camera.aim(scene, pool.specs.agents)
        return self.picture(scene, pool, env_id, numbers["qpos"])

    def picture(self, scene: Scene, pool: Any, env_id: int, qpos: np.ndarray) -> np.ndarray:
        """The picture of a scene: here the drawing from above."""
        return draw(scene, camera=self._camera)

    def close(self) -> None:
        """Lets go of what painting needs."""


def painter(drawing: bool = False, camera: str | None = None) -> Painter:
    """The best painter there is: MuJoCo's renderer where OpenGL works, else the drawing.

    Args:
        drawing: The drawing in any case.
        camera: top, corner, follow or follow:AGENT; by default corner, and top of the drawing.

    Raises:
        UserError: If there is no such camera.
    """
    chosen = Camera(camera or ("top" if drawing else "corner"))
    if drawing and chosen.name == "corner":
        raise UserError("--camera corner: the drawing is from above; take top or follow")
    if drawing:
        return Painter(chosen)
    backend, reason = _working_backend()
    if backend:
        os.environ["MUJOCO_GL"] = backend
        return Renderer(chosen)
    hint = (
        "MUJOCO_GL is set: without it, egl and osmesa are tried"
        if os.environ.get("MUJOCO_GL")
        else "on Debian or Ubuntu, `apt install libegl1 libgl1-mesa-dri` or `apt install "
        "libosmesa6` gives the rendering"
    )
    logger.warning(
        "MuJoCo cannot render off screen here (%s): the film shows a drawing from above instead; "
        "%s; --drawing asks for the drawing",
        reason,
        hint,
    )
    return Painter(chosen)


def _working_backend() -> tuple[str, str]:
    """The first way to OpenGL that works; without one, why each does not.

    Tried in processes of their own: a broken driver may end the one that uses it.
    """
    chosen = os.environ.get("MUJOCO_GL", "").lower()
    reasons: list[str] = []
    for backend in (chosen,) if chosen else ("egl", "osmesa"):
        environment = {**os.environ, "MUJOCO_GL": backend}
        environment.pop("PYOPENGL_PLATFORM", None)
        try:
            done = subprocess.run(
                child_command("srl.envs.hide_and_seek.probe"),
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
            )
        except subprocess.TimeoutExpired:
            reasons.append(f"{backend} hangs")
            continue
        if done.returncode == 0:
            return backend, ""
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        reasons.append(f"{backend}: {last}")
    return "", "; ".join(reasons)


class Renderer(Painter):
    """MuJoCo's own rendering, with marks for what the game knows: eyes, views, locks, grips."""

    def __init__(self, camera: Camera | None = None) -> None:
        """Opens nothing yet; MUJOCO_GL must be set."""
        super().__init__(camera or Camera("corner"))
        import mujoco
        from mujoco.rendering.classic import gl_context

        # It chooses when it is first imported, which may have been before MUJOCO_GL was set.
        importlib.reload(gl_context)
        self._mujoco: Any = mujoco
        self._renderer: Any = None
        self._lens = mujoco.MjvCamera()  # pyright: ignore[reportAttributeAccessIssue]

    def picture(self, scene: Scene, pool: Any, env_id: int, qpos: np.ndarray) -> np.ndarray:
        """The picture of a scene."""
        if self._renderer is None or scene.step == 0:
            self._open(scene, pool.model(env_id))
        model, data = self._model, self._data
        data.qpos[:] = qpos
        self._mujoco.mj_forward(model, data)
        self._paint_objects(scene)
        self._aim(scene)
        self._renderer.update_scene(data, self._lens)  # pyright: ignore[reportOptionalMemberAccess]
        marks = _Marks(self._mujoco, self._renderer.scene, self._lens)  # pyright: ignore[reportOptionalMemberAccess]
        marks.pad(scene.floor_size)
        for x, y in scene.sites:
            marks.square(np.array([x, y, 0.004]), SITE_SIZE, (*SITE_COLOR, 255))
        for x, y, z, left in scene.food:
            marks.ball(np.array([x, y, z]), FOOD_SIZE * left, (*FOOD_COLOR, 255))
        for agent in range(len(scene.agents)):
            self._mark_agent(marks, scene, agent)
        for item in range(len(scene.objects)):
            self._mark_object(marks, scene, item)
        for seeker, hider in scene.sightings():
            ends = [scene.agents[seeker, :3], scene.agents[hider, :3]]
            marks.rod(ends, 0.018, (*TEAM_COLORS[SEEKERS], 170))
        return captioned(self._renderer.render(), scene, self._camera.note)  # pyright: ignore[reportOptionalMemberAccess]

    def _aim(self, scene: Scene) -> None:
        """Points the lens: from a corner, from above, or from the same side at an agent."""
        lens, middle = self._lens, scene.floor_size / 2
        scale = scene.floor_size / 6.0
        lens.azimuth, lens.elevation = _AZIMUTH, _ELEVATION
        if self._camera.place is not None:
            lens.lookat[:] = (*self._camera.place, 0.2)
            lens.distance = _FOLLOWING_DISTANCE
        elif self._camera.name == "top":
            lens.lookat[:] = (middle, middle, 0.0)
            lens.azimuth, lens.elevation = 90.0, -90.0  # x to the right, y up, as in the drawing
            lens.distance = scale * (_TOP_DISTANCE if scene.enclosed else _OPEN_TOP_DISTANCE)
        else:
            lens.lookat[:] = (2.9 * scale, 2.75 * scale, 0.0)
            lens.distance = _DISTANCE * scale

    def close(self) -> None:
        """Closes the OpenGL context."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _open(self, scene: Scene, model: bytes) -> None:
        """Takes the model of a new episode."""
        self.close()
        name = "game.mjb"
        self._model = self._mujoco.MjModel.from_binary_path(name, {name: model})
        # Asleep, what is moved here by hand would stay where it was.
        self._model.opt.enableflags &= ~int(self._mujoco.mjtEnableBit.mjENBL_SLEEP)
        self._paint_room()
        self._data = self._mujoco.MjData(self._model)
        self._renderer = self._mujoco.Renderer(self._model, _HEIGHT, _WIDTH, max_geom=2000)

    def _paint_room(self) -> None:
        """Shows the outer walls as high as the others, so that one can look over them."""
        model = self._model
        model.light_diffuse[:] = 0.45
        model.vis.headlight.ambient[:] = 0.5
        model.vis.headlight.diffuse[:] = 0.15
        model.vis.global_.fovy = 30
        model.geom("floor").size[:2] = 40
        model.geom("floor").rgba[:] = _rgba(_GROUND)
        for geom in range(model.ngeom):
            if not model.geom(geom).name.startswith("wall") or model.geom_rgba[geom, 3] == 0:
                continue
            outer = model.geom_size[geom, 2] > INNER_WALL_HEIGHT / 2
            model.geom_rgba[geom] = _rgba(_OUTER_WALL if outer else _INNER_WALL)
            if outer:
                model.geom_size[geom, 2] = INNER_WALL_HEIGHT / 2
                model.body_pos[model.geom_bodyid[geom], 2] = INNER_WALL_HEIGHT / 2

    def _paint_objects(self, scene: Scene) -> None:
        """Colours locked objects by the team that locked them, and brightens held ones."""
        for item in range(len(scene.objects)):
            color, team = scene.color(item), scene.locking_team(item)
            if team is not None:
                color = mixed(color, TEAM_COLORS[team], LOCK_SHARE)
            if scene.holders(item):
                color = mixed(color, WHITE, 0.3)
            self._model.geom(self._geom(scene, item)).rgba[:] = _rgba(color)

    def _geom(self, scene: Scene, item: int) -> str:
        boxes = len(scene.boxes)
        return f"box{item}" if item < boxes else f"ramp{item - boxes}"

    def _mark_agent(self, marks: _Marks, scene: Scene, agent: int) -> None:
        """Two eyes, and on the floor what lies in view."""
        center, facing = scene.agents[agent, :3], np.array([*scene.facing(agent), 0.0])
        side = np.array([-facing[1], facing[0], 0.0])
        up = np.array([0.0, 0.0, 1.0])
        asleep = scene.in_preparation and scene.teams[agent] == SEEKERS
        for hand in (-1, 1):
            eye = center + 0.105 * facing + 0.06 * hand * side + 0.085 * up
            marks.ball(eye, 0.052, (*WHITE, 255))
            if not asleep:
                marks.ball(eye + 0.03 * facing + 0.022 * up, 0.03, (*INK, 255))
        if agent == self._camera.followed:
            marks.ball(center + 0.34 * up, 0.045, (*WHITE, 255))
        team = int(scene.teams[agent])
        edge = scene.view(agent, _VIEW_LENGTH)
        marks.fan(center[:2], edge, (*TEAM_COLORS[team], 25 if asleep else 60))

    def _mark_object(self, marks: _Marks, scene: Scene, item: int) -> None:
        """A padlock over a locked object, an arm to a held one, an arrow up a ramp."""
        center, team = scene.objects[item, :3], scene.locking_team(item)
        if team is not None:
            marks.padlock(center + np.array([0, 0, 0.45]), TEAM_COLORS[team])
        for agent in scene.holders(item):
            color = mixed(TEAM_COLORS[scene.teams[agent]], WHITE, 0.25)
            marks.rod([scene.agents[agent, :3], center], 0.045, (*color, 255))
        if item >= len(scene.boxes):
            marks.slope(center, scene.objects[item, 3], (*mixed(scene.color(item), INK, 0.6), 255))


class _Marks:
    """Shapes added to what MuJoCo shows."""

    def __init__(self, mujoco: Any, scene: Any, lens: Any) -> None:
        self._mujoco = mujoco
        self._scene = scene
        self._lens = lens

    def ball(self, center: np.ndarray, radius: float, color: tuple[int, ...]) -> None:
        self._add("SPHERE", [radius] * 3, center, color)

    def rod(self, ends: Sequence[np.ndarray], radius: float, color: tuple[int, ...]) -> None:
        geom = self._add("CAPSULE", [radius] * 3, ends[0], color)
        shape = self._mujoco.mjtGeom.mjGEOM_CAPSULE
        self._mujoco.mjv_connector(geom, shape, radius, *(np.asarray(e, float) for e in ends))

    def padlock(self, center: np.ndarray, color: Color) -> None:
        """A body with a shackle, turned to the camera."""
        azimuth = np.radians(self._lens.azimuth)
        right = np.array([np.sin(azimuth), -np.cos(azimuth), 0.0])
        up = np.array([0.0, 0.0, 1.0])
        if self._lens.elevation == -90:  # it lies, to be seen from above
            up = np.array([np.cos(azimuth), np.sin(azimuth), 0.0])
        frame = np.stack([right, np.cross(up, right), up], 1)
        self._add("BOX", [0.13, 0.05, 0.095], center, (*mixed(color, INK, 0.2), 255), frame)
        self.ball(center - 0.055 * frame[:, 1], 0.028, (*WHITE, 255))
        steel = (240, 242, 245, 255)
        feet = [center + side * 0.075 * right + 0.09 * up for side in (-1, 1)]
        tops = [foot + 0.11 * up for foot in feet]
        for ends in (*zip(feet, tops, strict=True), tops):
            self.rod(ends, 0.024, steel)

    def pad(self, size: float) -> None:
        """The floor that the game is laid out on; the ground goes on around it."""
        half = size / 2
        self._add("BOX", [half, half, 0.001], np.array([half, half, 0.0]), (*_PAD, 255))

    def square(self, center: np.ndarray, size: float, color: tuple[int, ...]) -> None:
        """A thin plate."""
        self._add("BOX", [size / 2, size / 2, 0.002], center, color)

    def slope(self, center: np.ndarray, angle: float, color: tuple[int, ...]) -> None:
        """An arrow up a ramp, which rises towards its own negative y."""
        cosine, sine = np.cos(angle), np.sin(angle)

        def at(x: float, y: float) -> np.ndarray:
            turned = np.array([cosine * x - sine * y, sine * x + cosine * y, -y + 0.01])
            return center + turned

        tip = at(0, -0.16)
        for start in (at(0, 0.18), at(-0.09, -0.06), at(0.09, -0.06)):
            self.rod([start, tip], 0.016, color)

    def fan(self, center: np.ndarray, edge: np.ndarray, color: tuple[int, ...]) -> None:
        """Thin triangles on the floor, from a centre [2] to the parts of an edge [N, 2]."""
        sides = np.pad(edge - center, ((0, 0), (0, 1)))
        lengths = np.maximum(np.linalg.norm(sides, axis=1), 1e-6)
        for first, second in itertools.pairwise(zip(sides, lengths, strict=True)):
            frame = np.stack([first[0] / first[1], second[0] / second[1], [0.0, 0.0, 1.0]], 1)
            size = [first[1], second[1], 0.0]
            geom = self._add("TRIANGLE", size, np.array([*center, 0.006]), color, frame)
            geom.emission = 0.4

    def _add(
        self,
        shape: str,
        size: Sequence[float],
        center: np.ndarray,
        color: tuple[int, ...],
        frame: np.ndarray | None = None,
    ) -> Any:
        scene = self._scene
        geom = scene.geoms[scene.ngeom]
        scene.ngeom += 1
        self._mujoco.mjv_initGeom(
            geom,
            getattr(self._mujoco.mjtGeom, f"mjGEOM_{shape}"),
            np.asarray(size, float),
            np.asarray(center, float),
            (np.eye(3) if frame is None else frame).ravel(),
            (np.asarray(color) / 255).astype(np.float32),
        )
        return geom


def _rgba(color: Color) -> np.ndarray:
    return np.array([*color, 255], np.float32) / 255
