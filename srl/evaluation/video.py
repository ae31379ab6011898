"""Films of episodes."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import gymnasium.envs.registration
import numpy as np

from srl.config.built_in_envs import config_class
from srl.config.experiment import Experiment
from srl.core.backends import backend_of
from srl.core.episodes import kinds_of
from srl.core.errors import RunError, UserError
from srl.core.types import Specs, Timestep
from srl.evaluation.episodes import Evaluator, Player
from srl.loop.seeds import environment_seed
from srl.pools import NamedEnv, Pool, make_pool
from srl.pools.config import Painter
from srl.pools.python.sources import UnknownOption
from srl.record.files import expect_place, replacing, write_atomically, writing

logger = logging.getLogger(__name__)

Take = Callable[[Pool, Timestep, bool], None]
"""Takes a step of a pool's only environment into the film, and whether it ends an episode."""

_NATIVE = "native:"
_VECTORS = ".svg"


def expect_film(path: Path) -> None:
    """Raises UserError unless `path`, given as --video, can be the file of a film."""
    if path.suffix not in (".mp4", _VECTORS):
        raise UserError(f"--video {path}: the name must end in .mp4, or {_VECTORS} for a drawing")
    expect_place("--video", path)


class Film:
    """Films an experiment's environment."""

    def __init__(
        self,
        experiment: Experiment,
        drawing: bool = False,
        camera: str | None = None,
        suffix: str = ".mp4",
    ) -> None:
        """Checks that there is something to film.

        Args:
            experiment: Whose environment is filmed.
            drawing: Film the environment's drawing in place of its rendering.
            camera: Where it is filmed from, one of the names that the environment knows.
            suffix: Of the file: .mp4, or .svg for a drawing that moves.

        Raises:
            UserError: When it cannot be filmed.
        """
        self._experiment = experiment
        config = config_class(experiment.env)
        self._animation = config.animation() if config and suffix == _VECTORS else None
        if suffix == _VECTORS and self._animation is None:
            raise UserError(f"there is no drawing of {experiment.env} as {suffix}; film to .mp4")
        if self._animation and camera:
            raise UserError(f"--camera {camera}: a film as {suffix} is drawn from above")
        with _programs_may_start():
            painter = config.painter(drawing, camera) if config else None
        if drawing and painter is None:
            raise UserError(f"there is no drawing of {experiment.env}; leave out --drawing")
        if camera and painter is None:
            raise UserError(
                f"--camera {camera}: {experiment.env} has one camera; leave out --camera"
            )
        self._painter: Painter = painter or _OwnPictures(experiment.env)

    def record(
        self,
        path: Path,
        player: Player,
        episodes: int,
        seed: int = 0,
        greedy: bool = False,
        progress: Callable[[int], None] = lambda ended: None,
        most_seconds: float = math.inf,
    ) -> None:
        """Films whole episodes, the first of the environment that has this seed in evaluations.

        Args:
            path: Of the file; its folder is made where there is none.
            player: Plays all agents.
            episodes: How many.
            seed: Of the environment and the drawing of actions.
            greedy: Take the most probable actions.
            progress: Called at each step with how many episodes have ended.
            most_seconds: How long the film is at most; what comes later is cut off.

        Raises:
            UserError: For several episodes in an SVG file, whose walls do not change.
        """
        if self._animation and episodes > 1:
            raise UserError(f"a film as {_VECTORS} shows one episode; for {episodes} take .mp4")
        with contextlib.ExitStack() as stack:
            stack.callback(self._painter.close)
            stack.enter_context(_programs_may_start())
            stack.enter_context(_without_devices())
            pool = stack.enter_context(self._pool())
            env_seed = environment_seed(seed, "evaluation")
            evaluator = Evaluator(pool, episodes, env_seed=env_seed, seed=seed, greedy=greedy)
            take = stack.enter_context(self._drawn(path) if self._animation else self._shot(path))
            lineup = dict.fromkeys(kinds_of(pool.specs.agents), player)
            ended, most_steps = 0, most_seconds * self._frame_rate
            for step, timestep in enumerate(evaluator.timesteps(lineup), 1):
                last = bool((timestep.terminated | timestep.truncated).all())
                take(pool, timestep, last)
                ended += last
                progress(ended)
                if ended == episodes or step >= most_steps:
                    return

    @contextlib.contextmanager
    def _drawn(self, path: Path) -> Iterator[Take]:
        """Writes what was taken as an SVG file."""
        animation = self._animation
        assert animation is not None
        yield lambda pool, timestep, last: animation.add(pool, 0, timestep)
        with writing(path, RunError):
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, animation.text().encode())

    @contextlib.contextmanager
    def _shot(self, path: Path) -> Iterator[Take]:
        """Writes a picture of each step, as mp4."""
        rate = self._frame_rate

        def take(pool: Pool, timestep: Timestep, last: bool) -> None:
            frame = _checked(self._painter.paint(pool, 0, timestep), self._experiment.env)
            # The end of an episode stands still for a second.
            for _ in range(1 + last * round(rate)):
                write(frame)

        with _writing(path, rate) as write:
            yield take

    @property
    def _frame_rate(self) -> float:
        """Pictures a second; there is one for each step."""
        return self._painter.frames_per_second / self._experiment.action_repeat

    def _pool(self) -> Pool:
        if isinstance(self._painter, _OwnPictures):
            return self._painter.pool(self._experiment.action_repeat)
        return make_pool(self._experiment.env, action_repeat=self._experiment.action_repeat)


