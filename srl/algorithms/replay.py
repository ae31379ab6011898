"""A replay: the last unrolls of the slots here, and windows of rows taken from it.

A batch made longer in time: block n mod K is the unroll of update n, with its bootstrap row, so
that a window of rows never leaves its unroll. One that begins near the end is cut short: it counts
as truncated at the unroll's last row. Observations are stored as they come; of stacks, each
observation once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from srl.algorithms.frames import FrameStack
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.tree import map_tree
from srl.core.types import Array, Tree, Unroll


class Replay(NamedTuple):
    """The last K unrolls of B slots; block n mod K is that of update n."""

    observation: Tree  # [K, T + 1, B, ...]
    reward: Array  # float32 [K, T + 1, B]
    terminated: Array  # bool [K, T + 1, B]
    truncated: Array  # bool [K, T + 1, B]
    action: Array  # [K, T, B, ...]
    memory: Tree  # [K, T / chunk, B, ...], before the first row of each chunk; () without memory
    update: Array = ()  # int32 [K, 1, B], whose unroll a block is; -1 before there is one
    earlier: Tree = ()  # [K, 1, B, frames - 1, ...], before the first row, of stacks alone
    begin: Array = ()  # int32 [rounds, S], of windows: their first row after the burn-in


class Rows(NamedTuple):
    """Rows of B slots, [L, B, ...], for networks with memory."""

    observation: Tree
    action: Array
    ended: Array  # bool, rows that end an episode


_MOST_ROWS = 2**31 - 1


def empty(unroll: Unroll, blocks: int, stack: FrameStack | None = None) -> Replay:
    """Gives a replay of no unrolls, for those of this shape; of `stack`s, where that is given."""

    def zeros(x: Array) -> Array:
        return jnp.zeros((blocks, *x.shape), x.dtype)

    none = jnp.full((blocks, 1, unroll.reward.shape[1]), -1, jnp.int32)
    return jax.tree.map(zeros, _rows(unroll, stack))._replace(update=none)


def insert(replay: Replay, unroll: Unroll, n: Array, stack: FrameStack | None = None) -> Replay:
    """Gives the replay with the unroll of update n; to insert it twice changes nothing."""
    update = jnp.full((1, unroll.reward.shape[1]), n, jnp.int32)
    rows = _rows(unroll, stack)._replace(update=update)
    return jax.tree.map(lambda x, block: write(x, block, n), replay, rows)


def write(x: Array, block: Array, n: Array) -> Array:
    """Gives x [K, ...] with block n mod K replaced."""
    return jax.lax.dynamic_update_index_in_dim(x, block, n % len(x), 0)


def windows(unroll: Unroll, length: int, stride: int = 1, burn_in: int = 0) -> Replay:
    """Gives all windows of an unroll, [1, burn_in + length, W * B, ...], as `Draws.take` does some.

    Args:
        unroll: Of B slots.
        length: Rows of a window.
        stride: Rows from one window's first to the next one's.
        burn_in: Rows before these; fewer at the unroll's start.
    """
    rows, slots = unroll.reward.shape
    starts = jnp.arange(0, rows - 1, stride, dtype=jnp.int32)
    row, column = (x.reshape(1, -1) for x in jnp.meshgrid(starts, jnp.arange(slots), indexing="ij"))
    draws = Draws(jnp.zeros_like(row), row, column, unroll.slot[column])
    return draws.take(jax.tree.map(lambda x: x[None], _rows(unroll)), length, burn_in=burn_in)


def _rows(unroll: Unroll, stack: FrameStack | None = None) -> Replay:
    observation, earlier = unroll.observation, ()
    if stack is not None:
        first = jax.tree.map(lambda x: x[0], observation)
        earlier = jax.tree.map(lambda x: x[None], stack.earlier(first))
        observation = stack.newest(observation)
    return Replay(
        observation=observation,
        reward=unroll.reward,
        terminated=unroll.terminated,
        truncated=unroll.truncated,
        action=unroll.action,
        memory=unroll.memory,
        earlier=earlier,
    )


class Draws(NamedTuple):
    """Windows of rows that were drawn, [rounds, S], each of one slot and one unroll."""

    block: Array  # int32
    row: Array  # int32, the first
    column: Array  # int32, of the slots here
    slot: Array  # int32, of the run's slots

    def of(self, x: Array) -> Array:
        """Gives what belongs to each window's first row: [K, T, B, ...] to [rounds, S, ...]."""
        return x[self.block, self.row, self.column]

    def take(
        self, replay: Replay, length: int, stack: FrameStack | None = None, burn_in: int = 0
    ) -> Replay:
        """Gives the windows, [rounds, burn_in + length, S, ...], and one action less.

        They begin `burn_in` rows before the rows that were drawn, or at row 0 of the unroll;
        `begin` tells how many rows before. A window that reaches its unroll's last row is truncated
        there; copies of that row follow. The memory is that before the first rows, [rounds, S,
        ...], which are first rows of chunks.

        Args:
            replay: The unrolls.
            length: Rows of a window from the one that was drawn on.
            stack: The stacking of observations, where there is one.
            burn_in: Rows before these.

        Raises:
            UserError: If there are more rows than JAX can count.
        """
        first = self._replace(row=jnp.maximum(self.row - burn_in, 0))
        rows = first._rows(replay, burn_in + length, stack)
        return rows._replace(begin=self.row - first.row)

    def _rows(self, replay: Replay, length: int, stack: FrameStack | None) -> Replay:
        if replay.reward.size > _MOST_ROWS:
            raise UserError(
                f"the replay would hold {replay.reward.size:,} rows, and JAX counts to "
                f"{_MOST_ROWS:,}: give a smaller algorithm.replay"
            )

        def taken(x: Array, length: int, first: int = 0) -> Array:
            """Rows from `first` after each window's first one; beyond both ends, the end's row."""
            _, rows, slots = x.shape[:3]
            row = jnp.clip(self.row[:, None] + jnp.arange(first, length)[:, None], 0, rows - 1)
            index = (self.block[:, None] * rows + row) * slots + self.column[:, None]
            return x.reshape(-1, *x.shape[3:])[index]

        steps = replay.action.shape[1]

        def before(x: Array) -> Array:
            return x[self.block, self.row // (steps // x.shape[1]), self.column]

        others = replay._replace(action=(), memory=(), update=(), earlier=(), begin=())
        rows: Replay = jax.tree.map(lambda x: taken(x, length), others)
        last = self.row[:, None] + jnp.arange(length)[:, None] >= steps
        rows = rows._replace(truncated=rows.truncated | last)
        if stack is not None:
            rows = rows._replace(observation=self._stacks(replay, length, stack, taken))
        return rows._replace(
            action=taken(replay.action, length - 1), memory=jax.tree.map(before, replay.memory)
        )

    def _stacks(
        self, replay: Replay, length: int, stack: FrameStack, taken: Callable[..., Array]
    ) -> Tree:
        """The stacks of the windows' rows: [rounds, length, S, ...]."""
        first = 1 - stack.frames  # of the rows that these are made of, from a window's own first
        row = self.row[:, None] + jnp.arange(first, length)[:, None]  # [rounds, L, S]
        begun = row >= 0

        def frames(x: Array, earlier: Tree) -> Array:
            held = taken(x, length, first)
            if isinstance(earlier, tuple):  # of what is not stacked
                return held
            place = jnp.minimum(row - first, stack.frames - 2)
            earlier = earlier[self.block[:, None], 0, self.column[:, None], place]
            return jnp.where(begun.reshape(*begun.shape, *[1] * (x.ndim - 3)), held, earlier)

        observation = map_tree(frames, replay.observation, replay.earlier)
        ended = jnp.logical_or(replay.terminated, replay.truncated)
        ended = taken(ended, length, first) & begun
        nothing = stack.nothing(row.shape[-1])
        stacks = jax.vmap(lambda rows, ends: stack.of_rows(nothing, rows, ends))(observation, ended)
        return jax.tree.map(lambda x: x[:, -first:], stacks)


class Transitions(NamedTuple):
    """Steps of n rows each, [..., S, ...]."""

    observation: Tree
    action: Array
    reward: Array  # the discounted sum up to the last row, or to the episode's end
    discount: Array  # of the value of the last observation: 0 where the episode terminated
    last: Tree  # observation that is bootstrapped from
    valid: Array  # bool; False where the first row ended an episode
    memories: Tree = ()  # before the first row, by network; () without memory
    last_memories: Tree = ()  # before the last one

    def memory(self, network: str) -> Tree:
        """Gives a network's memory before the first rows, [..., S, ...]; () without memory."""
        return self.memories[network] if self.memories else ()

    def last_memory(self, network: str) -> Tree:
        """Gives a network's memory before the last observations; see `memory`."""
        return self.last_memories[network] if self.last_memories else ()


def transitions(window: Replay, discount: float) -> Transitions:
    """Gives the n-step transitions of windows of n + 1 rows, [rounds, n + 1, S, ...].

    Memory is that before each of these rows, or ().

    A window that meets the end of its episode, or of its unroll, stops there, with the discount of
    the steps that it has: a terminated row is worth nothing, any other last one its own value.
    """
    ended = jnp.logical_or(window.terminated, window.truncated)
    n = ended.shape[1] - 1
    # Rows whose action counts.
    going = jnp.cumprod(jnp.logical_not(ended[:, :-1]), axis=1).astype(bool)
    powers = discount ** jnp.arange(n, dtype=jnp.float32)
    reward = jnp.sum(jnp.where(going, window.reward[:, 1:], 0.0) * powers[:, None], axis=1)
    steps = jnp.maximum(jnp.sum(going, axis=1), 1)  # to the row that is bootstrapped from

    def at_last(x: Array) -> Array:
        index = steps.reshape(steps.shape[0], 1, *steps.shape[1:], *[1] * (x.ndim - 3))
        return jnp.take_along_axis(x, index, axis=1)[:, 0]

    terminated = at_last(window.terminated)
    return Transitions(
        observation=jax.tree.map(lambda x: x[:, 0], window.observation),
        action=window.action[:, 0],
        reward=reward,
        discount=jnp.where(terminated, 0.0, discount ** steps.astype(jnp.float32)),
        last=jax.tree.map(at_last, window.observation),
        valid=~ended[:, 0],
        memories=jax.tree.map(lambda x: x[:, 0], window.memory),
        last_memories=jax.tree.map(at_last, window.memory),
    )
