"""The C++ module, loaded after the MuJoCo library that it was built for, and its calls for XLA."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Any

from srl.core.errors import RunError
from srl.core.lazy import jax
from srl.core.optional_packages import pip_install


@cache
def load_core() -> Any:
    """Loads `srl._core`; its calls are in `srl/_core.pyi`.

    MuJoCo's library comes in a wheel, where the loader does not look: it is loaded here first,
    and the module then finds it by its name.

    Raises:
        RunError: If the module or its MuJoCo is not installed.
    """
    found = importlib.util.find_spec("mujoco")
    places = (found.submodule_search_locations if found else None) or []
    libraries = [file for place in places for file in Path(place).glob("libmujoco.so.*")]
    for library in libraries:
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    try:
        return importlib.import_module("srl._core")
    except ImportError as error:
        have = ", ".join(file.name for file in libraries) or "no libmujoco"
        built = re.search(r"libmujoco\.so\.([\d.]+\d)", str(error))
        hint = pip_install(f"mujoco=={built[1]}") if built else "install srl again"
        raise RunError(
            f"srl's C++ module cannot be loaded: {error}. It needs the very MuJoCo that it was "
            f"built for, and what is installed is {have}: {hint}"
        ) from error


@cache
def register_xla_calls() -> None:
    """Lets programs on CPUs call the module's functions (`csrc/xla/calls.h`).

    Raises:
        RunError: If the module was built for another jaxlib.
    """
    for name, handler in load_core().xla_calls().items():
        try:
            jax.ffi.register_ffi_target(name, handler, platform="cpu")
        except Exception as error:
            raise RunError(
                f"jaxlib {jax.lib.__version__} does not take srl's calls ({error}): srl was built "  # pyright: ignore[reportPrivateImportUsage]
                "for another; install it again from its sources, where this jaxlib is: "
                + pip_install("--no-build-isolation", "--force-reinstall", "--no-deps", ".")
            ) from error
