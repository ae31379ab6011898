"""Small environments in JAX, good ones and wrong ones."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from srl.pools.functional.environment import Step


class Counter:
    """Counts its steps, drawn chance among them; ends by itself after `ends` steps."""

    observation_space = spaces.Dict(
        {
            "count": spaces.Box(0, 100, (1,), np.float32),
            "chance": spaces.Box(0, 1, (2,), np.float32),
        }
    )
    action_space = spaces.Box(-1, 1, (1,), np.float32)
    statistics = ("largest",)

    def __init__(self, ends=3, max_episode_steps=None):
        self.ends, self.max_episode_steps = ends, max_episode_steps

    def reset(self, key):
        state = {"count": jnp.float32(0), "largest": jnp.float32(0), "key": jax.random.key(7)}
        return state, self._observed(state, key)

    def step(self, state, action, key):
        count = state["count"] + 1
        state = {**state, "count": count, "largest": jnp.maximum(state["largest"], action[0])}
        return Step(state, self._observed(state, key), action[0], count >= self.ends)

    def _observed(self, state, key):
        return {"count": state["count"][None], "chance": jax.random.uniform(key, (2,))}

    def statistics_of(self, state):
        return state["largest"][None]


class Diverging(Counter):
    """Gives a reward that is not finite at its second step."""

    def step(self, state, action, key):
        step = super().step(state, action, key)
        return step._replace(reward=jnp.where(step.state["count"] == 2, jnp.nan, 0.0))


class Pair:
    """Two agents; the first one's part ends after a step, the episode after `ends`."""

    agents = ("red", "blue")
    observation_space = spaces.Box(0, 100, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, ends=3):
        self.ends = ends

    def reset(self, key):
        return 0, jnp.zeros((2, 1))

    def step(self, state, action, key):
        ended = jnp.array([state + 1 >= 1, state + 1 >= self.ends])
        observation = jnp.full((2, 1), state + 1.0)
        return Step(state + 1, observation, 1.0 + action, ended)


class Grows(Counter):
    """Changes the shape of its state."""

    def step(self, state, action, key):
        went = super().step(state, action, key)
        return went._replace(state={**went.state, "count": jnp.zeros(2)})


class Wide(Counter):
    """Gives another observation than its space has."""

    observation_space = spaces.Box(0, 1, (3,), np.float32)

    def _observed(self, state, key):
        return jnp.zeros(4)


class Chance(Counter):
    """Has other whole numbers in its space than it gives."""

    observation_space = spaces.Box(0, 255, (2,), np.uint8)

    def _observed(self, state, key):
        return jax.random.uniform(key, (2,))


class Flags(Counter):
    """Tells three times if an episode has ended."""

    def step(self, state, action, key):
        return super().step(state, action, key)._replace(truncated=jnp.zeros(3, bool))


class Three(Counter):
    """Gives three results at a reset."""

    def reset(self, key):
        return (*super().reset(key), {})


class Twins(Counter):
    """Has two agents of one name."""

    agents = ("one", "one")


class Uncounted(Counter):
    """Counts less than it names."""

    statistics = ("largest", "least")


class Listed(Counter):
    """Gives its numbers as a tuple."""

    def statistics_of(self, state):
        return (state["largest"],)


class Branches(Counter):
    """Looks at values while it is traced."""

    def step(self, state, action, key):
        assert state["count"] < 5
        return super().step(state, action, key)


class Nothing(NamedTuple):
    """No environment."""
