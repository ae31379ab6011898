"""Pools of environments written in C++."""

from __future__ import annotations

import ctypes
import difflib
import importlib
import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces

from srl.errors import RunError, UserError
from srl.pools.mujoco import core_options
from srl.pools.pool import Pool, Row, empty_timestep
from srl.types import Specs, Timestep, Tree


def _load_core() -> Any:
    """Loads the C++ module, after the MuJoCo library that it was built for.

    MuJoCo's library comes in a wheel, where the loader does not look: it is loaded here first,
    and the module then finds it by its name.
    """
    found = importlib.util.find_spec("mujoco")
    places = (found.submodule_search_locations if found else None) or []
    libraries = [file for place in places for file in Path(place).glob("libmujoco.so.*")]
    for library in libraries:
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    try:
        return importlib.import_module("srl._core")
    except ImportError as error:
        have = ", ".join(file.name for file in libraries) or "no libmujoco"
        built = re.search(r"libmujoco\.so\.([\d.]+\d)", str(error))
        cure = f"pip install mujoco=={built[1]}" if built else "install srl again"
        raise RunError(
            f"srl's C++ module cannot be loaded: {error}. It needs the very MuJoCo that it was "
            f"built for, and installed is {have}: {cure}"
        ) from error


_core = _load_core()


def _space(description: dict[str, Any]) -> gymnasium.Space:
    dtype = np.dtype(description["dtype"]).type
    shape = description["shape"]
    if description["kind"] == "Discrete":
        return spaces.Discrete(description["nvec"][0], dtype=dtype)
    if description["kind"] == "MultiDiscrete":
        return spaces.MultiDiscrete(description["nvec"], dtype=dtype)

    def bound(values: list[float]) -> np.ndarray:
        array = np.asarray(values, dtype)
        return np.broadcast_to(array.reshape(shape if array.size > 1 else ()), shape).copy()

    return spaces.Box(bound(description["low"]), bound(description["high"]), shape, dtype)


def _specs(description: dict[str, Any]) -> Specs:
    fields = {name: _space(space) for name, space in description["observation"]}
    bare = list(fields) == [""]
    return Specs(
        observation=fields[""] if bare else spaces.Dict(fields),
        action=_space(description["action"]),
        agents=tuple(description["agents"]),
        statistics=tuple(description["statistics"]),
        max_episode_steps=description["max_episode_steps"] or None,
    )


def bare_physics(
    name: str, num_envs: int, threads: int = 0, seconds: float = 5.0, **options: Any
) -> float:
    """Measures what a pool could reach at best: the physics of a MuJoCo environment alone.

    Each thread steps its own environments with random controls and starts them again where the
    environment would, without observations and without waiting for other threads.

    Args:
        name: Such as "Ant-v5".
        num_envs: How many environments, of all threads together.
        threads: 0 takes one for each core.
        seconds: How long to measure.
        options: The environment's.

    Returns:
        Env steps per second.

    Raises:
        UserError: If the environment does not run on MuJoCo, or an option does not fit.
        RunError: If MuJoCo fails.
    """
    try:
        return _core.bare_physics(name, core_options(name, options), num_envs, threads, seconds)
    except ValueError as error:
        raise UserError(f"native:{name}: {error}") from None
    except RuntimeError as error:
        raise RunError(f"native:{name}: {error}") from None


T = TypeVar("T")


