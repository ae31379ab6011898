"""The base of algorithms that learn from a replay: its size, its use, and target networks.

By default transitions are drawn evenly. The rounds of an update take gradient steps once enough
steps were taken to begin with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from srl.algorithms.normalization import Observing
from srl.algorithms.observing import ObservingAlgorithm, ObservingInstance
from srl.algorithms.optimizer_step import mean_of
from srl.algorithms.replay import (
    Replay,
    Transitions,
    draw,
    empty,
    filled,
    insert,
    portions,
    transitions,
)
from srl.algorithms.returns import sums_over
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp, optax
from srl.core.types import Array, Metrics, Tree, Unroll
from srl.networks import MLP, AutoNetwork, Network


@dataclass(frozen=True)
class OffPolicy(ObservingAlgorithm):
    """Settings of the replay, and of how often it is learned from."""

    unroll_length: int = 8
    """Steps that are taken with one version of the policy before they are learned from."""
    network: Network = field(default_factory=lambda: AutoNetwork(MLP(width=256, activation="relu")))
    """Network of the actor and of the critics; by default chosen by what is observed."""
    normalize_observations: bool = False
    """Standardise observations by running statistics, as they are when they are drawn."""
    replay: int = 1_000_000
    """The capacity of the replay, in steps of all environments."""
    warm_up: int = 5_000
    """Steps before learning begins; continuous actions are drawn evenly till then."""
    batch_size: int = 256
    """Transitions of a gradient step, rounded to a multiple or a part of the slots."""
    samples_per_insert: float = 256.0
    """The number of times that each step is learned from, on average; 256 in a batch of 256 is a
    gradient step each. The rounding of the batch does not change it."""
    n_step: int = 1
    """Steps of a transition, which lies within an unroll: none begins at an unroll's last
    n_step - 1 steps."""
    target_rate: float = 0.005
    """The part by which target networks move towards the networks where they do."""
    target_period: int = 1
    """Gradient steps, of TD3 those of the actor, from one move of the target networks to the next:
    with a `target_rate` of 1 networks are copied whole, as in DQN's paper (Mnih et al., 2015) at
    every 10,000th."""
    keep_replay: bool = True
    """True if checkpoints hold the replay. Otherwise a resumed run begins with an empty one, which
    it fills by as many steps as `warm_up` before it goes on learning."""

    limits: ClassVar[Mapping[str, tuple[float, ...]]] = {
        **ObservingAlgorithm.limits,
        "replay": (1,),
        "warm_up": (0,),
        "batch_size": (1,),
        "samples_per_insert": (0.001,),
        "n_step": (1,),
        "target_rate": (0.0, 1.0),
        "target_period": (1,),
    }
    sequences: ClassVar[bool] = False
    """True if the algorithm learns from sequences, as a network with memory needs."""

    @property
    def saves_replay(self) -> bool:
        """True if checkpoints hold the replay."""
        return self.keep_replay

    def validate(self) -> None:
        """Raises UserError where settings are out of their limits or do not fit each other."""
        super().validate()
        name = type(self).__name__
        if self.n_step > self.unroll_length:
            raise UserError(
                f"{name} with n_step={self.n_step} and unroll_length={self.unroll_length}: a "
                "transition lies within an unroll; give longer unrolls"
            )
        if self.network.memory and not self.sequences:
            raise UserError(
                f"{name} learns from single transitions, and the network has memory: take R2D2 or "
                "PQN for discrete actions, PPO for others"
            )


class OffPolicyState(Observing, Protocol):
    """A state with target networks."""

    @property
    def targets(self) -> Tree:
        """The parameters of the target networks."""
        ...


_PERIOD = 1024
"""The most updates after which gradient steps are as many as `samples_per_insert` asks for."""

F = TypeVar("F", bound=OffPolicyState)
"""The state of an algorithm that learns from a replay."""


class Drawn(NamedTuple):
    """The batches for the rounds to learn from, [rounds, S, ...]."""

    transitions: Transitions
    slot: Array  # int32, of the run's slots


@dataclass(frozen=True)
class OffPolicyInstance(ObservingInstance[F]):
    """Learns from a replay; an algorithm adds `optimizer`, `slow` and `loss`."""

    config: OffPolicy

    @property
    def share(self) -> float:
        """Draws from each slot in a gradient step."""
        return self.config.batch_size / max(self.slots, 1)

    @property
    def steps(self) -> int:
        """Steps of all slots in an update."""
        return self.config.unroll_length * max(self.slots, 1)

    @property
    def draws(self) -> int:
        """Draws of a gradient step: the multiple or part of the slots that is next to the batch."""
        each, turns = portions(self.share)
        return max(1, self.slots // turns * each)

    @property
    def learned(self) -> int:
        """Steps that a gradient step learns from."""
        return self.draws

    @property
    def rate(self) -> Fraction:
        """Gradient steps for each update, on average."""
        rate = Fraction(self.config.samples_per_insert) * self.steps / self.learned
        return max(rate.limit_denominator(_PERIOD), Fraction(1, _PERIOD))

    @property
    def rounds(self) -> int:
        """Rounds of an update, of which the last may have no gradient step."""
        return math.ceil(self.rate)

    def rounds_before(self, n: Array) -> Array:
        """Gives the gradient steps of the updates before update n, int32; warm-up counts, too."""
        steps, period = self.rate.numerator, self.rate.denominator
        return n // period * steps + n % period * steps // period

    def due(self, n: Array, round: Array) -> Array:
        """Gives whether there is a gradient step in a round of update n: bool of their shapes."""
        return self.warm(n + 1) & (round < self.rounds_before(n + 1) - self.rounds_before(n))

    def every(self, period: int, n: Array, round: Array) -> Array:
        """Tells if a round's gradient step is the first of each `period`: bool of their shapes."""
        return (self.rounds_before(n) + round) % period == 0

    def targets_due(self, n: Array, round: Array) -> Array:
        """Tells if the target networks move in a round of update n."""
        return self.every(self.config.target_period, n, round)

    def ready(self, replay: Replay, n: Array) -> Array:
        """Gives of which slots enough is remembered to be learned from, bool [B].

        Else their replay was lost, and is filled again.
        """
        needed = min(math.ceil(self.config.warm_up / self.steps), self.blocks)
        return filled(replay, n) >= needed

    @property
    def blocks(self) -> int:
        """Unrolls that are remembered of each slot."""
        return max(1, self.config.replay // self.steps)

    def warm(self, updates: Array) -> Array:
        """Tells if the steps of so many updates are enough to begin with."""
        return updates >= math.ceil(self.config.warm_up / self.steps)  # without large products

    def slow(self, params: Tree) -> Tree:
        """Gives the parameters of those networks that have target networks."""
        raise NotImplementedError

    def loss(
        self, params: Tree, state: F, drawn: Any, round: Array
    ) -> tuple[Array, tuple[dict[str, Any], Tree]]:
        """Gives the summed loss of a round; its metrics and count, summed, too; and notes.

        Args:
            params: Those that learn.
            state: All else that is known.
            drawn: The round's part of what was drawn.
            round: int32 [].
        """
        raise NotImplementedError

    # The replay.

    def empty_replay(self, unroll: Unroll) -> Any:
        """Gives a replay for the steps that are to be remembered of the slots here."""
        return empty(unroll, self.blocks, self.stack)

    def remember(self, state: F, replay: Any, unroll: Unroll) -> Any:
        """Gives the replay with an unroll in it."""
        return insert(replay, unroll, state.n, self.stack)

    def recall(self, state: F, replay: Replay, batch: Unroll) -> Any:
        """Draws the transitions of all rounds."""
        key, length = jax.random.wrap_key_data(state.key), self.config.n_step + 1
        first, starts = self.rounds_before(state.n), self.config.unroll_length + 2 - length
        draws = draw(key, replay, state.n, batch.slot, self.rounds, self.share, starts, first)
        drawn = transitions(draws.take(replay, length, self.stack), self.config.discount)
        valid = drawn.valid & self.ready(replay, state.n)[draws.column]
        return Drawn(drawn._replace(valid=valid), draws.slot)

    # Learning.

    def noted_gradient(self, state: F, batch: Any, round: Array) -> tuple[dict[str, Any], Tree]:
        """Gives the sums of a round, and its notes; zeros where it has no gradient step."""
        drawn = jax.tree.map(lambda x: x[round], batch)

        def compute() -> tuple[dict[str, Any], Tree]:
            gradient, (sums, notes) = jax.grad(self.loss, has_aux=True)(
                state.params, state, drawn, round
            )
            moves = self.targets_due(state.n, round).astype(jnp.float32)
            return {"gradient": gradient, "targets_due": moves, **sums}, notes

        shapes = jax.eval_shape(compute)
        nothing = lambda: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)  # noqa: E731
        return jax.lax.cond(self.due(state.n, round), compute, nothing)

    def gradient(self, state: F, batch: Any, round: Array) -> dict[str, Any]:
        """Gives the sums of a round: of the loss's gradient, and of metrics."""
        return self.noted_gradient(state, batch, round)[0]

    def update(self, state: F, sums: Any) -> tuple[F, Metrics]:
        """Takes a gradient step, and moves the target networks, where anything was learned from."""
        mean = mean_of(sums)
        steps, optimizer = self.optimizer.update(mean["gradient"], state.optimizer, state.params)
        params: Any = optax.apply_updates(state.params, steps)
        rate = jnp.where(sums["targets_due"] > 0, self.config.target_rate, 0.0)
        targets = optax.incremental_update(self.slow(params), state.targets, rate)
        moved = state._replace(params=params, optimizer=optimizer, targets=targets)
        metrics = {**mean["metrics"], "grad_norm": optax.tree.norm(mean["gradient"])}
        # Rounds without a gradient step count as 0 in the means over rounds and updates.
        metrics = {name: x * (self.rounds / float(self.rate)) for name, x in metrics.items()}
        return where(sums["count"] > 0, moved, state), metrics


def summed(
    loss: Array, metrics: Metrics, valid: Array, notes: Tree = ()
) -> tuple[Array, tuple[dict[str, Any], Tree]]:
    """Gives what `loss` gives, of losses and metrics at each step: sums over the valid ones."""
    sums = sums_over(valid, {**metrics, "loss": loss})
    total, count = sums.pop("loss"), jnp.sum(valid, dtype=jnp.float32)
    return total, ({"metrics": sums, "count": count}, notes)


def where(condition: Array, one: Any, other: Any) -> Any:
    """Gives the one tree where the condition, bool [], is set, and else the other."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), one, other)
