"""Finds the code outside of srl that an environment is made of."""

from __future__ import annotations

import re

import gymnasium

from srl.core.backends import backend_of
from srl.pools.config import EnvConfig
from srl.pools.make import EnvSource
from srl.pools.mixture import mixture_of


def outside_module(env: EnvSource) -> str:
    """The module or library, other than srl and its libraries, of which an environment is made.

    Args:
        env: As for `make_pool`; a callable counts as its module.

    Returns:
        Its name, as the id has it; empty where there is none.
    """
    if mixture := mixture_of(env):
        return next(filter(None, map(outside_module, mixture.tasks.values())), "")
    if isinstance(env, EnvConfig):
        wrappers = env.options().get("wrappers", ())
        named = next((text for text in wrappers if not isinstance(text, str) or ":" in text), "")
        return str(named) or outside_module(env.pool_id)
    if not isinstance(env, str):
        return getattr(env, "__module__", type(env).__module__)
    name = env.partition(":")[2]
    backend = backend_of(env)
    if backend.own_ids:
        return name if re.search(r"[:/]|\.so$", name) else ""
    if backend.language == "JAX":
        from srl.pools.functional.adapters import LIBRARIES  # which few need

        library = name.partition(":")[0]
        return "" if library in LIBRARIES else library
    plain = env.removeprefix("vector:")
    known = plain in gymnasium.registry or re.fullmatch(r"[\w/-]+", plain)
    return "" if known else plain
