"""What an algorithm is: a configuration, and pure functions bound to the specs of an environment.

Nothing here knows a process, a socket, a device or a plan.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from srl.dataflow.loop import Loop
from srl.errors import UserError, expect_number
from srl.lazy import jax, jnp
from srl.types import Array, Decision, Metrics, Policy, Specs, Timestep, Tree, Unroll


class State(NamedTuple):
    """All that learning changes, and so all that a checkpoint of a learner holds."""

    params: Tree
    optimizer: Tree
    key: Array  # raw data of the random key that minibatches are drawn with; never changes
    n: Array  # int32 [], finished calls of `learn`
    observations: Tree = ()  # statistics of observations
    values: Tree = ()  # statistics of value targets
    advantages: Tree = ()  # statistics of the present batch's advantages


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
        """Raises UserError where a setting is out of its limits, or the algorithm not complete."""
        for instance in self._instances():
            instance.expect_complete()
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

    def _instances(self) -> list[type[Instance]]:
        """The classes that `bind` names: what it makes is known only once there are specs.

        Raises:
            UserError: If there is no `bind`.
        """
        kind = type(self)
        if kind.bind is Algorithm.bind:
            raise UserError(
                f"the algorithm {kind.__name__} has no bind(self, specs, updates=None), which "
                "gives its Instance; docs/write_an_algorithm.md shows one"
            )
        bind = inspect.unwrap(kind.bind)
        named = [bind.__globals__.get(name) for name in bind.__code__.co_names]
        return [value for value in named if isinstance(value, type) and issubclass(value, Instance)]


@dataclass(frozen=True)
class Instance(ABC):
    """The pure functions of one trained policy, over B slots.

    Learning is split where data meets parameters: `measure` and `gradient` look at slots and give
    sums, which add up over any division of the batch by slots; `adapt`, `update` and `finish` take
    the total and change the state. `learn` says how these follow each other.
    """

    config: Algorithm
    specs: Specs
    updates: int | None = None
    """How many updates the run makes, where that is known."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        """Refuses a class that is not complete."""
        cls.expect_complete()
        return super().__new__(cls)

    @classmethod
    def expect_complete(cls) -> None:
        """Raises UserError where the class lacks what every algorithm has to have."""
        missing = sorted(cls.__abstractmethods__)
        if missing:
            raise UserError(
                f"the algorithm's {cls.__name__} has no {', '.join(missing)}: write "
                f"{'it' if len(missing) == 1 else 'them'}; docs/write_an_algorithm.md shows how"
            )

    @property
    def chunk(self) -> int:
        """Steps between two memories that an unroll keeps; its whole length without memory."""
        return self.config.unroll_length

    @property
    def rounds(self) -> int:
        """Gradient steps of one `learn`."""
        return 1

    # Acting.

    @abstractmethod
    def init(self, key: Array) -> State:
        """Draws a state to start from."""
        raise NotImplementedError

    @abstractmethod
    def policy(self, state: State) -> Policy:
        """Gives what acting needs of the state.

        These may be the state's own arrays: copy them before the state is donated.
        """
        raise NotImplementedError

    def initial_memory(self, batch: int) -> Tree:
        """Gives the memory of `batch` slots at the start of an episode; () for none."""
        return ()

    @abstractmethod
    def act(self, policy: Policy, observation: Tree, memory: Tree, keys: Array) -> Decision:
        """Draws an action for each slot with its own random key: keys [B]."""
        raise NotImplementedError

    def act_greedy(self, policy: Policy, observation: Tree, memory: Tree) -> Decision:
        """Takes the most probable action for each slot."""
        raise NotImplementedError

    def env_action(self, action: Array) -> Array:
        """Gives what the simulator takes for the actions of a decision; needs no JAX."""
        return action

    # Learning.

    def measure(self, state: State, unroll: Unroll) -> tuple[Tree, Tree]:
        """Gives the batch to learn from, and sums over its slots, before any gradient step."""
        return unroll, ()

    def adapt(self, state: State, sums: Tree) -> State:
        """Takes in what was measured, before any gradient step."""
        return state

    @abstractmethod
    def gradient(self, state: State, batch: Tree, round: Array) -> Tree:
        """Gives sums over the batch's slots: of the gradient, of metrics, and a count.

        Args:
            state: Its `params` are the newest; `optimizer` is not looked at.
            batch: From `measure`.
            round: int32 [], which of the `rounds` this is.
        """
        raise NotImplementedError

    @abstractmethod
    def update(self, state: State, sums: Tree) -> tuple[State, Metrics]:
        """Takes a gradient step."""
        raise NotImplementedError

    def finish(self, state: State, sums: Tree) -> tuple[State, Metrics]:
        """Counts the update, and takes in what was measured that the rounds should not see.

        Args:
            state: After the last gradient step.
            sums: The total of what `measure` gave.
        """
        return state._replace(n=state.n + 1), {}

    def learn(
        self, state: State, unroll: Unroll, total: Callable[[Tree], Tree] = lambda sums: sums
    ) -> tuple[State, Metrics]:
        """Improves the policy with one batch.

        Args:
            state: What was learned before.
            unroll: The slots of the batch that are here.
            total: Adds sums to those of the slots that are elsewhere.

        Returns:
            The new state, and metrics: the means over the rounds, and what `finish` gave.
        """
        batch, sums = self.measure(state, unroll)
        sums = total(sums)

        def step(state: State, round: Array) -> tuple[State, Metrics]:
            return self.update(state, total(self.gradient(state, batch, round)))

        state, metrics = jax.lax.scan(step, self.adapt(state, sums), jnp.arange(self.rounds))
        state, finished = self.finish(state, sums)
        return state, {**{name: jnp.mean(x) for name, x in metrics.items()}, **finished}
