"""Policies that see no velocities, for a teacher that does: docs/teachers.md."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
from flax import linen
from gymnasium import spaces

from srl import Experiment
from srl.algorithms import PPO
from srl.networks import MLP, PolicyAndValue

SEEN = [0, 2]  # the cart's position and the pole's angle


class HiddenVelocities(gymnasium.ObservationWrapper):
    """CartPole whose observation has a key for the policy, and one for a teacher alone."""

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))
        whole: Any = self.env.observation_space
        seen = spaces.Box(whole.low[SEEN], whole.high[SEEN])
        self.observation_space = spaces.Dict({"seen": seen, "state": whole})

    def observation(self, observation):
        """Gives both keys."""
        return {"seen": observation[SEEN], "state": observation}


class Part(linen.Module):
    """A network of a part of the observation; its parameters have the inner network's names."""

    inner: linen.Module
    part: Callable[[Any], Any]

    def setup(self):
        """Leaves the names of parameters to the inner network."""
        linen.share_scope(self, self.inner)

    def __call__(self, observation, *memory):
        """Gives what the inner network gives for the part."""
        return self.inner(self.part(observation), *memory)


def seen(observation: Any) -> Any:
    """Gives the key of CartPole's policy."""
    return observation["seen"]


def positions(observation: Any) -> Any:
    """Gives the positions of HalfCheetah, without its nine velocities."""
    return observation[..., :8]


@dataclass(frozen=True)
class PartMLP(MLP):
    """Perceptrons of a part of the observation, as policy and as value."""

    part: Callable[[Any], Any] = seen
    """The function that gives the part."""

    def build(self, space: Any, num_outputs: int, value_space: Any | None = None) -> PolicyAndValue:
        """Gives the networks of the part."""
        part = space["seen"] if self.part is seen else spaces.Box(-1, 1, (8,))
        built = super().build(part, num_outputs)
        policy, value = (Part(x, self.part) for x in (built.policy_module, built.value_module))
        return replace(built, space=space, policy_module=policy, value_module=value)


experiment = Experiment(
    name="hidden_velocities",
    env=HiddenVelocities,
    num_envs=32,
    algorithm=PPO(network=PartMLP(memory=32)),
    env_steps=100_000,
)
cheetah = Experiment(
    name="half_cheetah",
    env="native:HalfCheetah-v5",
    algorithm=PPO(network=PartMLP(part=positions)),
)
