"""Environments of MuJoCo Playground as functional environments."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.types import Array, Tree
from srl.pools.functional.brax import BraxStates
from srl.pools.functional.library import PREFIX, imported, unbounded


class Playground(BraxStates):
    """An environment of MuJoCo Playground (https://github.com/google-deepmind/mujoco_playground).

    Observations of robots are Dicts with `state`, for the policy, and `privileged_state`, for
    critics. Its metrics, such as single terms of the reward, are reported as `env/...`.
    """

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        """Makes it.

        Args:
            name: Such as CheetahRun.
            options: Entries of its configuration, such as "reward_config.tracking_sigma".

        Raises:
            UserError: If there is none of this name, or it has no such option.
        """
        from flax import traverse_util

        registry = imported("playground", "mujoco_playground").registry
        full = f"{PREFIX}playground:{name}"
        if name not in registry.ALL_ENVS:
            raise UserError(
                f"there is no environment {full}; there are {', '.join(registry.ALL_ENVS)}"
            )
        config = registry.get_default_config(name)
        # Warp steps fewer environments a second on a CPU, and compiles for a minute.
        if "impl" in config and jax.default_backend() == "cpu":
            config.impl = "jax"
        known = traverse_util.flatten_dict(config.to_dict(), sep=".")
        for option in options:
            if option not in known:
                raise UserError(f"{full} has no option {option}; there are {', '.join(known)}")
        try:
            config.update_from_flattened_dict(options)
        except (TypeError, ValueError) as error:
            raise UserError(f"{full} does not take these options: {error}") from error
        self.max_episode_steps = int(config.episode_length)
        self._env = registry.load(name, config)
        began = jax.eval_shape(self._env.reset, jax.eval_shape(lambda: jax.random.key(0)))
        self.observation_space = unbounded(began.obs)
        self.action_space = spaces.Box(-1.0, 1.0, (int(self._env.action_size),), np.float32)
        self.statistics = tuple(name for name, value in began.metrics.items() if not value.shape)

    def statistics_of(self, state: Tree) -> Array:
        """Gives its metrics, float32 [S]."""
        return jnp.stack([jnp.float32(state.metrics[name]) for name in self.statistics])
