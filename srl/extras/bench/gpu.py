"""The figures of a machine with a GPU, in minutes: `srl bench gpu`."""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from srl.core.console.arguments import Arguments, listed, number, one_of
from srl.core.errors import PlanError, RunError, UserError
from srl.core.optional_packages import installed_version
from srl.extras.bench.gpu_load import gpu_names
from srl.extras.bench.gpu_rows import ROWS, Room, Row, device
from srl.extras.bench.gpu_table import NOT_RUN, table, value_text
from srl.extras.bench.train import OutOfTime
from srl.record.files import write_output
from srl.system.gpus import jax_gpus

_NOTES = """Rows are measured in the order of their value until the minutes are over, each in
processes of its own. --out FOLDER gets gpu.json and gpu.md, written anew after each row, with all
rows: those never run are marked so. A row trains for some seconds after the first report of a run,
which comes after compiling. Its share is that of the rate at which a pool of as many environments
steps with random actions on all cores. The GPU's load is the mean of what nvidia-smi reports.

What is not listed goes to every training: --num-envs 512.
"""
_SHARE = 4  # of the minutes, that one row may take at most


def main(argv: list[str]) -> int:
    """`srl bench gpu [--minutes M] [--out FOLDER] [--rows NAME,...] [--json]`."""
    parser = Arguments("bench gpu", epilog=_NOTES)
    names = [row.name for row in ROWS]
    add = parser.add_argument
    add("--minutes", type=number(0.01), default=8.0, metavar="M", help="default 8")
    add("--out", type=Path, metavar="FOLDER", help="for the results")
    usual = ",".join(row.name for row in ROWS if row.usual)
    add("--rows", type=listed(one_of(*names)), default=usual, metavar="NAMES", help="all")
    add("--on-cpu", action="store_true", help="measure on the CPU where JAX has no GPU")
    add("--json", action="store_true", help="one JSON object a line")
    options, overrides = parser.parse_known_args(argv)
    if not jax_gpus() and not options.on_cpu:
        raise UserError("JAX has no GPU here; --on-cpu measures on the CPU")
    rows = [row for row in ROWS if row.name in options.rows]
    results = Results(rows, options.out)
    begin = time.monotonic()
    pools: dict[str, float] = {}
    for row in rows:
        now = time.monotonic()
        end = begin + 60 * options.minutes
        if now >= end:
            break
        most = 60 * options.minutes / min(_SHARE, len(rows))
        found = measured(row, Room(min(end, now + most), overrides, pools))
        _show(results.add(row, found, time.monotonic() - now), options.json)
    return 0


class Results:
    """The results of all rows, as they are on disk."""

    def __init__(self, rows: Sequence[Row], folder: Path | None) -> None:
        """Writes that none of these rows has been run; other rows in the folder stay.

        Raises:
            UserError: If the folder cannot be written, or holds rows of another machine.
        """
        self._folder = folder
        self.content = nothing_run(rows)
        self.content["machine"] = machine()
        self._keep_others()
        self._write()

    def _keep_others(self) -> None:
        """Takes in the rows of an earlier measurement that are not measured now."""
        file = None if self._folder is None else self._folder / "gpu.json"
        if file is None or not file.exists():
            return
        try:
            earlier = json.loads(file.read_text())
            own = {key: x for key, x in earlier["machine"].items() if key != "date"}
            kept = {line["name"]: line for line in earlier["rows"]}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{file} holds no rows; give another folder by --out") from None
        if own != {key: x for key, x in self.content["machine"].items() if key != "date"}:
            raise UserError(
                f"{file} is of another machine or version; give another folder by --out"
            )
        chosen = {line["name"]: line for line in self.content["rows"]}
        self.content["rows"] = [*{**kept, **chosen}.values()]

    def add(self, row: Row, found: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Adds what was found of a row; gives the row's line."""
        line = next(line for line in self.content["rows"] if line["name"] == row.name)
        line.update({"state": "run", "seconds": seconds, **found})
        self._write()
        return line

    def _write(self) -> None:
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps(self.content, indent=1) + "\n"
            write_output(self._folder / "gpu.json", text.encode())
            write_output(self._folder / "gpu.md", table(self.content).encode())


def nothing_run(rows: Sequence[Row] = ROWS) -> dict[str, Any]:
    """The results where no row has been run, on no machine."""
    lines = [{"name": row.name, "text": row.text, "state": NOT_RUN} for row in rows]
    return {"machine": {}, "rows": lines}


def measured(row: Row, room: Room) -> dict[str, Any]:
    """A row's figures, or its state where it has none."""
    try:
        return row.measure(room)
    except PlanError as error:
        return {"state": f"refused: {error}"}
    except OutOfTime as error:
        return {"state": f"cut off: {error}"}
    except (RunError, UserError) as error:
        return {"state": f"failed: {error}"}
    except Exception as error:  # whatever it is: the machine is there for minutes, and rows wait
        return {"state": f"failed: {type(error).__name__}: {error}"}


def machine() -> dict[str, Any]:
    """The machine that is measured; starts no device."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "gpus": gpu_names(),
        "computes_on": device(),
        "cores": len(os.sched_getaffinity(0)),
        "processor": models[0] if models else platform.machine(),
        "jax": version("jax"),
        "srl": installed_version(),
        "date": datetime.date.today().isoformat(),
    }


def _show(line: dict[str, Any], as_json: bool) -> None:
    if as_json:
        text = json.dumps(line)
    elif "value" not in line:
        text = f"{line['name']:<20} {line['state']}"
    else:
        pool, load = line.get("pool"), line.get("gpu_load")
        share = f"  {100 * line['value'] / pool:5.1f} % of the pool" if pool else ""
        busy = "" if load is None else f"  GPU busy {load:.0f} %"
        text = f"{line['name']:<20} {value_text(line['value'])} {line['unit']}{share}{busy}"
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
