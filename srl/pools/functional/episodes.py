"""Many functional environments as one: episodes, their statistics, and next-step autoreset."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.spaces import Space, has_choices, space_tree
from srl.core.tree import leaves_of, map_tree
from srl.core.types import Array, Specs, Timestep, Tree
from srl.pools.functional.environment import FunctionalEnv, Step
from srl.pools.timestep_arrays import empty_timestep


class PoolState(NamedTuple):
    """All that the future of N environments depends on; a pytree on any device."""

    env: Tree  # [N, ...], as the environment has it
    key: Array  # uint32 [N, 2]
    draws: Array  # uint32 [N], resets and steps since the seed: what keys are folded with
    over: Array  # bool [N], whose episode has ended, so that the next step begins another
    gone: Array  # bool [N, A], agents whose own part of the episode has ended
    episode_return: Array  # float32 [N, A]
    return_rest: Array  # float32 [N, A], of the return, too small for its last digit
    episode_length: Array  # int32 [N]


class Episodes:
    """Pure functions that step N environments of A agents, each the next step of its episode."""

    def __init__(
        self, env: FunctionalEnv, specs: Specs, num_envs: int, action_repeat: int, name: str
    ) -> None:
        """Checks what the environment gives, without running it.

        Raises:
            UserError: If that is not what its spaces say.
        """
        self._env, self._specs, self._num_envs = env, specs, num_envs
        self._repeat, self._name = action_repeat, name
        self._agents = len(specs.agents)
        self._check()

    def seeded(self, keys: Array) -> PoolState:
        """The state before the first episodes; `begin` begins them.

        Args:
            keys: uint32 [N, 2], of each environment.
        """
        n, a = self._num_envs, self._agents
        states = jax.eval_shape(jax.vmap(self._env.reset), jax.random.wrap_key_data(keys))[0]
        return PoolState(
            env=jax.tree.map(_zeros, states),
            key=keys,
            draws=jnp.zeros(n, jnp.uint32),
            over=jnp.ones(n, bool),
            gone=jnp.zeros((n, a), bool),
            episode_return=jnp.zeros((n, a), jnp.float32),
            return_rest=jnp.zeros((n, a), jnp.float32),
            episode_length=jnp.zeros(n, jnp.int32),
        )

    def begin(self, state: PoolState, mask: Array) -> tuple[PoolState, Timestep]:
        """Begins episodes where `mask`, bool [N], is set; other rows mean nothing."""
        started, observation = self._start(state, mask)
        none = jnp.zeros((self._num_envs, self._agents), bool)
        reward = jnp.zeros(none.shape, jnp.float32)
        return started, self._timestep(started, observation, reward, none, none)

    def step(self, state: PoolState, actions: Tree) -> tuple[PoolState, Timestep]:
        """Steps all environments, or begins their next episodes.

        Args:
            state: Of all.
            actions: [B, ...].
        """
        shape = () if self._agents == 1 else (self._agents,)
        actions = map_tree(lambda x: x.reshape(self._num_envs, *shape, *x.shape[1:]), actions)
        stepped, last, reward, terminated, truncated = self._go_on(state, actions)

        def renew(stepped: PoolState) -> tuple[PoolState, Tree]:
            return self._start(stepped, state.over)

        # Resets are computed only where an episode has ended in the row before.
        following, first = jax.lax.cond(
            state.over.any(), renew, lambda stepped: (stepped, last), stepped
        )
        over = state.over
        observation = jax.tree.map(lambda new, old: _where(over, new, old), first, last)
        ended = (jnp.where(over[:, None], False, flag) for flag in (terminated, truncated))
        reward = jnp.where(over[:, None], 0.0, reward)
        return following, self._timestep(following, observation, reward, *ended)

    # ---- one step ----

    def _go_on(self, state: PoolState, actions: Tree) -> tuple[PoolState, Tree, *tuple[Array, ...]]:
        """Steps all, with `action_repeat` steps for the action, of which an end is the last."""
        key = _folded(state.key, state.draws)
        step = jax.vmap(self._env.step)
        went = self._clean(step(state.env, actions, jax.random.wrap_key_data(key)))
        returns, length, flags = self._counted(state, went, state.gone)
        total = jnp.where(state.gone, 0.0, went.reward)
        for repeat in range(1, self._repeat):
            key = _folded(key, jnp.full(self._num_envs, repeat, jnp.uint32))
            again = self._clean(step(went.state, actions, jax.random.wrap_key_data(key)))
            # An end, also one agent's own, is the last step.
            on = ~((flags[0] | flags[1]) & ~state.gone).any(1)
            before = state._replace(
                episode_return=returns[0], return_rest=returns[1], episode_length=length
            )
            more = self._counted(before, again, state.gone)
            total = total + jnp.where(on[:, None] & ~state.gone, again.reward, 0.0)
            counted = (went, returns, length, flags)
            counted = jax.tree.map(partial(_where, on), (again, *more), counted)
            went, returns, length, flags = counted
        terminated, truncated = flags
        gone = terminated | truncated
        following = PoolState(
            went.state,
            state.key,
            state.draws + 1,
            gone.all(1),
            gone,
            *returns,
            episode_length=length,
        )
        return following, went.observation, total, terminated, truncated

    def _counted(
        self, before: PoolState, went: Step, gone: Array
    ) -> tuple[tuple[Array, Array], Array, tuple[Array, Array]]:
        """Returns and their rests [N, A], lengths [N] and both flags [N, A] after a step."""
        length = before.episode_length + 1
        terminated, truncated = went.terminated | gone, went.truncated & ~gone
        limit = self._specs.max_episode_steps
        if limit is not None:
            truncated = truncated | ((length >= limit)[:, None] & ~terminated)
        reward = jnp.where(gone, 0.0, went.reward)
        returns = _added(before.episode_return, before.return_rest, reward)
        return returns, length, (terminated, truncated & ~terminated)

    def _start(self, state: PoolState, mask: Array) -> tuple[PoolState, Tree]:
        """The state with new episodes where the mask is set, and their first observations."""
        keys = _folded(state.key, state.draws)
        fresh, observation = jax.vmap(self._env.reset)(jax.random.wrap_key_data(keys))
        started = PoolState(
            env=jax.tree.map(partial(_where, mask), fresh, state.env),
            key=state.key,
            draws=state.draws + mask,
            over=state.over & ~mask,
            gone=state.gone & ~mask[:, None],
            episode_return=jnp.where(mask[:, None], 0.0, state.episode_return),
            return_rest=jnp.where(mask[:, None], 0.0, state.return_rest),
            episode_length=jnp.where(mask, 0, state.episode_length),
        )
        return started, self._observation(observation)

    # ---- what the environment gave, as pools give it ----

    def _clean(self, went: Step) -> Step:
        """A step of all with arrays of the shapes and dtypes of rows, [N, A, ...]."""
        shape = (self._num_envs, self._agents)

        def flag(given: Any) -> Array:
            given = jnp.asarray(given, bool)
            return jnp.broadcast_to(given.reshape(self._num_envs, -1), shape)

        reward = jnp.asarray(went.reward, jnp.float32).reshape(shape)
        observation = self._observation(went.observation)
        # Without the weak types of Python's numbers, which compiled branches would not share.
        state = jax.tree.map(lambda x: x.astype(x.dtype), went.state)
        return Step(state, observation, reward, flag(went.terminated), flag(went.truncated))

    def _observation(self, observation: Tree) -> Tree:
        """Observations [N, ...] or [N, A, ...], as those of rows [B, ...] by environment."""
        form = empty_timestep(self._specs, self._num_envs).observation
        return map_tree(
            lambda x, row: jnp.asarray(x, row.dtype).reshape(
                self._num_envs, self._agents, *row.shape[1:]
            ),
            observation,
            form,
        )

    def _timestep(
        self,
        state: PoolState,
        observation: Tree,
        reward: Array,
        terminated: Array,
        truncated: Array,
    ) -> Timestep:
        def slots(x: Array) -> Array:
            return x.reshape(-1, *x.shape[2:])

        count = len(self._specs.statistics)
        statistics = jnp.zeros((self._num_envs, 0), jnp.float32)
        if count:
            counted = jax.vmap(self._env.statistics_of)(state.env)  # type: ignore[attr-defined]
            statistics = jnp.asarray(counted, jnp.float32).reshape(self._num_envs, count)
        return Timestep(
            observation=map_tree(slots, observation),
            reward=slots(reward),
            terminated=slots(terminated),
            truncated=slots(truncated),
            episode_return=slots(state.episode_return),
            episode_length=state.episode_length,
            statistics=statistics,
            env_id=jnp.arange(self._num_envs, dtype=jnp.int32),
            lost=jnp.zeros(self._num_envs, bool),
        )

    # ---- checks ----

    def _check(self) -> None:
        """Raises UserError where shapes do not fit, which are found without computing anything."""
        key = jax.eval_shape(lambda: jax.random.key(0))
        axes = () if self._agents == 1 else (self._agents,)
        action = map_tree(
            lambda leaf: jax.ShapeDtypeStruct((*axes, *(leaf.shape or ())), action_dtype(leaf)),
            space_tree(self._specs.action),
        )
        begun = self._traced("reset", self._env.reset, key)
        if not isinstance(begun, tuple) or len(begun) != 2:
            what = f"{len(begun)} values" if isinstance(begun, tuple) else type(begun).__name__
            raise UserError(f"{self._name}: reset gave {what}; expected (state, observation)")
        state, observation = begun
        self._check_observation("reset", observation, axes)
        went = self._traced("step", self._env.step, state, action, key)
        if not isinstance(went, Step):
            raise UserError(
                f"{self._name}: step gave {type(went).__name__}; expected "
                "srl.pools.functional.environment.Step"
            )
        self._check_observation("step", went.observation, axes)
        before, after = (jax.tree.map(lambda x: (x.shape, x.dtype), s) for s in (state, went.state))
        if before != after:
            raise UserError(
                f"{self._name}: step changes the shapes or dtypes of the state that reset gave, "
                f"from {before} to {after}; keep them"
            )
        if math.prod(went.reward.shape) != math.prod(axes):
            raise UserError(
                f"{self._name}: step gave a reward of shape {went.reward.shape}; expected {axes}, "
                "one number for each agent"
            )
        for flag in ("terminated", "truncated"):
            shape = getattr(went, flag).shape
            if math.prod(shape) not in (1, math.prod(axes)):
                each = ", or one for each agent" if axes else ""
                raise UserError(
                    f"{self._name}: step gave {flag} of shape {shape}; expected one bool{each}"
                )
        self._check_statistics(state)

    def _check_statistics(self, state: Tree) -> None:
        names = self._specs.statistics
        if not names:
            return
        count, what = getattr(self._env, "statistics_of", None), "is missing"
        if count is not None:
            given = self._traced("statistics_of", count, state)
            shape = getattr(given, "shape", None)
            if shape is not None and math.prod(shape) == len(names):
                return
            kind = type(given).__name__
            what = f"gave {kind}" if shape is None else f"gave an array of shape {shape}"
        raise UserError(
            f"{self._name}: statistics names {', '.join(names)}, and statistics_of(state) {what}; "
            f"expected ({len(names)},)"
        )

    def _traced(self, call: str, function: Any, *operands: Any) -> Any:
        try:
            return jax.eval_shape(function, *operands)
        except (Exception, SystemExit) as error:
            what = f"{type(error).__name__}: {error}"
            raise UserError(f"{self._name}: {call} cannot be traced by JAX: {what}") from error

    def _check_observation(self, call: str, observation: Tree, axes: tuple[int, ...]) -> None:
        space = space_tree(self._specs.observation)
        if jax.tree.structure(observation) != jax.tree.structure(map_tree(lambda leaf: 0, space)):
            raise UserError(
                f"{self._name}: {call} gave an observation of another structure than "
                f"{self._specs.observation}"
            )
        for array, leaf in zip(leaves_of(observation), leaves_of(space), strict=True):
            if array.shape != (*axes, *(leaf.shape or ())):
                raise UserError(
                    f"{self._name}: {call} gave an observation of shape {array.shape}; expected "
                    f"{(*axes, *(leaf.shape or ()))}, of {leaf}"
                )
            if (
                array.dtype.kind == "f"
                and np.dtype(leaf.dtype).kind in "iu"
                and not has_choices(leaf)
            ):
                raise UserError(
                    f"{self._name}: {call} gave an observation of {array.dtype}; expected whole "
                    f"numbers, of {leaf}"
                )


def action_dtype(leaf: Space) -> Any:
    """Gives the dtype in which environments get actions of a space without parts."""
    return jnp.int32 if jnp.issubdtype(leaf.dtype, jnp.integer) else jnp.float32  # pyright: ignore[reportArgumentType]


def _added(total: Array, rest: Array, x: Array) -> tuple[Array, Array]:
    """Adds to a sum of two floats, since JAX has no float64 (Knuth, TAOCP 2, 4.2.2, theorem B)."""
    rough = total + x
    back = rough - total
    rest = rest + ((total - (rough - back)) + (x - back))
    exact = rough + rest
    return exact, rest - (exact - rough)


def _folded(keys: Array, numbers: Array) -> Array:
    """Keys [N, 2] folded with a number each."""

    def fold(key: Array, number: Array) -> Array:
        return jax.random.key_data(jax.random.fold_in(jax.random.wrap_key_data(key), number))

    return jax.vmap(fold)(keys, numbers)


def _zeros(x: Any) -> Array:
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.zeros((*x.shape, 2), jnp.uint32))
    return jnp.zeros(x.shape, x.dtype)


def _where(mask: Array, new: Array, old: Array) -> Array:
    """Rows [N, ...] of `new` where the mask is set, of the dtype of `old`."""
    new = new if new.dtype == old.dtype else new.astype(old.dtype)
    if not new.size:
        return new  # Warp's data has arrays without rows.
    return jnp.where(mask.reshape(-1, *(1,) * (jnp.ndim(new) - 1)), new, old)
