"""Environments that follow Gymnasium's interface, one agent each."""

from __future__ import annotations

import gymnasium
import numpy as np

from srl.pools.simulator import Misfit, Simulator, narrowed, observation_writer, supported_action
from srl.types import Specs, Timestep


class GymnasiumSimulator(Simulator):
    """A `gymnasium.Env`."""

    def __init__(self, env: gymnasium.Env, name: str) -> None:
        """Takes the environment.

        Raises:
            UserError: If its spaces are not supported.
        """
        self.specs = Specs(
            observation=narrowed(env.observation_space),
            action=supported_action(env.action_space, name),
            agents=("agent",),
            max_episode_steps=env.spec.max_episode_steps if env.spec else None,
        )
        self._env = env
        self._step = env.step
        self._write = observation_writer(self.specs.observation)

    def reset(self, seed: int | None, rows: Timestep, env: int) -> None:
        """Starts an episode; see the base class."""
        given = self._env.reset(seed=seed)
        if not isinstance(given, tuple) or len(given) != 2:
            raise Misfit(f"gave {type(given).__name__} at reset; expected (observation, info)")
        self._write(given[0], rows.observation, env)
        rows.reward[env] = 0
        rows.terminated[env] = rows.truncated[env] = False

    def step(self, actions: np.ndarray, rows: Timestep, env: int) -> None:
        """Acts; see the base class."""
        given = self._step(actions[0])
        try:
            observation, reward, terminated, truncated, _ = given
        except ValueError:
            raise Misfit(
                f"gave {len(given)} values at step; expected (observation, reward, terminated, "
                "truncated, info)"
            ) from None
        rows.reward[env], rows.terminated[env], rows.truncated[env] = reward, terminated, truncated
        self._write(observation, rows.observation, env)

    def render(self) -> np.ndarray:
        """The environment's own picture; needs render_mode="rgb_array"."""
        return np.asarray(self._env.render())

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()
