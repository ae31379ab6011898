"""Native environments from libraries compiled elsewhere: native:/path/libwalk.so:Walk-v0."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from pathlib import Path

from srl.core.errors import UserError


def resolve_plugin(name: str, load: Callable[[str], list[str]]) -> str:
    """The name under which the C++ side knows a native environment, its library loaded.

    Args:
        name: After "native:". LIBRARY:NAME means an environment of a library; any other name is
            given back as it is.
        load: Loads the library at an absolute path and gives the names of its environments.

    Raises:
        UserError: If there is no such library, it cannot be loaded, or it has no such environment.
    """
    library, colon, own_name = name.rpartition(":")
    if not colon:
        if "/" not in name and not name.endswith(".so"):
            return name
        library, own_name = name, ""
    path = _find(library)
    try:
        names = load(str(path))
    except ValueError as error:
        raise UserError(f"native:{name}: {error}") from error
    if own_name in names:
        return f"{path}:{own_name}"
    near = difflib.get_close_matches(own_name, names, 1, 0.4) or names
    given = f"has no environment {own_name!r}" if own_name else "needs an environment's name"
    raise UserError(
        f"native:{name}: the library {given}; it has {', '.join(names)}: native:{library}:{near[0]}"
    )


def _find(library: str) -> Path:
    """The library's absolute path; a relative one is looked for here, then as modules are.

    So an experiment finds the library that lies beside it, from wherever it is run or resumed.
    """
    given = Path(library).expanduser()
    for place in [Path.cwd(), *map(Path, sys.path)]:
        path = (place / given).resolve()
        if path.is_file():
            return path
    beyond = "" if given.is_absolute() else f" in {Path.cwd()} or on Python's module path"
    raise UserError(f"native:{library}: there is no file {given}{beyond}")
