"""Prioritised replay (Schaul et al., 2016, https://arxiv.org/abs/1511.05952), slot by slot.

New windows come with priorities by their errors (Ape-X, Horgan et al., 2018).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from srl.algorithms.replay import Draws, Replay, insert, windows, write
from srl.algorithms.replay_sampling import draw_by_priority
from srl.algorithms.uniform_replay import Priority, Sample, UniformReplay
from srl.core.lazy import jax, jnp
from srl.core.types import Array, Unroll


class Prioritized(NamedTuple):
    """A replay, and the priority of the windows of rows that are drawn from it."""

    unrolls: Replay
    priority: Array  # float32 [K, W, B], of the W windows of an unroll; 0: nothing to learn from


@dataclass(frozen=True)
class PrioritizedReplay(UniformReplay):
    """A replay of unrolls, from which each slot draws windows in proportion to their priorities."""

    correction: float = field(default=0.4, kw_only=True)
    """The exponent of the importance weights (beta); 1 corrects in full."""

    def empty(self, unroll: Unroll) -> Prioritized:
        """Gives a replay of nothing, for unrolls like this one."""
        priority = jnp.zeros((self.blocks, self.windows, len(unroll.slot)))
        return Prioritized(super().empty(unroll), priority)

    def insert(
        self, replay: Prioritized, unroll: Unroll, n: Array, priority: Priority | None = None
    ) -> Prioritized:
        """Gives the replay with the unroll of update n, and the priorities of its windows."""
        assert priority is not None
        unrolls = insert(replay.unrolls, unroll, n, self.stack)
        rows = windows(unroll, self.length, self.stride, self.burn_in)
        new = priority(rows).reshape(self.windows, -1)
        return Prioritized(
            unrolls, jnp.where(_is_there(unrolls, n), write(replay.priority, new, n), 0.0)
        )

    def sample(self, key: Array, replay: Prioritized, n: Array, slot: Array, total: Any) -> Sample:
        """Draws the windows of all gradient steps of update n, with weights (section 3.4).

        A slot draws as much as any other, whatever its priorities; the factor `share` makes up for
        that, so that the expectation is that of one replay of all slots.
        """
        ratio, priorities = self.ratio, replay.priority
        steps = ratio.gradient_steps, ratio.share, ratio.steps_before(n)
        draws = draw_by_priority(key, priorities, n, slot, *steps)

        masses = jnp.sum(priorities, axis=(0, 1))  # of the slots here, [B]
        mean_mass = total(jnp.sum(masses)) / max(ratio.slots, 1)
        mass = masses[draws.column]
        priority = draws.of(priorities) / jnp.maximum(mass, 1e-12)
        number = self.windows * jnp.sum(_is_there(replay.unrolls, n)[:, 0], axis=0)[draws.column]
        share = mass / jnp.maximum(mean_mass, 1e-12)
        odds = jnp.maximum(number * priority * share, 1e-12)
        weight = jnp.where(priority > 0, share * odds**-self.correction, 0.0)
        return self._sample(key, replay.unrolls, draws, weight, n)

    def update_priorities(
        self, replay: Prioritized, sample: Sample, priority: Array, due: Array
    ) -> Prioritized:
        """Gives the replay with the priorities of the last gradient step on each window.

        Args:
            replay: From `insert`.
            sample: From `sample`.
            priority: float32 [gradient_steps, S], the new ones.
            due: bool [gradient_steps], the gradient steps that were taken.
        """

        def of_step(held: Array, step: tuple[Draws, Array, Array]) -> tuple[Array, None]:
            draws, learned, new = step
            place = draws.block, draws.row, draws.column
            known = held[place]
            return held.at[place].set(jnp.where(learned & (known > 0), new, known)), None

        learned = due[:, None] & sample.ready & ~sample.prior
        steps = sample.draws, learned, priority
        return replay._replace(priority=jax.lax.scan(of_step, replay.priority, steps)[0])


def _is_there(unrolls: Replay, n: Array) -> Array:
    """Marks the unrolls of a replay that are known at update n, bool [K, 1, B]."""
    return (unrolls.update >= 0) & (unrolls.update <= n)  # a later one was undone by a restart
