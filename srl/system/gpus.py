"""The GPUs of this machine, as far as it can be known without starting what computes on them."""

from __future__ import annotations

import importlib.util
import os
import pkgutil
import re
from pathlib import Path


def machine_gpus() -> list[str]:
    """The GPUs that this process may use, by the names that CUDA_VISIBLE_DEVICES takes."""
    platforms = os.environ.get("JAX_PLATFORMS") or "cuda"
    if not re.search("cuda|gpu", platforms):
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name.strip()]
    count = sum(bool(re.fullmatch(r"nvidia\d+", path.name)) for path in Path("/dev").iterdir())
    return [str(k) for k in range(count)]


def jax_gpus() -> list[str]:
    """The GPUs that JAX computes on: none where it is installed for the CPU alone."""
    plugins = importlib.util.find_spec("jax_plugins")  # which imports none of them
    places = (plugins and plugins.submodule_search_locations) or ()
    known = any("cuda" in module.name for module in pkgutil.iter_modules(places))
    return machine_gpus() if known else []


def memory_variable() -> str:
    """The name of JAX's variable for a share of a GPU's memory.

    JAX refuses both names at once: it is the newer one where the user has set that.
    """
    newer = "XLA_CLIENT_MEM_FRACTION"
    return newer if newer in os.environ else "XLA_PYTHON_CLIENT_MEM_FRACTION"
