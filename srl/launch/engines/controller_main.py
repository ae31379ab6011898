"""The controller of a run on several hosts.

    python -P -m srl.launch.engines.controller_main RUN_DIR

An engine such as Slurm starts it beside a learner, and again where it was killed: what runs goes on
meanwhile, and the next controller finds it. How the run ended stands in the run's folder.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from srl.core.errors import UserError
from srl.launch.engines.engine import parts_of
from srl.launch.hosts.hosts import own_address
from srl.launch.hosts.remote_hosts import LEASE_SECONDS, RemoteHosts
from srl.launch.processes import train_in_processes
from srl.loop.wiring import server, streams_of
from srl.record.checkpoint import Checkpoints
from srl.run.folder import open_run
from srl.run.status import write_outcome
from srl.run.terminal import FAILED, MISTAKEN


def main(argv: Sequence[str]) -> int:
    """Runs the workers of a run, whose folder is the argument, on the hosts that connect.

    Returns:
        The exit code, as of `srl run`.
    """
    logging.getLogger("srl").setLevel(logging.INFO)
    path = Path(argv[0])
    hosts = None
    try:
        folder, resolved = open_run(path, to_train=True, trust=True)
        experiment = resolved.experiment
        resume = Checkpoints(folder.checkpoints).latest() is not None
        lease_seconds = min(LEASE_SECONDS, experiment.heartbeat_seconds)
        plan = experiment.settled_plan
        expected = {part.fragment: part.hosts for part in parts_of(plan)}
        parameters = streams_of(experiment).get("parameters")
        publisher = server(parameters) if parameters else ""
        hosts = RemoteHosts(folder, own_address(), lease_seconds, expected, publisher)
        code = train_in_processes(
            experiment, folder, resume=resume, transport="cluster", hosts=hosts
        )
    except UserError as error:
        sys.stderr.write(f"srl: {error}\n")
        code = MISTAKEN
    except Exception:
        traceback.print_exc()
        code = FAILED
    if hosts is None or not hosts.superseded:
        try:
            write_outcome(path, code)
        except OSError as error:
            sys.stderr.write(f"srl: cannot write in {path} how the run ended: {error.strerror}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
