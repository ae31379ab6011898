"""The search path of modules: installed ones come first, the user's own folder last.

So no file in an experiment's folder (`types.py`, `jax.py`, a folder `srl`) replaces a module of
Python's, srl's or its dependencies' with the same name.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

_CHECKOUT = Path(__file__).parents[2]


def add_folder(folder: Path) -> None:
    """Lets this process, and those that it starts, import what lies in a folder."""
    if str(folder) in sys.path:
        return
    behind = _entries_without_use()
    sys.path[:] = [entry for entry in sys.path if entry not in behind]
    sys.path += [str(folder), *behind]


def _entries_without_use() -> list[str]:
    """Lists the path entries of an editable install that has its own finder for srl.

    They are the folder of srl's sources and its parent. Other packages there, such as `envs`, are
    not installed, and must not hide the user's modules of the same name.
    """
    finders = [finder for finder in sys.meta_path if finder is not PathFinder]
    if not any(finder.find_spec("srl", None) for finder in finders):
        return []
    return [entry for entry in sys.path if entry in (str(_CHECKOUT), str(_CHECKOUT.parent))]


def hidden_by(error: BaseException, folder: Path) -> str:
    """Describes the remedy if an import failed because an installed module hides one in the folder.

    Args:
        error: That importing raised.
        folder: The user's.

    Returns:
        A clause to add to the error's text; empty where that is not the reason.
    """
    name = ""
    if isinstance(error, ImportError):
        name = error.name or ""
    elif isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        name = error.obj.__name__
    name = name.partition(".")[0]
    spec = getattr(sys.modules.get(name), "__spec__", None)
    beside = [folder / f"{name}.py", folder / name]
    if spec is None or not any(path.exists() for path in beside):
        return ""
    found = [str(path) for path in (spec.origin, *(spec.submodule_search_locations or ()))]
    if any(path.startswith(f"{folder}/") for path in found):
        return ""
    return (
        f"; {name} is the installed module ({found[0]}) and not the one in {folder}: give yours "
        "another name"
    )
