"""The memory of networks that do not act, such as values and critics, from unroll to unroll.

Acting does not know it, so those who learn carry it from update to update.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from srl.algorithms.returns import where_rows
from srl.core.lazy import jax, jnp
from srl.core.types import Array, Tree, Unroll


class CarriedMemory(NamedTuple):
    """The memory of B slots, before the first and the last row of their unrolls."""

    memory: Tree  # [2, 1, B, ...]
    observation: Tree  # [2, 1, B, ...], at these rows
    policy: Tree  # [2, 1, B, units], the policy's memory before the first and the last chunk


def empty_memory(nothing: Tree, unroll: Unroll) -> CarriedMemory:
    """Gives the memory of nothing, [B, ...], for the slots of an unroll."""
    first = jax.tree.map(lambda x: x[0], (unroll.observation, unroll.memory))
    return jax.tree.map(
        lambda x: jnp.zeros((2, 1, *x.shape), x.dtype), CarriedMemory(nothing, *first)
    )


def memory_before(nothing: Tree, unroll: Unroll, carried: Tree) -> Tree:
    """Gives the memory before an unroll's first row, [B, ...].

    It is what it was when the same row was last seen: at the end of the slot's last unroll, or at
    its start if the unroll is learned from once more. A slot whose policy remembers nothing, or of
    which an unroll is missing, remembers nothing. Where all rows look alike, a missing unroll goes
    unnoticed.

    Args:
        nothing: The memory of nothing, [B, ...].
        unroll: Of B slots.
        carried: A `CarriedMemory`; () remembers nothing.
    """
    if not carried:
        return nothing
    seen, policy = jax.tree.map(lambda x: x[0], (unroll.observation, unroll.memory))
    start, end = (jax.tree.map(lambda x, k=k: x[k, 0], carried) for k in (0, 1))
    no_policy = jax.tree.map(jnp.zeros_like, policy)
    goes_on = _equal_rows(end.observation, seen) & ~_equal_rows(policy, no_policy)
    again = _equal_rows((start.observation, start.policy), (seen, policy))
    return where_rows(again, start.memory, where_rows(goes_on, end.memory, nothing))


def memory_after(unroll: Unroll, memories: Tree, carried: Tree) -> Any:
    """Gives the `CarriedMemory` after an unroll, or () where there was none.

    Args:
        unroll: Of B slots.
        memories: [T + 1, B, ...], before each row.
        carried: That before it, or ().
    """
    if not carried:
        return carried
    rows = CarriedMemory(memories, unroll.observation, unroll.memory)
    return jax.tree.map(lambda x: jnp.stack([x[:1], x[-1:]]), rows)


def _equal_rows(one: Tree, other: Tree) -> Array:
    """Tells which rows of two trees [B, ...] are equal, bool [B]."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    equal = [jnp.all((a == b).reshape(len(a), -1), axis=1) for a, b in pairs]
    return jnp.all(jnp.stack(equal), axis=0)
