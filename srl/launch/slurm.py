"""Slurm: a job for the fragment that updates and the controller, and an array for each other one.

Jobs are made from the plan: each host that a fragment gets runs a supervisor, and whatever dies is
seen to by the controller. Slurm starts again what lost its node: the learners' job as a whole, from
the checkpoint, or the one element of an array whose node it was. Jobs share the run's folder.
"""

from __future__ import annotations

import json
import math
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from srl.dataflow.plan import Fragment, Plan
from srl.errors import UserError
from srl.launch.folder import RunFolder

OPTIONS = ("partition", "account", "constraint", "time")
"""Of sbatch, that `srl run` takes by their own names."""
_SECONDS = 60  # that a command of Slurm's may take
_TERMINAL = "terminal"
# A process that was killed is started again; any other end is an answer.
_AGAIN = """\
again() {
  while :; do
    "$@" & child=$!
    trap 'kill -TERM $child' TERM
    while :; do wait $child; code=$?; kill -0 $child 2>/dev/null || break; done
    case $code in 134|135|137|139) sleep 0.2 ;; *) return $code ;; esac
  done
}
"""


@dataclass(frozen=True)
class Job:
    """What is asked of Slurm for one fragment."""

    fragment: str
    hosts: int
    """Nodes, or tasks that share nodes as Slurm finds room."""
    slots: int
    """Workers on each."""
    cores: int
    """Of each host, for its workers."""
    gpus: int
    """Of each host."""
    apart: bool
    """Whether no two of the hosts are the same, and no other job is there."""
    controls: bool
    """Whether the controller runs beside it, and its hosts begin and end together."""


def jobs(plan: Plan) -> list[Job]:
    """What to ask for, the controller's job first."""
    made = [_job(name, fragment) for name, fragment in plan.fragments.items()]
    if not any(job.controls for job in made):
        raise AssertionError("every plan updates somewhere")
    return sorted(made, key=lambda job: not job.controls)


def _job(name: str, fragment: Fragment) -> Job:
    hosts = fragment.hosts or fragment.replicas
    slots = -(-fragment.replicas // hosts)
    cores = max(1, math.ceil(slots * (fragment.cores or 1)))
    gpus = math.ceil(slots * fragment.gpus)
    return Job(name, hosts, slots, cores, gpus, fragment.hosts > 0, "update" in fragment.placed)


def script(job: Job, folder: RunFolder, name: str, options: Sequence[str]) -> str:
    """The batch script of a job.

    Args:
        job: What it is for.
        folder: The run's, which all hosts share.
        name: Of the experiment.
        options: Of sbatch, as the user gave them.
    """
    supervisor = [sys.executable, "-m", "srl.launch.supervisor", str(folder.path)]
    supervise = shlex.join([*supervisor, job.fragment, str(job.slots)])
    lines = [
        f"--job-name=srl-{name}-{job.fragment}",
        "--requeue",
        "--open-mode=append",
        f"--cpus-per-task={job.cores}",
        *([f"--gpus-per-node={job.gpus}"] if job.gpus else []),
        *(["--exclusive"] if job.apart else []),
    ]
    output = folder.log(f"slurm-{job.fragment}")
    if job.controls:
        serve = shlex.join([sys.executable, "-m", "srl.launch.serve", str(folder.path)])
        lines += [
            f"--nodes={job.hosts}",
            "--ntasks-per-node=1",
            "--signal=B:TERM@60",
            f"--output={folder.log(_TERMINAL)}",
        ]
        srun = f"srun --kill-on-bad-exit=0 --wait=0 --output={shlex.quote(str(output))}-%n"
        body = f"{srun} {supervise} &\nagain {serve}\nexit $?\n"
    else:
        lines += [
            f"--array=0-{job.hosts - 1}",
            "--nodes=1",
            "--ntasks=1",
            f"--output={output}-%a",
        ]
        body = f"again {supervise}\nexit $?\n"
    head = "\n".join(f"#SBATCH {shlex.quote(line)}" for line in [*lines, *options])
    return f"#!/bin/bash\n{head}\n{_AGAIN}{body}"


def scripts(plan: Plan, folder: RunFolder, name: str, options: Sequence[str]) -> dict[str, str]:
    """The batch scripts of a run, by fragment; the controller's first."""
    return {job.fragment: script(job, folder, name, options) for job in jobs(plan)}


def submit(folder: RunFolder, texts: dict[str, str]) -> dict[str, str]:
    """Gives the scripts to Slurm.

    Returns:
        The jobs' numbers, by fragment.

    Raises:
        UserError: If there is no Slurm here, or it refuses one; then none is left.
    """
    place = folder.path / "slurm"
    place.mkdir(exist_ok=True)
    numbers: dict[str, str] = {}
    for fragment, text in texts.items():
        file = place / f"{fragment}.sh"
        file.write_text(text)
        try:
            told = command("sbatch", "--parsable", str(file))
        except UserError:
            cancel(list(numbers.values()))
            raise
        numbers[fragment] = told.strip().partition(";")[0]
    (place / "jobs.json").write_text(json.dumps(numbers) + "\n")
    return numbers


def submitted(folder: RunFolder) -> dict[str, str]:
    """The jobs of a run, by fragment.

    Raises:
        UserError: If it was not given to Slurm.
    """
    try:
        return json.loads((folder.path / "slurm" / "jobs.json").read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{folder.path} was not given to Slurm: {error}") from error


def states(numbers: Sequence[str]) -> set[str]:
    """What becomes of jobs that Slurm still knows to wait or to run, such as PENDING."""
    told = command("squeue", "--noheader", "--format=%T", f"--jobs={','.join(numbers)}", ok=(0, 1))
    return set(told.split())


def cancel(numbers: Sequence[str], *, gently: bool = False) -> None:
    """Ends jobs; gently: the batch script is told, and ends them in good order."""
    if numbers:
        how = ["--signal=TERM", "--batch"] if gently else []
        command("scancel", *how, *numbers)


def command(name: str, *words: str, ok: Sequence[int] = (0,)) -> str:
    """What one of Slurm's commands prints.

    Raises:
        UserError: If there is no such command, or it fails.
    """
    if shutil.which(name) is None:
        raise UserError(f"there is no {name} here; run this on a machine from which Slurm is used")
    done = subprocess.run(
        [name, *words], capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if done.returncode not in ok:
        raise UserError(f"{name} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def terminal(folder: RunFolder) -> Path:
    """The file that holds what the controller shows."""
    return folder.log(_TERMINAL)
