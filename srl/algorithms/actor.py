"""The interface of the functions that act."""

from __future__ import annotations

from typing import Protocol

from srl.algorithms.distributions import Distribution
from srl.core.types import Array, Policy, Tree


class Actor(Protocol):
    """The functions that act, over B slots."""

    def initial_memory(self, batch: int) -> Tree:
        """Gives the memory of `batch` slots at the start of an episode; () for none."""
        ...

    def distribution(
        self, policy: Policy, observation: Tree, memory: Tree, slot: Array
    ) -> tuple[Distribution, Tree]:
        """Gives the distribution of each slot's action, and the memory after it.

        Args:
            policy: From `Instance.policy`.
            observation: [B, ...].
            memory: [B, ...], of these slots.
            slot: int32 [B], which of the policy's slots in the run these are.
        """
        ...

    def env_action(self, action: Tree) -> Tree:
        """Gives what the simulator takes for actions; needs no JAX."""
        ...
