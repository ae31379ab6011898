"""Symmetry: an environment whose mirror image behaves as it does, such as a robot with two sides.

Learning sees mirrored observations and actions as well (Abdolhosseini et al., 2019,
https://doi.org/10.1145/3359566.3360070, "DUP"): half of what is drawn from a replay is replaced by
its mirror image, and PPO's minibatches are as long again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from srl.algorithms.replay import Draws, Replay
from srl.core.errors import UserError, reported
from srl.core.lazy import jax, jnp
from srl.core.settings import Settings
from srl.core.spaces import Space, narrow_dtype, space_tree, spaces
from srl.core.tree import map_tree
from srl.core.types import Array, Specs, Tree


@dataclass(frozen=True)
class Mirror(Settings):
    """A symmetry: two functions in JAX, each of which undoes itself."""

    observation: Callable[[Tree], Tree]
    """Mirrors observations [..., *shape]."""
    action: Callable[[Tree], Tree]
    """Mirrors actions [..., *shape]. Numbers with bounds are scaled to -1 and 1; a choice is its
    index."""

    def expect_fit(self, specs: Specs) -> None:
        """Raises UserError unless both functions keep the form of values, and undo themselves."""
        for name, mirror, space in (
            ("observation", self.observation, specs.observation),
            ("action", self.action, specs.action),
        ):
            _expect_mirror(f"algorithm.mirror.{name}", mirror, space)

    def flipped(self, window: Replay, unrolls: Replay, draws: Draws, number: Array) -> Replay:
        """Gives windows of which half are mirrored; for arguments see `Hindsight.relabelled`."""
        del unrolls, draws
        flip = number[:, None, :, 0] < 0.5

        def some(mirror: Callable[[Tree], Tree], x: Tree) -> Tree:
            def choose(other: Array, x: Array) -> Array:
                return jnp.where(flip.reshape(*flip.shape, *[1] * (x.ndim - 3)), other, x)

            return jax.tree.map(choose, mirror(x), x)

        observation = some(self.observation, window.observation)
        return window._replace(observation=observation, action=some(self.action, window.action))

    def doubled(self, samples: Any) -> Any:
        """Gives samples [S, ...] and their mirror images, [2 S, ...].

        Args:
            samples: A NamedTuple with `observation` and `action`; all else has no sides.
        """
        mirrored = samples._replace(
            observation=self.observation(samples.observation), action=self.action(samples.action)
        )
        return jax.tree.map(lambda *both: jnp.concatenate(both), samples, mirrored)


def _expect_mirror(name: str, mirror: Callable[[Tree], Tree], space: Space) -> None:
    """Raises UserError unless a function of values of a space is a mirror."""

    def forms(tree: Tree) -> Any:
        return jax.tree.map(lambda x: (x.shape, str(x.dtype)), tree)

    values = map_tree(_values, space_tree(space))
    with reported(name, f"it cannot mirror values of {space}: expected a function in JAX"):
        given = forms(jax.eval_shape(lambda x: mirror(x), values))
    if given != forms(values):
        raise UserError(
            f"{name} gives {given} for {forms(values)}; a mirror image has the same form"
        )
    with jax.ensure_compile_time_eval():
        twice = mirror(mirror(values))
        same = jax.tree.map(lambda a, b: np.allclose(a, b, rtol=1e-5, atol=1e-6), twice, values)
    if not all(jax.tree.leaves(same)):
        raise UserError(
            f"{name} is no mirror: to apply it twice changes values of {space}; check signs and "
            "order"
        )


def _values(leaf: Any) -> np.ndarray:
    """Draws three values of a part of a space, as learning has them."""
    random = np.random.default_rng(0)
    if isinstance(leaf, spaces.Discrete):
        return random.integers(0, leaf.n, 3, dtype=np.int32)
    dtype = narrow_dtype(leaf.dtype)
    if dtype.kind == "f":
        return random.uniform(-1, 1, (3, *leaf.shape)).astype(dtype)
    return random.integers(0, 2, (3, *leaf.shape)).astype(dtype)
