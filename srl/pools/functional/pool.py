"""A pool of environments written in JAX, stepped all together by one compiled call."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from srl.core.errors import RunError, UserError, described, expect_number
from srl.core.lazy import jax, jnp
from srl.core.spaces import outside, space_tree
from srl.core.tree import map_tree
from srl.core.types import Array, Specs, Timestep, Tree
from srl.pools.functional.adapters import make_functional
from srl.pools.functional.environment import FunctionalEnv
from srl.pools.functional.episodes import Episodes, PoolState, action_dtype
from srl.pools.pool import Pool, as_actions, checked_seed
from srl.pools.python.own_options import names_in
from srl.pools.python.python_pool import copy_rows
from srl.pools.python.simulator import narrow_action, observed_space, supported_action
from srl.pools.timestep_arrays import Row, expect_finite


class FunctionalPool(Pool):
    """N environments whose state is a pytree on JAX's default device.

    Environment i's chance follows from its seed and the number of its steps alone, whichever pool
    it is in. A compiled program may step it by `xla`, and so without leaving the device.
    """

    saves_exactly = True

    def __init__(self, env: FunctionalEnv, num_envs: int, action_repeat: int, name: str) -> None:
        """Takes one environment, which is stepped as N.

        Raises:
            UserError: If it is no functional environment, or its shapes do not fit its spaces.
        """
        self.name, self.num_envs, self.batch_size = name, num_envs, num_envs
        self.specs = specs = _specs_of(env, name)
        self._episodes = Episodes(env, specs, num_envs, action_repeat, name)
        self._token = object()
        self._begin = jax.jit(self._episodes.begin)
        self._step = jax.jit(self._episodes.step)
        seeds = np.random.SeedSequence().generate_state(1, np.uint64)[0]
        self._maybe_state: PoolState | None = self._episodes.seeded(_keys(int(seeds), num_envs))

    @property
    def state(self) -> PoolState:
        """The state of the environments; a compiled program that has stepped them sets it."""
        if self._maybe_state is None:
            raise UserError(f"the pool of {self.name} is closed")
        return self._maybe_state

    @state.setter
    def state(self, state: PoolState) -> None:
        self._maybe_state = state

    def reset(
        self, seed: int | None = None, into: Row | None = None, mask: np.ndarray | None = None
    ) -> Timestep:
        """Starts new episodes; see the base class."""
        self._check_row(into)
        ids, seed = self._masked(mask, into), checked_seed(seed)
        chosen = np.zeros(self.num_envs, bool)
        chosen[ids] = True
        state = self.state
        if seed is not None:
            keys = jnp.where(chosen[:, None], _keys(seed, self.num_envs), state.key)
            state = state._replace(key=keys, draws=jnp.where(chosen, 0, state.draws))
        self._maybe_state, timestep = self._run(self._begin, state, chosen)
        return self._given(timestep, into, ids if mask is not None else None)

    def step(self, actions: Tree, into: Row | None = None) -> Timestep:
        """Steps all environments; see the base class."""
        self._check_row(into)
        state = self.state
        self._maybe_state, timestep = self._run(self._step, state, self._checked(actions))
        return self._given(timestep, into, None)

    def xla(self) -> FunctionalXla:
        """The pool's calls for use inside `jax.jit`."""
        return FunctionalXla(self, self._episodes)

    def save(self) -> bytes:
        """The whole state."""
        leaves = jax.tree.leaves(self.state)
        return safetensors.save({f"{i}": np.asarray(_data(x)) for i, x in enumerate(leaves)})

    def restore(self, state: bytes) -> None:
        """Goes on from a saved state, with exactly the same future."""
        own, form = jax.tree.flatten(self.state)
        try:
            given = safetensors.load(bytes(state))
            leaves = [given[f"{i}"] for i in range(len(own))]
        except (SafetensorError, KeyError) as error:
            raise UserError(
                f"{self.name}: the state is none of this pool, or of another version of srl: "
                f"{error}"
            ) from error
        for one, other in zip(leaves, map(_data, own), strict=True):
            if (one.shape, one.dtype) != (other.shape, other.dtype):
                raise UserError(
                    f"{self.name}: the state has an array {one.dtype}{list(one.shape)}; expected "
                    f"{other.dtype}{list(other.shape)}: it is of another environment or number"
                )
        self._maybe_state = jax.tree.unflatten(form, list(map(_like, leaves, own)))

    def close(self) -> None:
        """Lets go of the environments' state."""
        self._maybe_state = self._unreceived = None

    def _run(self, call: Any, *operands: Any) -> Any:
        try:
            return call(*operands)
        except jax.errors.JaxRuntimeError as error:
            raise RunError(f"{self.name} raised {described(error)}") from error

    def _checked(self, actions: Tree) -> Tree:
        space, slots = self.specs.action, self.num_envs * len(self.specs.agents)

        def checked(leaf: gymnasium.Space, array: np.ndarray) -> np.ndarray:
            with np.errstate(over="ignore"):
                narrow = array.astype(action_dtype(leaf))
            wrong = outside(array, leaf) | ~np.isfinite(narrow)
            if wrong.any():
                raise UserError(f"action {array[wrong][0]} is not in {leaf}")
            return narrow

        return map_tree(checked, space_tree(space), as_actions(actions, space, slots))

    def _given(self, timestep: Timestep, into: Row | None, ids: np.ndarray | None) -> Timestep:
        """The timestep as NumPy has it, in the row if there is one, there only of `ids`.

        Raises:
            RunError: If a reward or an observation is not finite.
        """
        timestep = map_tree(np.array if into is None else np.asarray, timestep)
        expect_finite(self.name, timestep, len(self.specs.agents))
        if into is None:
            return timestep
        copy_rows(timestep, into.timestep, ids, len(self.specs.agents))
        return into.timestep


