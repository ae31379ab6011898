"""Prior data in a run's folder: block files, as replays have them, and a list of these.

A file is another run's, or holds a data set in the same form. Its arrays are [K, rows, B, ...], and
their names begin with a policy's, or with ANY_POLICY.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from srl.core.errors import RunError
from srl.record import block_files
from srl.record.files import parse_json, write_atomically

ANY_POLICY = "*"
_LIST = "prior.json"


class PriorFiles(NamedTuple):
    """The list of a folder's files of prior data."""

    files: Mapping[str, str]
    """Their checksums by name."""
    source: str
    """The origin of the data, in words."""
    raw: bool
    """True if actions and rewards are the environment's, False if they are as learning has them."""


def write_list(folder: Path, listed: PriorFiles) -> None:
    """Writes the list, once all files are there; raises OSError if that is not possible."""
    write_atomically(folder / _LIST, (json.dumps(listed._asdict(), indent=2) + "\n").encode())


def read_list(folder: Path) -> PriorFiles:
    """Reads the list.

    Raises:
        RunError: If it is absent or damaged.
    """
    try:
        match parse_json((folder / _LIST).read_bytes()):
            case {"files": dict() as files, "source": str() as source, "raw": bool() as raw}:
                return PriorFiles(block_files.expect_files(files), source, raw)
        raise ValueError("it is no list of files")
    except OSError as error:
        reason = error.strerror
    except ValueError as error:
        reason = str(error)
    raise RunError(
        f"cannot read the run's prior data: {folder / _LIST}: {reason}; bring it back, or begin a "
        "new run"
    )
