"""CartPole for a policy that sees no velocities, and a teacher that does: docs/teachers.md."""

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


class Only(linen.Module):
    """A network of one key of an observation."""

    inner: linen.Module

    @linen.compact
    def __call__(self, observation, *memory):
        """Gives what the inner network gives for the key."""
        return self.inner(observation["seen"], *memory)


@dataclass(frozen=True)
class SeenMLP(MLP):
    """A perceptron, for the policy and the value, that does not see the key `state`."""

    def build(self, space: Any, num_outputs: int) -> PolicyAndValue:
        """Gives perceptrons of the key `seen`."""
        built = super().build(space["seen"], num_outputs)
        policy, value = Only(built.policy_module), Only(built.value_module)
        return replace(built, space=space, policy_module=policy, value_module=value)


experiment = Experiment(
    name="hidden_velocities",
    env=HiddenVelocities,
    num_envs=32,
    algorithm=PPO(network=SeenMLP(memory=32)),
    env_steps=100_000,
)
