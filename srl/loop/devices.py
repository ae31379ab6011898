"""Which devices act and learn in this process.

What acts does so on JAX's default device, what learns on all of this process' devices of that kind.
`fused` is one program on one device: the default one, or the CPU where it steps a native pool.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from srl.dataflow.plans import programs_need_cpu
from srl.errors import UserError
from srl.lazy import jax


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
    chosen = jax.config.jax_default_device
    if chosen is None:
        return jax.local_devices()
    return jax.local_devices(backend=chosen) if isinstance(chosen, str) else [chosen]


def several_devices() -> bool:
    """Whether learning has several devices: of this process, or of several that learn together."""
    return jax.process_count() > 1 or len(local_devices()) > 1


def program_device(env: Any) -> AbstractContextManager[Any]:
    """Where the compiled loop of an environment is made and runs; starts no device yet.

    A native pool's state is committed to the CPU, and so is all that is computed with it. What is
    made elsewhere would be moved there at every call.
    """
    return jax.default_device("cpu") if programs_need_cpu(env) else nullcontext()
