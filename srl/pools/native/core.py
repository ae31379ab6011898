"""The C++ module, loaded after the MuJoCo library that it was built for."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import re
from pathlib import Path
from typing import Any

from srl.core.errors import RunError
from srl.core.optional_packages import pip_install


def _load_core() -> Any:
    """Loads the C++ module, after the MuJoCo library that it was built for.

    MuJoCo's library comes in a wheel, where the loader does not look: it is loaded here first,
    and the module then finds it by its name.
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


core: Any = _load_core()
"""The module `srl._core`; its calls are in `srl/_core.pyi`."""
