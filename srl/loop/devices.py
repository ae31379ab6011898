"""The devices that act and learn in this process.

Acting uses JAX's default device, and learning all of this process' devices of that kind.
`fused` is one program on one device: the default one, or the CPU where it steps a native pool.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from srl.core.errors import UserError
from srl.core.lazy import jax
from srl.dataflow.plans import programs_need_cpu
from srl.system.gpu_switches import gpu_choice


def expect_devices() -> None:
    """Starts JAX's devices, where JAX_PLATFORMS names some.

    Raises:
        UserError: If JAX has none of these here.
    """
    if not (platforms := os.environ.get("JAX_PLATFORMS", "")):
        return
    try:
        jax.local_devices()
    except (RuntimeError, AssertionError) as error:  # without any reason where it knows none
        reason = " ".join(str(error).split())
        raise UserError(
            f"JAX_PLATFORMS is {platforms!r}, and JAX has no such device here"
            f"{reason and f' ({reason})'}; unset it, or install JAX for that device"
        ) from None


def local_devices() -> list[Any]:
    """The devices of this process that learn; the first one acts."""
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    if chosen is None:
        return jax.local_devices()
    return jax.local_devices(backend=chosen) if isinstance(chosen, str) else [chosen]


def several_devices() -> bool:
    """Tells if learning has several devices: of this process, or of several that learn together."""
    return jax.process_count() > 1 or len(local_devices()) > 1


def program_device(env: Any) -> AbstractContextManager[Any]:
    """Makes a context for the device of an environment's compiled loop; starts no device yet.

    A native pool's state is committed to the CPU, and so are all values computed with it.
    Arrays made elsewhere would be moved there at every call.
    """
    return jax.default_device("cpu") if programs_need_cpu(env) else nullcontext()


def acting_cpu() -> Any | None:
    """The CPU, where it is to act although the process learns elsewhere; see `gpu_switches`."""
    return jax.local_devices(backend="cpu")[0] if gpu_choice("act") == "cpu" else None


def to_host() -> Callable[[Any], Any]:
    """The function that gives a tree of arrays as NumPy's.

    From a GPU all copies begin before the first is awaited; on the CPU there is nothing to copy.
    """
    on_cpu = local_devices()[0].platform == "cpu"
    apart = on_cpu or gpu_choice("copies") == "apart"
    return partial(jax.tree.map, np.asarray) if apart else jax.device_get
