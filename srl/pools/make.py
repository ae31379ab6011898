"""Finds the pool for whatever names an environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from srl.errors import UserError
from srl.pools.pool import EnvConfig, Pool

EnvSource = str | EnvConfig | Callable[..., Any]


def make_pool(
    env: EnvSource,
    num_envs: int = 1,
    batch_size: int | None = None,
    threads: int = 0,
    **options: Any,
) -> Pool:
    """Makes a pool of `num_envs` environments.

    Args:
        env: "native:CartPole-v1", an id of Gymnasium ("CartPole-v1", "module:Name-v0"), a module
            of PettingZoo's parallel kind ("pettingzoo:mpe2.simple_tag_v3"; or what makes one,
            "pettingzoo:module:factory"), a callable that makes a `gymnasium.Env` or a
            `pettingzoo.ParallelEnv`, or a configuration object.
        num_envs: How many.
        batch_size: How many `recv` gives at a time; all by default.
        threads: Of a native pool; 0 takes one for each core.
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
        return make_pool(env.pool_id, num_envs, batch_size, threads, **env.options(), **options)
    if isinstance(env, str) and env.startswith("native:"):
        from srl.pools.native import NativePool

        return NativePool(env.removeprefix("native:"), num_envs, batch_size, threads, options)
    from srl.pools.serial import SerialPool

    return SerialPool(env, num_envs, batch_size, options)