class FunctionalXla:
    """The calls of one pool inside a compiled program; its state is that of the environments."""

    def __init__(self, pool: FunctionalPool, episodes: Episodes) -> None:
        self._pool, self._episodes = pool, episodes

    def init(self) -> PoolState:
        """The state in which the pool stands."""
        return self._pool.state

    @property
    def progress(self) -> int:
        """Always 0: what a program does meanwhile is not known."""
        return 0

    def keep(self, state: PoolState) -> None:
        """Lets the pool go on from the state that a program has led to."""
        self._pool.state = state

    def reset(self, state: PoolState, seed: int) -> tuple[PoolState, Timestep]:
        """Starts new episodes everywhere."""
        count = self._pool.num_envs
        state = state._replace(
            key=jnp.asarray(_keys(seed, count)), draws=jnp.zeros_like(state.draws)
        )
        return self._episodes.begin(state, jnp.ones(count, bool))

    def step(self, state: PoolState, actions: Tree) -> tuple[PoolState, Timestep]:
        """Steps all environments: actions [B, ...]; gradients stop at them."""
        return self._episodes.step(state, jax.lax.stop_gradient(map_tree(jnp.asarray, actions)))


def _specs_of(env: Any, name: str) -> Specs:
    for needed in ("observation_space", "action_space", "reset", "step"):
        if not hasattr(env, needed):
            raise UserError(
                f"{name} made {type(env).__name__}, which has no {needed}; expected a functional "
                "environment: docs/jax_environments.md shows one"
            )
    agents, limit = getattr(env, "agents", ("agent",)), getattr(env, "max_episode_steps", None)
    if isinstance(agents, str) or not agents or len(set(agents)) < len(agents):
        raise UserError(f"{name}: agents is {agents!r}; expected a tuple of names, each once")
    expect_number(f"{name}: max_episode_steps", limit, 1, or_none=True)
    return Specs(
        observation=observed_space(env.observation_space, name),
        action=narrow_action(supported_action(env.action_space, name)),
        agents=tuple(agents),
        statistics=names_in(f"{name}: statistics", getattr(env, "statistics", ())),
        max_episode_steps=limit,
        agent_spaces=tuple(getattr(env, "agent_spaces", ())),
    )


def _keys(seed: int, num_envs: int) -> np.ndarray:
    """The raw keys of environments with the seeds seed, seed + 1, ..., modulo 2^64: [N, 2]."""
    seeds = np.uint64(seed) + np.arange(num_envs, dtype=np.uint64)
    return np.stack([seeds >> np.uint64(32), seeds & np.uint64(2**32 - 1)], 1).astype(np.uint32)


def _data(leaf: Array) -> Array:
    """An array that files can hold."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _like(array: Array, leaf: Array) -> Array:
    return jax.random.wrap_key_data(array) if _is_key(leaf) else jnp.asarray(array)


def _is_key(leaf: Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def make(
    source: str, num_envs: int, options: dict[str, Any], action_repeat: int = 1
) -> FunctionalPool:
    """Makes a pool of an id; see `make_pool`."""
    env = make_functional(source.partition(":")[2], options)
    return FunctionalPool(env, num_envs, action_repeat, source)