class NativePool(Pool):
    """A pool that steps on C++ threads, writing each result once, into the memory it is given."""

    saves_exactly = True

    def __init__(
        self, name: str, num_envs: int, batch_size: int, threads: int, options: dict[str, Any]
    ) -> None:
        """Makes the environments.

        Raises:
            UserError: For an unknown name or option.
        """
        known = _core.environment_ids()
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.4)
            hint = f"; did you mean native:{near[0]}?" if near else ""
            raise UserError(
                f"there is no native environment {name!r}{hint} (there are {', '.join(known)})"
            )
        self.name = name
        self.num_envs, self.batch_size = num_envs, batch_size
        try:
            self._pool: Any = _core.Pool(
                name, num_envs, batch_size, threads, core_options(name, options)
            )
        except ValueError as error:
            raise UserError(f"native:{name}: {error}") from error
        self.specs = _specs(self._pool.specs)
        self.threads = self._pool.threads
        self._fields = [name for name, _ in self._pool.specs["observation"]]
        self._action_dtype = np.dtype(self.specs.action.dtype)
        self._action_shape = self.specs.action.shape or ()
        self._token = object()  # marks the rows made here
        self._own: list[Row] = []
        self._queue: list[Row] = []  # rows that an asynchronous pool will fill, oldest first

    def reset(
        self, seed: int | None = None, into: Row | None = None, mask: np.ndarray | None = None
    ) -> Timestep:
        """Starts new episodes; see the base class."""
        ids = self._masked(mask, into)
        row = self._own_row(into)
        self._call(lambda: self._pool.reset(seed, ids, row.core))
        return row.timestep

    def step(self, actions: Tree, into: Row | None = None) -> Timestep:
        """Steps all environments; see the base class."""
        row = self._own_row(into)
        array = self._actions(actions, self.num_envs)
        self._call(lambda: self._pool.step(array, row.core))
        return row.timestep

    def async_reset(self, seed: int | None = None) -> None:
        """Asks for new episodes everywhere; see the base class."""
        while len(self._queue) < self._call(self._pool_provision_needed):
            self._provide()
        self._call(lambda: self._pool.send_reset(seed))

    def send(self, actions: Tree, env_ids: np.ndarray) -> None:
        """Asks for a step of the given environments; see the base class."""
        ids = np.asarray(env_ids)
        if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
            raise UserError(f"env_ids have shape {ids.shape}, dtype {ids.dtype}; expected [n] ints")
        array = self._actions(actions, len(ids))
        ids = np.ascontiguousarray(ids, np.int32)
        self._call(lambda: self._pool.send(array, ids))

    def recv(self) -> Timestep:
        """Waits for the first environments that are ready; see the base class."""
        flying = self._pool_in_flight()
        try:
            self._call(lambda: self._pool.receive())
        finally:
            if self._pool_in_flight() < flying:  # a batch came, be it with an error
                timestep = self._queue.pop(0).timestep  # held, so that it is not provided anew
                self._provide()
        return timestep

    def save(self) -> bytes:
        """Gives the whole state, to be restored into a pool of the same kind and size."""
        return self._call(lambda: self._pool.save())

    def restore(self, state: bytes) -> None:
        """Goes on from a saved state, with exactly the same future."""
        self._call(lambda: self._pool.restore(state))

    def inspect(self, env_id: int) -> dict[str, np.ndarray]:
        """Named numbers of one environment, for drawing and tests."""
        values = self._call(lambda: self._pool.inspect(env_id))
        return {name: np.asarray(value) for name, value in values.items()}

    def inject(self, env_id: int, name: str, values: Any) -> None:
        """Sets numbers that `inspect` names, for tests that need a chosen state."""
        flat = [float(value) for value in np.ravel(values)]
        self._call(lambda: self._pool.inject(env_id, name, flat))

    def model(self, env_id: int) -> bytes:
        """The MuJoCo model of one environment in MuJoCo's binary format; empty without one."""
        return self._call(lambda: self._pool.model(env_id))

    def close(self) -> None:
        """Ends the threads and frees the environments."""
        self._pool = _Closed()

    def __del__(self) -> None:
        # The threads end before the memory goes that they write into.
        self.close()

    def _pool_provision_needed(self) -> int:
        return self._pool.provision_needed()

    def _pool_in_flight(self) -> int:
        return 0 if isinstance(self._pool, _Closed) else self._pool.in_flight

    def _actions(self, actions: Tree, num_envs: int) -> np.ndarray:
        array = np.asarray(actions)
        shape = (num_envs * len(self.specs.agents), *self._action_shape)
        if array.shape != shape:
            raise UserError(f"actions have shape {array.shape}; expected {shape}")
        if array.dtype != self._action_dtype:
            if array.dtype.kind not in ("iu" if self._action_dtype.kind == "i" else "iuf"):
                raise UserError(f"actions are {array.dtype}; expected {self._action_dtype}")
            array = array.astype(self._action_dtype)
        return np.ascontiguousarray(array)

    def _adopt(self, row: Row) -> Row:
        step = row.timestep
        # By name: Gymnasium's Dict space sorts its names, the C++ side has an order of its own.
        bare = not isinstance(step.observation, dict)
        observation = [step.observation if bare else step.observation[n] for n in self._fields]
        trees = [] if bare else [step.observation]
        arrays = [*observation, *step[1:]]
        watched: list[Any] = [step, *trees, *arrays, *(array.base for array in arrays)]
        row.owner = self._token
        row.core = _core.Batch(observation, *step[1:-1], watched)  # nothing is ever lost here
        return row

    def _own_row(self, into: Row | None) -> Row:
        """The row to write into: one that this pool made, or one of its own that nobody holds."""
        if into is None:
            return self._idle_row()
        if into.owner is not self._token:
            raise UserError("`into` is a row of another pool; take it from this pool's rows()")
        return into

    def _idle_row(self) -> Row:
        for row in self._own:
            if not row.core.in_use() and row not in self._queue:
                return row
        row = self._adopt(Row(empty_timestep(self.specs, self.batch_size)))
        self._own.append(row)
        row.core.settle()
        return row

    def _provide(self) -> None:
        row = self._idle_row()
        self._call(lambda: self._pool.provide(row.core))
        self._queue.append(row)

    def _call(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except (ValueError, RuntimeError, AttributeError) as error:
            raise self._told(error) from None

    def _told(self, error: Exception) -> Exception:
        if isinstance(self._pool, _Closed):
            return UserError(f"the pool of native:{self.name} is closed")
        if isinstance(error, ValueError):
            return UserError(f"native:{self.name}: {error}")
        if isinstance(error, RuntimeError):
            return RunError(f"native:{self.name}: {error}")
        return error


class _Closed:
    """Stands where a closed pool was."""
