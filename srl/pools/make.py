"""Finds the pool for whatever names an environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from srl.errors import UserError
from srl.pools.pool import EnvConfig, Pool

EnvSource = str | EnvConfig | Callable[[], gymnasium.Env]


def make_pool(
    env: EnvSource,
    num_envs: int = 1,
    batch_size: int | None = None,
    threads: int = 0,
    cores: Sequence[int] = (),
    **options: Any,
) -> Pool:
    """Makes a pool of `num_envs` environments.

    Args:
        env: "native:CartPole-v1", "envpool:Pong-v5", an id of Gymnasium ("CartPole-v1",
            "module:Name-v0"), a callable that makes a Gymnasium environment, or a configuration
            object.
        num_envs: How many.
        batch_size: How many `recv` gives at a time; all by default.
        threads: Of a native pool or EnvPool's; 0 takes one for each core.
        cores: Of a native pool: pin its threads to these cores, in turn. A synchronous pool's
            first thread is the caller's, which stays free.
        options: Passed on to the environment.

    Raises:
        UserError: For an unknown id, an unknown option, or sizes that do not fit.
        RunError: If making an environment raised.
    """
    if num_envs < 1:
        raise UserError(f"num_envs={num_envs}; expected at least 1")
    batch_size = num_envs if batch_size is None else batch_size
    if not 1 <= batch_size <= num_envs:
        raise UserError(f"batch_size={batch_size}; expected 1 to num_envs={num_envs}")
    if isinstance(env, EnvConfig):
        return make_pool(
            env.pool_id, num_envs, batch_size, threads, cores, **env.options(), **options
        )
    if isinstance(env, str) and env.startswith("native:"):
        from srl.pools.native import NativePool

        return NativePool(
            env.removeprefix("native:"), num_envs, batch_size, threads, options, cores
        )
    if isinstance(env, str) and env.startswith("envpool:"):
        from srl.pools.envpool import EnvpoolPool

        return EnvpoolPool(env.removeprefix("envpool:"), num_envs, batch_size, threads, options)
    from srl.pools.gymnasium import GymnasiumPool

    return GymnasiumPool(env, num_envs, batch_size, options)
