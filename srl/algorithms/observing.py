"""The base of srl's algorithms: a network, and observations normalised for it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeVar, get_args

from srl.algorithms.algorithm import Algorithm, Instance
from srl.algorithms.normalization import (
    ObservationNormalizer,
    Observing,
    ScaledBytes,
    Statistics,
)
from srl.algorithms.returns import valid_rows
from srl.core.errors import UserError, expect
from srl.core.lazy import jax, jnp, optax
from srl.core.types import Array, Metrics, Tree, Unroll
from srl.networks import AutoNetwork, Network


@dataclass(frozen=True)
class ObservingAlgorithm(Algorithm):
    """Settings of what a network sees."""

    network: Network = field(default_factory=AutoNetwork)
    """The network that is trained; by default one that fits what is observed."""
    normalize_observations: bool = True
    """Standardise observations by running statistics."""
    scaled_bytes: ScaledBytes = field(default="pictures", kw_only=True)
    """The uint8 observations to divide by 255: pictures, which are Boxes from 0 to 255 of at
    least 32 by 32 pixels; all; or none. The others are numbers like those of any Box."""

    learns_state_value: ClassVar[bool] = False
    """True if the algorithm learns a policy and a value of states, which may share layers."""

    def validate(self) -> None:
        """Raises UserError where settings are out of their limits or do not fit each other."""
        super().validate()
        known = get_args(ScaledBytes)
        given, expected = self.scaled_bytes, " or ".join(known)
        expect(given in known, "algorithm.scaled_bytes", given, expected)
        if self.network.shared and not self.learns_state_value:
            raise UserError(
                f"network.shared=True: {type(self).__name__} has no policy and value that could "
                "share layers; leave it out, or take PPO, APPO or IMPALA"
            )


class ObservingState(NamedTuple):
    """The state of learning; see `State`. An algorithm may add fields."""

    params: Tree
    optimizer: Tree
    key: Array
    n: Array
    observations: dict[str, Statistics]


R = TypeVar("R", bound=Observing)
"""The state of an algorithm that keeps statistics of observations."""


@dataclass(frozen=True)
class ObservingInstance(Instance[R]):
    """Keeps statistics of observations: those that acted serve the whole of `learn`.

    An algorithm adds `draw_params`, `optimizer`, and how it acts and learns.
    """

    config: ObservingAlgorithm

    @abstractmethod
    def draw_params(self, key: Array) -> Tree:
        """Draws the parameters of all networks."""
        raise NotImplementedError

    @property
    @abstractmethod
    def optimizer(self) -> optax.GradientTransformation:
        """The optimiser of the gradient steps."""
        raise NotImplementedError

    def init(self, key: Array) -> Any:
        """Draws parameters; nothing is normalised yet."""
        params_key, learning_key = jax.random.split(key)
        params = self.draw_params(params_key)
        return ObservingState(
            params=params,
            optimizer=self.optimizer.init(params),
            key=jax.random.key_data(learning_key),
            n=jnp.zeros((), jnp.int32),
            observations=self.normalizer.init(),
        )

    @cached_property
    def normalizer(self) -> ObservationNormalizer:
        """The normaliser of observations into inputs."""
        config = self.config
        return ObservationNormalizer(
            self.specs.observation,
            running=config.normalize_observations,
            scaled_bytes=config.scaled_bytes,
        )

    def measure(self, state: R, unroll: Unroll) -> tuple[Any, dict[str, Any]]:
        """Gives the unroll itself, and the moments of its observations."""
        valid = valid_rows(unroll.terminated, unroll.truncated)
        observation = jax.tree.map(lambda x: x[:-1], unroll.observation)
        sums = self.normalizer.measure(state.observations, observation, valid)
        return unroll, {"observations": sums}

    def finish(self, state: R, sums: Any) -> tuple[R, Metrics]:
        """Adds the batch to the statistics of observations and counts the update."""
        observations = self.normalizer.update(state.observations, sums["observations"])
        return super().finish(state._replace(observations=observations), sums)
