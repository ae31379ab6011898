"""The interface of networks to algorithms: a configuration that builds two pure functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

from srl.core.errors import UserError, reported
from srl.core.settings import Count, Range, Settings, expect_settings
from srl.core.spaces import Space
from srl.networks.policy_and_value import PolicyAndValue

if TYPE_CHECKING:
    from flax import linen


@dataclass(frozen=True)
class Network(Settings):
    """Base of the network configurations."""

    memory: Count = field(default=0, kw_only=True)
    """Units of a recurrent layer before the head, for memory; 0: none."""
    cell: Literal["gru", "lstm"] = field(default="gru", kw_only=True)
    """The recurrent layer: gated recurrent units, or layer-normalised long short-term memory."""
    after_memory: Annotated[int | None, Range(0)] = field(default=None, kw_only=True)
    """Units of a hidden layer after the recurrent one, of the outputs and the inputs of that; 0:
    none. By default SAC, DiscreteSAC and TD3 have 256, others none."""
    layer_norm: bool = field(default=False, kw_only=True)
    """Normalise each hidden layer before its activation (Ba et al., 2016), as PQN needs without
    target networks. Entity attention is always normalised."""
    shared: bool = field(default=False, kw_only=True)
    """True if policy and value share all layers but the last. This about halves the work of
    learning, mostly with images. Separate networks do not disturb each other's features."""

    def features(self, space: Space) -> linen.Module:
        """Gives the policy's layers before memory and head, a module of one argument.

        Args:
            space: The space of the policy's observations, which are [..., ...] and normalised. The
                module gives features [..., units].

        Raises:
            UserError: If a network does not override this.
        """
        raise UserError(
            f"the network {type(self).__name__} has no method `features`, which gives its layers; "
            "docs/networks.md shows one"
        )

    def value_features(self, space: Space) -> linen.Module:
        """Gives the same layers of the value or of a critic: by default those of `features`.

        Args:
            space: The space of the value's observations, with privileged keys. Of a critic of
                actions, a Dict of `observation` and `action`.
        """
        return self.features(space)

    def build(
        self, space: Space, num_outputs: int, value_space: Space | None = None
    ) -> PolicyAndValue:
        """Gives the functions of a policy of `num_outputs` numbers and of a value.

        Args:
            space: The space of the policy's observations.
            num_outputs: Outputs of the policy. With 0 it has no last layer, for
                `srl.networks.heads.Streams` to give it another.
            value_space: The space of the value's observations, by default the policy's.
        """
        from srl.networks.heads import Headed, dense

        expect_settings("network", self)
        seen = space if value_space is None else value_space
        name = type(self).__name__
        with reported(f"{name}.features", "it gives a flax module"):
            features = self.features(space), None if self.shared else self.value_features(seen)
        for module in features:
            if module is not None and not callable(module):
                raise UserError(f"{name}.features gives {module!r}; expected a flax module")
        policy_features, value_features = features
        recurrent = self.memory, self.cell, self.after_memory or 0
        numbers = self.memory * (2 if self.cell == "lstm" else 1)
        policy = Headed(policy_features, *recurrent, num_outputs, head_scale=0.01)
        if value_features is None:
            return PolicyAndValue(space, policy, dense(1, 1.0), numbers, shared=True)
        value = Headed(value_features, *recurrent, 1, head_scale=1.0)
        return PolicyAndValue(space, policy, value, numbers, value_space=value_space)

    def remarks(self, space: Space) -> list[str]:
        """Gives lines about the fit of the network to observations, shown when a run begins."""
        return []
