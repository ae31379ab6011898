"""Pools of environments written in C++."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces

from srl.core.errors import RunError, UserError
from srl.core.spaces import narrow_dtype, outside
from srl.core.types import Specs, Timestep, Tree
from srl.pools.memory_check import check_memory_by_sample
from srl.pools.native.mujoco import core_options
from srl.pools.native.plugins import resolve_plugin
from srl.pools.pool import Pool, as_actions, as_env_ids, checked_seed
from srl.pools.timestep_arrays import Row, empty_timestep
from srl.system.cores import cores_to_fill
from srl.system.native_module import load_core

if TYPE_CHECKING:
    from srl.pools.native.xla import Xla

core: Any = load_core()
"""The module `srl._core`; its calls are in `srl/_core.pyi`."""


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


def _view(fields: list[str], step: Timestep) -> Any:
    """The C++ side's view of the arrays of a timestep."""
    # By name: Gymnasium's Dict space sorts its names, the C++ side has an order of its own.
    bare = not isinstance(step.observation, dict)
    observation = [step.observation if bare else step.observation[name] for name in fields]
    trees = [] if bare else [step.observation]
    arrays = [*observation, *step[1:-1]]  # nothing is ever lost here
    watched = [step, *trees, *arrays, *(array.base for array in arrays)]
    return core.Batch(step, observation, *step[1:-1], watched)


def _own_view(view: Callable[[Timestep], Any], specs: Specs, batch_size: int) -> Any:
    return view(empty_timestep(specs, batch_size))


def _actions(specs: Specs, actions: Tree, num_envs: int) -> np.ndarray:
    """Actions of `num_envs` environments as the C++ side takes them."""
    dtype = np.dtype(specs.action.dtype)
    array = as_actions(actions, specs.action, num_envs * len(specs.agents))
    if dtype.kind == "i" and (wrong := outside(array, specs.action)).any():  # before they wrap
        place = tuple(np.argwhere(wrong)[0])
        env, agent = divmod(int(place[0]), len(specs.agents))
        raise UserError(
            f"environment {env} of those named, agent {specs.agents[agent]}: action "
            f"{array[place]} is not in {specs.action}"
        )
    return np.require(array.astype(dtype, copy=False), requirements=["C", "A"])


def _ids(num_envs: int, env_ids: Any) -> np.ndarray:
    """Ids as the C++ side takes them, int32 [n]."""
    return np.require(as_env_ids(env_ids, num_envs), requirements=["C", "A"])


def _check_narrow(description: dict[str, Any], name: str) -> None:
    for field, space in description["observation"]:
        dtype = np.dtype(space["dtype"])
        if narrow_dtype(dtype) != dtype:
            raise UserError(
                f"native:{name}: its observation {field!r} is {dtype}, but pools give "
                f"{narrow_dtype(dtype)}: let the environment write that"
            )


T = TypeVar("T")
_ERRORS = (ValueError, RuntimeError, AttributeError)  # of a closed pool too


