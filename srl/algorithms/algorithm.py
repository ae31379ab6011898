"""What an algorithm is: a configuration, and pure functions bound to the specs of an environment.

Nothing here knows a process, a socket, a device or a plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from srl.dataflow.loop import Loop
from srl.errors import expect_number
from srl.types import Array, Decision, Metrics, Policy, Specs, Timestep, Tree, Unroll


class State(NamedTuple):
    """All that learning changes, and so all that a checkpoint of a learner holds."""

    params: Tree  # {"policy": ..., "value": ...}
    optimizer: Tree
    observations: Tree  # statistics of observations
    values: Tree  # statistics of value targets
    key: Array  # raw data of the random key that minibatches are drawn with; never changes
    n: Array  # int32 [], finished calls of `learn`


@dataclass(frozen=True)
class Algorithm:
    """Base of the algorithm configurations."""

    unroll_length: int = 32
    """Steps that are taken with one version of the policy before they are learned from."""
    discount: float = 0.99
    """Weight of a reward one step later."""

    limits: ClassVar[Mapping[str, tuple[float, ...]]] = {
        "unroll_length": (1,),
        "discount": (0.0, 1.0),
    }
    """The least and, where there is one, the largest value of settings."""

    def loop(self, run: Loop) -> None:
        """One update: unroll the newest policy, then learn from what it did.

        This is the whole training loop of an on-policy algorithm. Its graph is traced from here.
        """
        policy = run.latest()

        def interact(timestep: Timestep, memory: Tree) -> tuple[Timestep, Tree, Any]:
            decision = run.act(policy, timestep, memory)
            following = run.step(decision.action)
            return following, decision.memory, run.collect(timestep, decision)

        unroll = run.unroll(interact, self.unroll_length)
        run.learn(run.gather(unroll))

    def validate(self) -> None:
        """Raises UserError where a setting is out of its limits."""
        for name, limits in self.limits.items():
            expect_number(f"algorithm.{name}", getattr(self, name), *limits)

    def bind(self, specs: Specs, updates: int | None = None) -> Instance:
        """Gives the functions for one trained policy.

        Args:
            specs: What the policy's agents observe and do.
            updates: How many calls of `learn` the run makes; None where that is not known, and then
                nothing is annealed.
        """
        raise NotImplementedError


class Instance:
    """The pure functions of one trained policy, over B slots."""

    def init(self, key: Array) -> State:
        """Draws a state to start from."""
        raise NotImplementedError

    def policy(self, state: State) -> Policy:
        """Gives what acting needs of the state."""
        raise NotImplementedError

    def initial_memory(self, batch: int) -> Tree:
        """Gives the memory of `batch` slots at the start of an episode."""
        raise NotImplementedError

    def act(self, policy: Policy, observation: Tree, memory: Tree, keys: Array) -> Decision:
        """Draws an action for each slot with its own random key: keys [B]."""
        raise NotImplementedError

    def act_greedy(self, policy: Policy, observation: Tree, memory: Tree) -> Decision:
        """Takes the most probable action for each slot."""
        raise NotImplementedError

    def env_action(self, action: Array) -> Array:
        """Gives what the simulator takes for the actions of a decision; needs no JAX."""
        raise NotImplementedError

    def learn(self, state: State, unroll: Unroll) -> tuple[State, Metrics]:
        """Improves the policy with one batch."""
        raise NotImplementedError
