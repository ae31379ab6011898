"""Q-learning from a replay (Mnih et al., 2015): the smallest algorithm that remembers.

An algorithm outside srl, which docs/write_an_algorithm.md explains. `srl.algorithms.DQN` has what
improves on it.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from srl.algorithms.q_learning import QInstance, QLearning, chosen
from srl.algorithms.replay import draw, empty, insert, transitions
from srl.core.lazy import jax, jnp, optax


@dataclass(frozen=True)
class ReplayedQ(QLearning):
    """Settings; `--algorithm.learning-rate` and so on override them."""

    unroll_length: int = 8
    """Steps that are taken with one version of the network before they are learned from."""
    blocks: int = 200
    """How many unrolls of each slot are remembered."""
    batch: int = 4
    """Transitions of each slot in a gradient step."""
    steps: int = 16
    """Gradient steps for each unroll."""
    learning_rate: float = 1e-3
    """Step size of Adam."""
    target_rate: float = 0.03
    """The part by which the target network follows in each gradient step."""

    limits: ClassVar = {
        **QLearning.limits,
        "blocks": (1,),
        "batch": (1,),
        "steps": (1,),
        "learning_rate": (0.0,),
        "target_rate": (0.0, 1.0),
    }

    @property
    def instance(self):
        """The functions of Q-learning from a replay."""
        return ReplayedQInstance


class ReplayedQState(NamedTuple):
    """What learning changes: the fields that every state has, and the target network."""

    params: Any
    optimizer: Any
    key: Any
    n: Any
    observations: Any
    targets: Any


@dataclass(frozen=True)
class ReplayedQInstance(QInstance):
    """Q-learning from a replay for one trained policy."""

    config: ReplayedQ

    @property
    def rounds(self):
        """Gradient steps of one call of `learn`."""
        return self.config.steps

    @property
    def optimizer(self):
        """What takes the gradient steps."""
        return optax.adam(self.config.learning_rate)

    def init(self, key):
        """Draws parameters, which the target network starts from, too."""
        fields = super().init(key)._asdict()
        return ReplayedQState(**fields, targets=jax.tree.map(jnp.copy, fields["params"]))

    def empty_replay(self, unroll):
        """Gives a replay of nothing for the slots of this unroll."""
        return empty(unroll, self.config.blocks, self.stack)

    def remember(self, state, replay, unroll):
        """Puts the unroll in place of the oldest."""
        return insert(replay, unroll, state.n, self.stack)

    def recall(self, state, replay, batch):
        """Draws the transitions of all gradient steps, the same number of each slot."""
        key = jax.random.wrap_key_data(state.key)
        each = self.config.batch
        starts = self.config.unroll_length  # of windows of two rows: all rows but the last
        draws = draw(key, replay, state.n, batch.slot, self.rounds, share=each, starts=starts)
        return transitions(draws.take(replay, 2, self.stack), self.config.discount)

    def gradient(self, state, batch, round):
        """Gives sums over the slots, to which those of other slots can be added."""
        drawn = jax.tree.map(lambda x: x[round], batch)
        gradient, metrics = jax.grad(self.loss, has_aux=True)(state.params, state, drawn)
        count = jnp.sum(drawn.valid, dtype=jnp.float32)
        return {"gradient": gradient, "metrics": metrics, "count": count}

    def loss(self, params, state, drawn):
        """Sums the squared errors of the transitions that count."""
        after = self.values(state.targets, state.observations, drawn.last)
        best = jnp.where(self.possible(drawn.last), jnp.max(after, axis=-1), 0.0)
        target = drawn.reward + drawn.discount * best
        values = self.values(params, state.observations, drawn.observation)
        error = chosen(values, drawn.action) - target
        loss = jnp.sum(jnp.where(drawn.valid, jnp.square(error), 0.0))
        return loss, {"q_loss": loss}

    def update(self, state, sums):
        """Takes a step along the mean; the target network follows."""
        mean = jax.tree.map(lambda x: x / jnp.maximum(sums["count"], 1), sums)
        steps, optimizer = self.optimizer.update(mean["gradient"], state.optimizer)
        params = optax.apply_updates(state.params, steps)
        targets = optax.incremental_update(params, state.targets, self.config.target_rate)
        state = state._replace(params=params, optimizer=optimizer, targets=targets)
        return state, mean["metrics"]