class NativePool(Pool):
    """A pool that steps on C++ threads, writing each result once, into the memory it is given."""

    saves_exactly = True

    def __init__(
        self,
        name: str,
        num_envs: int,
        batch_size: int,
        threads: int,
        options: dict[str, Any],
        cores: Sequence[int] = (),
    ) -> None:
        """Makes the environments.

        Raises:
            UserError: For an unknown name or option, or a library that cannot be loaded.
            RunError: If making one raised.
        """
        name = resolve_plugin(name, core.load_plugin)
        known = core.environment_ids()
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.4)
            hint = f"; did you mean native:{near[0]}?" if near else ""
            raise UserError(
                f"there is no native environment {name!r}{hint} (there are {', '.join(known)})"
            )
        self.name = name
        self.num_envs, self.batch_size = num_envs, batch_size
        try:
            self._pool: Any = core.Pool(
                name, num_envs, batch_size, threads, list(cores), core_options(name, options)
            )
        except ValueError as error:
            raise UserError(f"native:{name}: {error}") from error
        except RuntimeError as error:
            raise RunError(f"native:{name}: {error}") from error
        description = self._pool.specs
        _check_narrow(description, name)
        self.specs = _specs(description)
        self.threads = self._pool.threads
        self.observation_fields = [
            (name, space["shape"], space["dtype"]) for name, space in description["observation"]
        ]
        fields = [name for name, _, _ in self.observation_fields]
        self._token = object()  # marks the rows made here
        self._view = partial(_view, fields)
        # Neither function holds the pool, which would then never be freed.
        self._pool.bind(
            partial(_own_view, self._view, self.specs, batch_size),
            partial(_actions, self.specs),
            partial(_ids, num_envs),
        )

    def reset(
        self, seed: int | None = None, into: Row | None = None, mask: np.ndarray | None = None
    ) -> Timestep:
        """Starts new episodes; see the base class."""
        ids, seed = self._masked(mask, into), checked_seed(seed)
        return self._call(lambda: self._pool.reset(seed, ids, self._core_of(into)))

    def step(self, actions: Tree, into: Row | None = None) -> Timestep:
        """Steps all environments; see the base class."""
        try:
            return self._pool.step(actions, None if into is None else self._core_of(into))
        except _ERRORS as error:
            raise self._as_srl_error(error) from None

    def async_reset(self, seed: int | None = None) -> None:
        """Asks for new episodes everywhere; see the base class."""
        seed = checked_seed(seed)
        self._call(lambda: self._pool.send_reset(seed))

    def send(self, actions: Tree, env_ids: np.ndarray) -> None:
        """Asks for a step of the given environments; see the base class."""
        try:
            self._pool.send(actions, env_ids)
        except _ERRORS as error:
            raise self._as_srl_error(error) from None

    def recv(self) -> Timestep:
        """Waits for the first environments that are ready; see the base class."""
        try:
            return self._pool.receive()
        except _ERRORS as error:
            raise self._as_srl_error(error) from None

    def xla(self) -> Xla:
        """The pool's calls for use inside `jax.jit`; see `srl.pools.native.xla`.

        Raises:
            UserError: If the pool is closed, or asynchronous.
        """
        from srl.pools.native.xla import Xla

        self.expect_synchronous("a compiled program")
        self.xla_state()
        return Xla(self)

    def xla_state(self) -> tuple[int, int]:
        """The handle and the token that a program begins with; for xla.py alone."""
        called = self._call(lambda: self._pool.callable())
        return called.handle, called.any_token

    def xla_token(self) -> int:
        """The token of the last call from a program; any thread may ask, also meanwhile.

        0 where the pool is closed, which another thread may not know yet.
        """
        pool = self._pool
        if isinstance(pool, _Closed):
            return 0
        return self._call(lambda: pool.callable()).last_token

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
        """Sets numbers that `inspect` names, so that a recorded or a chosen state can go on."""
        flat = [float(value) for value in np.ravel(values)]
        self._call(lambda: self._pool.inject(env_id, name, flat))

    def model(self, env_id: int) -> bytes:
        """The MuJoCo model of one environment in MuJoCo's binary format; empty without one."""
        return self._call(lambda: self._pool.model(env_id))

    def close(self) -> None:
        """Ends the threads and frees the environments."""
        self._pool = _Closed()

    def _adopt(self, row: Row) -> Row:
        row.core = self._view(row.timestep)
        return super()._adopt(row)

    def _core_of(self, into: Row | None) -> Any:
        if into is None:
            return None
        self._check_row(into)
        return into.core

    def _call(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except _ERRORS as error:
            raise self._as_srl_error(error) from None

    def _as_srl_error(self, error: Exception) -> Exception:
        if isinstance(self._pool, _Closed):
            return UserError(f"the pool of native:{self.name} is closed")
        if isinstance(error, ValueError):
            return UserError(f"native:{self.name}: {error}")
        if isinstance(error, RuntimeError):
            return RunError(f"native:{self.name}: {error}")
        return error


class _Closed:
    """Stands where a closed pool was."""


def make(
    source: str,
    num_envs: int,
    options: dict[str, Any],
    batch_size: int | None = None,
    threads: int = 0,
    cores: Sequence[int] = (),
    action_repeat: int = 1,
) -> NativePool:
    """Makes a pool of an id; see `make_pool`."""
    name = source.partition(":")[2]
    if action_repeat > 1:
        options = {**options, "action_repeat": action_repeat}
    threads = threads or min(num_envs, cores_to_fill())
    check_memory_by_sample(source, num_envs, lambda n: NativePool(name, n, n, 1, options, cores))
    return NativePool(name, num_envs, batch_size or num_envs, threads, options, cores)
