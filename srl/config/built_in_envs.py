"""The environments' configurations that come with srl."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any

from srl.pools import EnvConfig, NamedEnv


def config_class(env: Any) -> type[EnvConfig] | None:
    """Gives the configuration class of an environment that srl ships; None for any other.

    Args:
        env: An experiment's, or what its `config.json` has of it: the type in a mapping.
    """
    if isinstance(env, NamedEnv):
        env = env.id
    if isinstance(env, EnvConfig):
        return type(env)
    if isinstance(env, Mapping) and "arguments" in env and "id" in env:  # a NamedEnv
        env = env["id"]
    if isinstance(env, Mapping):
        name = env.get("type")
        return next(
            (c for c in built_in_configs() if f"{c.__module__}:{c.__qualname__}" == name), None
        )
    if not isinstance(env, str) or not env.startswith("native:"):
        return None
    return next((config for config in built_in_configs() if config.pool_id == env), None)


def built_in_configs() -> Iterator[type[EnvConfig]]:
    """All of them, each once."""
    import srl.envs

    seen = set()
    for module in pkgutil.iter_modules(srl.envs.__path__, "srl.envs."):
        names = vars(importlib.import_module(module.name))
        for value in [*names.values()]:  # more may be imported while these are looked at
            configures = isinstance(value, type) and issubclass(value, EnvConfig)
            if configures and hasattr(value, "pool_id") and value not in seen:
                seen.add(value)
                yield value
