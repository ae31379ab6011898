"""Modules that load at their first use, so that importing an experiment stays cheap.

Experiment files and simulator-only workers import the algorithms for their configuration alone;
jax and flax load at the first `init`, `act` or `learn`.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jax
    import jax.core
    import jax.numpy as jnp
    import optax
    from flax import linen as nn
    from jax import flatten_util
else:

    class _LazyModule(ModuleType):
        """Stands for a module and imports it when one of its attributes is asked for."""

        def __getattr__(self, name: str) -> Any:
            return getattr(importlib.import_module(self.__name__), name)

    flatten_util = _LazyModule("jax.flatten_util")
    jax = _LazyModule("jax")
    jnp = _LazyModule("jax.numpy")
    nn = _LazyModule("flax.linen")
    optax = _LazyModule("optax")

__all__ = ["flatten_util", "jax", "jnp", "nn", "optax"]
