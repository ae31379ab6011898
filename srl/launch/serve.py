"""The controller of a run on several hosts: python -m srl.launch.serve RUN_DIR.

An engine such as Slurm starts it beside a learner, and again where it was killed: what runs goes on
meanwhile, and the next controller finds it. How the run ended stands in the run's folder.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import sys
from pathlib import Path

from srl.checkpoint import Checkpoints
from srl.errors import UserError
from srl.experiment import plan_of
from srl.launch.folder import RunFolder, open_run
from srl.launch.processes import train_in_processes
from srl.launch.remote_hosts import RemoteHosts

_OUTCOME = "outcome.json"


def serve(path: Path) -> int:
    """Runs the workers of a run on the hosts that come; gives the exit code, as `srl run` does."""
    folder, resolved = open_run(path, to_train=True)
    experiment = resolved.experiment
    with contextlib.closing(Checkpoints(folder.checkpoints)) as checkpoints:
        resume = checkpoints.latest() is not None
    hosts = RemoteHosts(folder, own_address())
    try:
        code = train_in_processes(
            experiment,
            plan_of(experiment),
            folder,
            resume=resume,
            transport="network",
            hosts=hosts,
        )
    except UserError as error:
        sys.stderr.write(f"srl: {error}\n")
        code = 2
    write_outcome(folder, code)
    return code


def write_outcome(folder: RunFolder, code: int) -> None:
    """Tells who follows the run that it has ended, and how."""
    unfinished = folder.path / f"{_OUTCOME}.tmp"
    unfinished.write_text(json.dumps({"code": code}) + "\n")
    unfinished.replace(folder.path / _OUTCOME)


def read_outcome(folder: RunFolder) -> int | None:
    """The exit code of a run that has ended; None before."""
    try:
        return int(json.loads((folder.path / _OUTCOME).read_text())["code"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def forget_outcome(folder: RunFolder) -> None:
    """The run goes on."""
    (folder.path / _OUTCOME).unlink(missing_ok=True)


def own_address() -> str:
    """The address at which other hosts reach this one: that of its name, or of its way out."""
    with contextlib.suppress(OSError):
        address = socket.gethostbyname(socket.gethostname())
        if not address.startswith("127."):
            return address
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # nothing is sent; the kernel chooses the way
        return probe.getsockname()[0]
    return "127.0.0.1"


if __name__ == "__main__":
    logging.getLogger("srl").setLevel(logging.INFO)
    sys.exit(serve(Path(sys.argv[1])))