class _OwnPictures:
    """The pictures that a Gymnasium environment makes of itself."""

    def __init__(self, env: Any) -> None:
        self.env = NamedEnv(env) if isinstance(env, str) else env
        if isinstance(self.env, NamedEnv) and self.env.id.startswith(_NATIVE):
            self.env = _twin(self.env)
            logger.warning("%s has no pictures; %s of Gymnasium is shown", env, self.env)
        self.frames_per_second = float(_metadata(self.env).get("render_fps") or 30)
        """The rate that the environment declares, else 30."""

    def pool(self, action_repeat: int, render_mode: str = "rgb_array") -> Pool:
        """One environment that renders so."""
        try:
            return make_pool(self.env, action_repeat=action_repeat, render_mode=render_mode)
        except (RunError, UnknownOption) as error:
            raise UserError(
                f"{error}; to be shown, an environment must take render_mode={render_mode!r}"
            ) from error

    def paint(self, pool: Any, env_id: int, timestep: Timestep) -> np.ndarray:
        return pool.render(env_id)

    def close(self) -> None:
        """Nothing is held."""


def _twin(env: NamedEnv) -> NamedEnv:
    """The environment of Gymnasium that a native one is a copy of, policies included."""
    copied = replace(env, id=env.id.removeprefix(_NATIVE))
    if copied.id in gymnasium.registry:
        with make_pool(env) as native, make_pool(copied) as twin:
            if _array_specs(native.specs) == _array_specs(twin.specs):
                return copied
    raise UserError(
        f"{env} has neither pictures nor a drawing; there is nothing to film. An environment of "
        "Gymnasium that renders, or one with a painter (EnvConfig.painter), can be filmed"
    )


def _array_specs(specs: Specs) -> list[Any]:
    observation, action = specs.observation, specs.action
    count = getattr(action, "n", None)
    return [type(observation), observation.shape, type(action), action.shape, count]


def live_pool(experiment: Experiment) -> Pool:
    """One environment that shows itself in a window, at its own pace.

    Raises:
        UserError: If it cannot, or there is no display.
    """
    displays = {"DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"}
    if not displays & os.environ.keys():
        raise UserError("--live: this machine has no display; --video films episodes")
    name = str(getattr(experiment.env, "pool_id", experiment.env))
    copied = name.removeprefix(_NATIVE) in gymnasium.registry
    if not backend_of(experiment.env).made_by_python and not copied:
        raise UserError(f"--live: {name} has no window; --video or srl watch may show it")
    pictures = _OwnPictures(experiment.env)
    modes = _metadata(pictures.env).get("render_modes")
    if modes is not None and not {"human", "rgb_array"} & set(modes):
        raise UserError(
            f"--live: {name} declares the render modes {', '.join(modes) or 'none'}, and "
            "a window needs human"
        )
    return pictures.pool(experiment.action_repeat, "human")


def _metadata(env: Any) -> Mapping[str, Any]:
    """Reads the rendering metadata of an environment's class, where it is known."""
    with contextlib.suppress(gymnasium.error.Error, ImportError, AttributeError):
        maker = env
        if isinstance(env, NamedEnv):
            entry = gymnasium.spec(env.id).entry_point
            maker = (
                gymnasium.envs.registration.load_env_creator(entry)
                if isinstance(entry, str)
                else entry
            )
        metadata = getattr(maker, "metadata", {})  # of a class derived from a wrapper, a property
        return metadata if isinstance(metadata, Mapping) else {}
    return {}


def _checked(frame: Any, env: Any) -> np.ndarray:
    """The frame, with even sides, as H.264 wants them."""
    frame = np.asarray(frame)
    if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8:
        raise UserError(
            f"{env} rendered an array of {frame.dtype}{list(frame.shape)}; expected a picture, "
            "uint8[height, width, 3]"
        )
    height, width = frame.shape[:2]
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")


@contextlib.contextmanager
def _programs_may_start() -> Iterator[None]:
    """Silences JAX's warning of new processes, which it gives even where another program starts."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"os\.fork\(\)", category=RuntimeWarning)
        yield


@contextlib.contextmanager
def _without_devices() -> Iterator[None]:
    """Has SDL, by which pygame draws, look for no sound, and without a display for no window.

    It reports on standard error what it does not find. What the user has set stays as it is.
    """
    drivers = {"SDL_AUDIODRIVER": "dummy"}
    if not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        drivers["SDL_VIDEODRIVER"] = "dummy"
    added = {name: driver for name, driver in drivers.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _writing(path: Path, frames_per_second: float) -> Iterator[Callable[[np.ndarray], None]]:
    """Gives a function that takes frames; the file is complete or absent."""
    import imageio.v2 as imageio

    with writing(path, RunError):
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as unfinished:
            writer = imageio.get_writer(
                unfinished,
                format="FFMPEG",
                fps=frames_per_second,
                codec="libx264",
                pixelformat="yuv420p",
                quality=8,
                macro_block_size=2,
            )
            with writer:
                yield writer.append_data  # pyright: ignore[reportReturnType]
