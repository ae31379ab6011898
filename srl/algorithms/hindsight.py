"""Hindsight experience replay (Andrychowicz et al., 2017, https://arxiv.org/abs/1707.01495).

Of the windows of rows that are drawn from a replay, most get another goal: one that their episode
has reached later (the paper's strategy "future"), as far as the unroll shows it. Observations have
the keys of Gymnasium-Robotics: `achieved_goal` and `desired_goal`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from srl.algorithms.replay import Draws, Replay
from srl.core.errors import UserError, reported
from srl.core.lazy import jax, jnp
from srl.core.settings import NotNegative, Range, Settings
from srl.core.spaces import narrow_dtype, spaces
from srl.core.types import Array, Specs

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"


@dataclass(frozen=True)
class Hindsight(Settings):
    """The settings of hindsight goals."""

    k: Annotated[int, Range(1)] = 4
    """Windows with another goal for each that keeps its own."""
    distance: NotNegative = 0.05
    """The largest distance from the goal that counts as success: the reward is 0 there, elsewhere
    -1, as the sparse rewards of Gymnasium-Robotics are."""
    reward: Callable[[Array, Array], Array] | None = None
    """The environment's `compute_reward` in JAX in place of that: of achieved and desired goals
    [..., *goal], float32 [...]."""
    terminated: Callable[[Array, Array], Array] | None = None
    """The environment's `compute_terminated` in JAX, bool [...]. Without it the ends of episodes do
    not depend on goals."""

    def expect_fit(self, specs: Specs) -> None:
        """Raises UserError unless observations have goals, of one shape."""
        space = specs.observation
        goals = space.spaces if isinstance(space, spaces.Dict) else {}
        shapes = [getattr(goals.get(key), "shape", None) for key in (ACHIEVED, DESIRED)]
        if shapes[0] is None or shapes[0] != shapes[1]:
            raise UserError(
                f"algorithm.hindsight needs observations with {ACHIEVED} and {DESIRED} of one "
                f"shape, and the observation space is {space}: leave it out"
            )
        pair = [
            jax.ShapeDtypeStruct((1, 2, 3, *shapes[0]), narrow_dtype(goals[key].dtype))
            for key in (ACHIEVED, DESIRED)
        ]
        for name, function in (("reward", self.reward), ("terminated", self.terminated)):
            if function is not None:
                _expect_form(f"algorithm.hindsight.{name}", function, pair)

    def relabelled(
        self,
        transform: Callable[[Array], Array],
        window: Replay,
        unrolls: Replay,
        draws: Draws,
        number: Array,
    ) -> Replay:
        """Gives windows of which k in k + 1 have a goal that was reached later.

        Args:
            transform: Gives the rewards to learn from, of the environment's.
            window: [rounds, L, S, ...].
            unrolls: The windows' source, with all rows.
            draws: The windows' first rows, [rounds, S].
            number: float32 [rounds, S, 2], random numbers from 0 to 1.
        """
        others = number[..., 1] < self.k / (self.k + 1)
        observation, others = window.observation, others[:, None]
        reached = _reached_later(unrolls, draws, number[..., 0])[:, None]
        own, achieved = observation[DESIRED], observation[ACHIEVED]
        goal = jnp.where(others.reshape(*others.shape, *[1] * (own.ndim - 3)), reached, own)
        reward = transform((self.reward or self.sparse_reward)(achieved, goal))
        terminated = window.terminated
        if self.terminated is not None:
            terminated = jnp.where(others, self.terminated(achieved, goal), terminated)
        return window._replace(
            observation={**observation, DESIRED: goal},
            reward=jnp.where(others, reward, window.reward).astype(window.reward.dtype),
            terminated=terminated,
            # The rows after an end are of another episode, although its goal was not the new one.
            truncated=window.truncated | (window.terminated & ~terminated),
        )

    def sparse_reward(self, achieved: Array, desired: Array) -> Array:
        """Gives 0 within the distance, elsewhere -1: goals [rounds, L, S, *goal] to float32."""
        axes = tuple(range(3, achieved.ndim))
        difference = achieved.astype(jnp.float32) - desired.astype(jnp.float32)
        far = jnp.sqrt(jnp.sum(jnp.square(difference), axis=axes)) > self.distance
        return -far.astype(jnp.float32)


def _expect_form(name: str, function: Callable[[Array, Array], Array], pair: list[Any]) -> None:
    """Raises UserError unless a function in JAX gives [...] of two goals [..., *goal]."""
    shape, leading = pair[0].shape, pair[0].shape[:3]
    expected = f"expected a function in JAX of achieved and desired goals: {leading} of two {shape}"
    with reported(name, expected):
        form = jax.eval_shape(lambda *x: function(*x), *pair)
    given = getattr(form, "shape", type(form).__name__)
    if given != leading:
        raise UserError(f"{name} gives {given}; {expected}")


def _reached_later(unrolls: Replay, draws: Draws, part: Array) -> Array:
    """Gives the goal that was achieved at a later row of the same episode, [rounds, S, *goal].

    Args:
        unrolls: The source.
        draws: First rows of windows, [rounds, S].
        part: float32 [rounds, S], from 0 for the next row to 1 for the episode's or unroll's last.
    """
    rows = unrolls.reward.shape[1]
    ended = (unrolls.terminated | unrolls.truncated)[draws.block, :, draws.column]
    ends = ended & (jnp.arange(rows) > draws.row[..., None])
    last = jnp.where(jnp.any(ends, axis=-1), jnp.argmax(ends, axis=-1), rows - 1)
    later = draws.row + 1 + (part * (last - draws.row)).astype(jnp.int32)
    return unrolls.observation[ACHIEVED][draws.block, jnp.minimum(later, last), draws.column]
