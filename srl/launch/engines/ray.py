"""Ray: one job, which holds a process for each host that the plan asks for.

Only the hosts of the fragment that updates have to see the run's folder: the controller hands the
keys, the experiment and its overrides to the others. They are not in the job's environment, which
Ray writes into its logs. Data never goes through Ray.
"""

from __future__ import annotations

import importlib
import json
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from srl.core.errors import RunError, UserError
from srl.core.optional_packages import install_command
from srl.launch.engines import ray_job
from srl.launch.engines.engine import Submission
from srl.launch.engines.ray_host import config_hash
from srl.system.child_process import program_command

_ENTRYPOINT = shlex.join(program_command("srl.launch.engines.ray_job", python="python"))
STOP_SECONDS = 600  # for the last checkpoint of a job that is stopped
_LOG_LINES = 20  # of a job that has failed
_Answer = TypeVar("_Answer")


def texts(run: Submission) -> dict[str, str]:
    """The job of a run, and the resources that it takes of the cluster."""
    resource = run.options.ray_resource or ""
    groups = {
        part.fragment: {
            "strategy": ray_job.strategy(part),
            "bundles": ray_job.bundles(part, resource),
        }
        for part in run.parts
    }
    job = {
        "entrypoint": _ENTRYPOINT,
        "runtime_env": {"env_vars": _variables(run)},
        "placement_groups": groups,
    }
    return {"job.json": json.dumps(job, indent=2)}


def submit(run: Submission) -> dict[str, str]:
    """Implements `Engine.submit`; gives the number of the job and the address of the cluster."""
    address = run.options.ray_address or os.environ.get("RAY_API_SERVER_ADDRESS", "auto")
    runtime_env = {"env_vars": _variables(run)}
    job = asked(
        address, lambda client: client.submit_job(entrypoint=_ENTRYPOINT, runtime_env=runtime_env)
    )
    return {"job": job, "at": address}


def states(names: Mapping[str, str]) -> set[str]:
    """Implements `Engine.states`; empty once the job has ended well, or is forgotten."""
    job = names["job"]
    try:
        state = str(asked(names["at"], lambda client: client.get_job_status(job).value))
    except UserError as error:
        if "status code 404" in str(error):  # Ray was started anew
            return set()
        raise
    if state == "FAILED":
        log = asked(names["at"], lambda client: client.get_job_logs(job))
        raise RunError(f"the Ray job {job} has failed:\n{_error_text(log)}")
    return {state} & {"PENDING", "RUNNING"}


def refused(names: Mapping[str, str]) -> str:
    """Empty: the job gets such errors from its host processes, and then fails."""
    return ""


def stop(names: Mapping[str, str]) -> bool:
    """Implements `Engine.stop`; raises RunError, as `states`, if the job has failed."""
    if not states(names):
        return False
    asked(names["at"], lambda client: client.stop_job(names["job"]))
    return True


def _variables(run: Submission) -> dict[str, str]:
    """The variables of the job, and of all that it starts. None is a secret."""
    return {
        ray_job.FOLDER: str(run.folder.path),
        ray_job.CONFIG: config_hash(run.folder),
        ray_job.PARTS: json.dumps([asdict(part) for part in run.parts]),
        ray_job.RESOURCE: run.options.ray_resource or "",
        "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS),
    }


def _error_text(log: str) -> str:
    """The error that a job has logged, or else the end of its log."""
    lines = log.splitlines()
    own = next((number for number, line in enumerate(lines) if line.startswith("srl: ")), None)
    return "\n".join(lines[-_LOG_LINES:] if own is None else lines[own:])


def asked(address: str, ask: Callable[[Any], _Answer]) -> _Answer:
    """Gives the cluster's answer to a request.

    Raises:
        UserError: If Ray is not installed, or the cluster is out of reach or refuses.
    """
    try:
        sdk: Any = importlib.import_module("ray.job_submission")
    except ImportError:
        raise UserError(f"Ray is not installed here: {install_command('ray')}") from None
    try:
        return ask(sdk.JobSubmissionClient(None if address == "auto" else address))
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(f"the Ray cluster at {address} does not answer: {error}") from error
