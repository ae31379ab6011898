"""Runs on a Ray cluster: a job of Ray's for each, on a host that sees the sweep's folder."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from srl.core.errors import UserError
from srl.extras.sweep.trainers.memory import RunMemory
from srl.launch.engines import ray
from srl.launch.engines.engine import names_file, parts_of, read_names, write_names
from srl.run.managed_run import ManagedRun

_RUNNING = ("PENDING", "RUNNING")


class RayJobs:
    """See `Trainer`. Jobs end with this command; if that is killed, the next finds them."""

    look_seconds = 2.0

    def __init__(self, folder: Path, parallel: int, options: Any) -> None:
        """Asks the cluster nothing yet; `folder` is the sweep's."""
        self._folder, self._parallel, self._resource = folder, parallel, options.ray_resource
        self._names = names_file(folder, "ray")
        self._submitted = read_names(self._names, "sweep")
        self._address = options.ray_address or os.environ.get("RAY_API_SERVER_ADDRESS", "auto")
        self._queue: list[ManagedRun] = []
        self._memory = RunMemory()
        self._jobs: dict[str, ManagedRun] = {}

    @property
    def waiting(self) -> bool:
        """Implements `Trainer.waiting`."""
        return bool(self._queue or self._jobs)

    def begin(self, runs: Sequence[ManagedRun]) -> None:
        """Implements `Trainer.begin`."""
        self._queue += runs
        self._fill()

    def trains(self, run: ManagedRun) -> bool:
        """Implements `Trainer.trains`."""
        return any(other.path == run.path for other in self._jobs.values())

    def ended(self) -> list[ManagedRun]:
        """Implements `Trainer.ended`; writes the jobs' logs."""
        ended = []
        with contextlib.suppress(UserError):  # the cluster may answer later
            for job in [job for job in self._jobs if self._state(job) not in _RUNNING]:
                text = ray.asked(self._address, lambda client, job=job: client.get_job_logs(job))
                self.log(self._jobs[job]).write_text(text)
                ended.append(self._jobs.pop(job))
        self._fill()
        return ended

    def stop(self, run: ManagedRun) -> None:
        """Implements `Trainer.stop`."""
        self._queue = [other for other in self._queue if other.path != run.path]
        for job, other in self._jobs.items():
            if other.path == run.path:
                ray.asked(self._address, lambda client, job=job: client.stop_job(job))

    def leave(self) -> str:
        """Ends all jobs after a checkpoint."""
        self._queue.clear()
        for run in list(self._jobs.values()):
            self.stop(run)
        while any(self._state(job) in _RUNNING for job in self._jobs):
            time.sleep(self.look_seconds)
        return "interrupted; the same command goes on"

    def log(self, run: ManagedRun) -> Path:
        """Implements `Trainer.log`."""
        return self._folder / f"{run.path.name}.log"

    def _fill(self) -> None:
        while self._queue and len(self._jobs) < self._parallel:
            run = self._queue.pop(0)
            job = self._submitted.get(run.path.name)
            if job is None or self._state(job) not in _RUNNING:
                job = self._submitted[run.path.name] = self._submit(run)
                write_names(self._names, self._submitted)
            self._jobs[job] = run

    def _submit(self, run: ManagedRun) -> str:
        experiment = run.experiment
        parts = parts_of(experiment.settled_plan, self._memory.of(experiment))
        # Ray starts a shell, which would not hand the signal of a stop on.
        entrypoint = f"cd {shlex.quote(os.getcwd())} && {{ {run.shell_command(python='python')}; }}"
        resources = {self._resource: 0.001} if self._resource else None
        return ray.asked(
            self._address,
            lambda client: client.submit_job(
                entrypoint=entrypoint,
                entrypoint_num_cpus=sum(p.hosts * (p.least_cores or p.cores) for p in parts),
                entrypoint_memory=sum(part.hosts * part.memory for part in parts),
                entrypoint_num_gpus=sum(part.hosts * part.gpus for part in parts) or None,
                entrypoint_resources=resources,
                runtime_env={"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(ray.STOP_SECONDS)}},
            ),
        )

    def _state(self, job: str) -> str:
        try:
            return str(ray.asked(self._address, lambda client: client.get_job_status(job).value))
        except UserError as error:
            if "status code 404" in str(error):  # Ray was started anew
                return "STOPPED"
            raise
