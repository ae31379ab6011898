"""The settings that algorithms with a replay share, and the replay that they ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, NamedTuple, Self

from srl.algorithms.algorithm import Algorithm, Instance
from srl.algorithms.hindsight import Hindsight
from srl.algorithms.mirror import Mirror
from srl.algorithms.normalization import Statistics
from srl.algorithms.preprocessing import reward_transform
from srl.algorithms.prior_replay import MixedReplay
from srl.algorithms.prioritized_replay import PrioritizedReplay
from srl.algorithms.uniform_replay import Change, UniformReplay
from srl.algorithms.value_forms import range_remarks
from srl.core.errors import UserError, expect, expect_apart
from srl.core.lazy import jax, jnp
from srl.core.schedule import Adjustable
from srl.core.settings import Range
from srl.core.types import Array, Specs, Tree


@dataclass(frozen=True)
class OffPolicy(Algorithm):
    """Base of the settings of algorithms that learn from a replay."""

    prior: str = field(default="", kw_only=True)
    """Past data that a share of each batch is drawn from: the folder of another run, for its
    replay, or minari:ID for a data set of the package minari. A run copies them when it begins."""
    prior_share: Annotated[Adjustable, Range(0.0, 1.0)] = field(default=0.5, kw_only=True)
    """The share of each batch that is of prior data, if there are any; half of it is RLPD."""
    hindsight: Hindsight | None = field(default=None, kw_only=True)
    """Hindsight goals, for observations with achieved_goal and desired_goal; by default none."""
    mirror: Mirror | None = field(default=None, kw_only=True)
    """A symmetry of the environment: half of what is drawn is mirrored; by default none."""
    keep_replay: bool = field(default=True, kw_only=True)
    """True if checkpoints hold the replay. Otherwise a resumed run fills an empty one by `warm_up`
    steps before it learns."""

    @property
    def saves_replay(self) -> bool:
        """True if checkpoints hold the replay."""
        return self.keep_replay

    def validate(self) -> None:
        """Raises UserError where settings are out of their limits or do not fit each other."""
        super().validate()
        text = "the folder of a run, or minari:ID, as text"
        expect(isinstance(self.prior, str), "algorithm.prior", self.prior, text)
        if not self.prior and self.prior_share != type(self).prior_share:
            raise UserError(
                "algorithm.prior_share is the share of prior data, and there are none: give "
                "algorithm.prior, or leave it out"
            )
        pair = f"hindsight and frame_stack={self.frame_stack}"
        why = "goals are those of single observations"
        expect_apart(self, pair, why, self.hindsight is not None and self.frame_stack > 1)

    def remarks(self, report: Mapping[str, Any]) -> list[str]:
        """Tells that returns often lie beyond the atoms, of critics that have some."""
        return range_remarks(self, report)

    def bind(self, specs: Specs, updates: int | None = None, slots: int = 0) -> Instance:
        """Gives the functions for one trained policy; see `Algorithm.bind`."""
        for part in (self.hindsight, self.mirror):
            if part is not None:
                part.expect_fit(specs)
        return super().bind(specs, updates, slots)


class TargetState(NamedTuple):
    """The state of learning with target networks; see `State`."""

    params: Tree
    optimizer: Tree
    key: Array
    n: Array
    observations: dict[str, Statistics]
    targets: Tree  # the parameters of the target networks

    @classmethod
    def first(
        cls, instance: Instance, key: Array, params: Tree, optimizer: Tree, targets: Tree
    ) -> Self:
        """Gives the state before the first update.

        Args:
            instance: Its normaliser is used.
            key: The random key of learning.
            params: Of all networks.
            optimizer: Its state, or those of several.
            targets: The parameters that the target networks start from.
        """
        return cls(
            params=params,
            optimizer=optimizer,
            key=jax.random.key_data(key),
            n=jnp.zeros((), jnp.int32),
            observations=instance.normalizer.init(),
            targets=jax.tree.map(jnp.copy, targets),
        )


Sampling = UniformReplay | MixedReplay
"""A way to remember unrolls, and to draw windows of rows from them."""


def replay_for(instance: Any, length: int, stride: int = 1, burn_in: int = 0) -> Sampling:
    """Gives the replay that an algorithm's settings ask for.

    Args:
        instance: Anything with the `config` of an `OffPolicy`, a `ratio` and a `stack`.
        length: Rows of a window.
        stride: Rows from one window's first to the next one's.
        burn_in: Rows before each window that come with it.
    """
    config: Any = instance.config
    changes: list[Change] = []
    if config.hindsight is not None:
        transform = reward_transform(config) or (lambda reward: reward)
        changes.append(partial(config.hindsight.relabelled, transform))
    if config.mirror is not None:
        changes.append(config.mirror.flipped)
    given = config.replay, length, instance.ratio, instance.stack, stride, burn_in, tuple(changes)
    if getattr(config, "priorities", 0.0):
        own = PrioritizedReplay(*given, correction=config.correction)
    else:
        own = UniformReplay(*given)
    return MixedReplay(own, config.prior_share) if config.prior else own
