"""The folders of the C and C++ headers to compile environments outside srl against."""

from __future__ import annotations

from pathlib import Path

import srl
from srl.core.errors import RunError


def get_include() -> str:
    """The folder to pass to a compiler as `-I`, for `#include "srl/environment.h"`.

    Raises:
        RunError: If srl was installed without its headers.
    """
    for place in srl.__path__:  # of an editable installation: the sources and what was built
        folder = Path(place) / "include"
        if (folder / "srl" / "environment.h").is_file():
            return str(folder)
    raise RunError(f"srl's headers are not in {', '.join(srl.__path__)}; install srl again")
