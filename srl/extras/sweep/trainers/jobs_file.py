"""The file with a cluster's names of the jobs that train a sweep's runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from srl.core.errors import UserError
from srl.record.files import parse_json, short_path, write_output
from srl.record.json_shape import fits

_NAME = "jobs.json"


def read_jobs(folder: Path) -> dict[str, str]:
    """The jobs by the names of the runs; none before the first is written.

    Raises:
        UserError: If the file is damaged.
    """
    file = folder / _NAME
    try:
        jobs = parse_json(file.read_bytes())
        if not fits(jobs, {str: str}):
            raise ValueError("it is no object of texts")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UserError(
            f"{short_path(file)} does not hold the names of the sweep's jobs any more ({error}); "
            "if they have ended, remove it"
        ) from error
    return jobs


def write_jobs(folder: Path, jobs: Mapping[str, str]) -> None:
    """Writes the jobs for the next command; makes the folder."""
    folder.mkdir(exist_ok=True)
    write_output(folder / _NAME, (json.dumps(jobs) + "\n").encode())
