"""Slurm: a job for the fragment that updates and the controller, and an array for each other one.

Jobs are made from the plan: each host that a fragment gets runs a supervisor, and whatever dies is
seen to by the controller. Slurm starts again what lost its node: the learners' job as a whole, from
the checkpoint, or the one element of an array whose node it was. Jobs share the run's folder.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from srl.errors import UserError
from srl.launch.engine import TERMINAL, Part, Submission
from srl.launch.host_words import OUTCOME_FILE

OPTIONS = ("partition", "account", "constraint", "time")
"""Of sbatch, that `srl run` takes by their own names."""
_SECONDS = 60  # that a command of Slurm's may take
# A process that was killed is started again; any other end is an answer. USR1, of `srl stop` and at
# the end of a job's time, ends the run after a checkpoint; by TERM Slurm takes the host away.
_AGAIN = """\
again() {
  trap 'kill -USR1 $child' USR1
  trap 'kill -TERM $child; exit 143' TERM
  while :; do
    "$@" & child=$!
    while :; do wait $child; code=$?; kill -0 $child 2>/dev/null || break; done
    case $code in 134|135|137|139) sleep 0.2 ;; *) return $code ;; esac
  done
}
"""


def texts(run: Submission) -> dict[str, str]:
    """The batch scripts of a run, the controller's first."""
    return {f"{part.fragment}.sh": _script(part, run) for part in run.parts}


def submit(run: Submission) -> dict[str, str]:
    """Gives the scripts to Slurm.

    Returns:
        The jobs' numbers, by fragment; the controller's first.

    Raises:
        UserError: If there is no Slurm here, or it refuses one; then none is left.
    """
    place = run.folder.path / "slurm"
    place.mkdir(exist_ok=True)
    numbers: dict[str, str] = {}
    for name, text in texts(run).items():
        file = place / name
        file.write_text(text)
        try:
            told = _command("sbatch", "--parsable", str(file))
        except BaseException:
            if numbers:
                _command("scancel", *numbers.values())
            raise
        numbers[file.stem] = told.strip().partition(";")[0]
    return numbers


def states(names: Mapping[str, str]) -> set[str]:
    """What becomes of jobs that Slurm still knows to wait or to run, such as PENDING.

    Raises:
        UserError: If Slurm does not answer.
    """
    jobs = f"--jobs={','.join(names.values())}"
    try:
        return set(_command("squeue", "--noheader", "--format=%T", jobs).split())
    except UserError as error:
        if "Invalid job id" in str(error):  # so long ago that it has forgotten them
            return set()
        raise


def stop(names: Mapping[str, str]) -> None:
    """Tells the batch script of the controller's job, which ends the run in good order."""
    controls, *_ = names
    if states({controls: names[controls]}) == {"RUNNING"}:
        _command("scancel", "--signal=USR1", "--batch", names[controls])
    else:  # it has not begun
        _command("scancel", *names.values())


def _script(job: Part, run: Submission) -> str:
    """The batch script for a part."""
    folder = run.folder
    supervisor = [sys.executable, "-m", "srl.launch.supervisor", str(folder.path)]
    supervise = shlex.join([*supervisor, job.fragment, str(job.slots)])
    lines = [
        f"--job-name=srl-{run.name}-{job.fragment}",
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
            "--signal=B:USR1@60",
            f"--output={folder.log(TERMINAL)}",
        ]
        srun = shlex.join(
            [
                *("srun", "--kill-on-bad-exit=0", "--wait=0", f"--cpus-per-task={job.cores}"),
                *(f"--output={output}-%n", "bash", "-c", f"{_AGAIN}again {supervise}"),
            ]
        )
        # Without its supervisors a controller would wait for ever.
        lost = f"[ -e {shlex.quote(str(folder.path / OUTCOME_FILE))} ]"
        again = "scontrol requeue $SLURM_JOB_ID"
        body = f"{{ {srun}; {lost} || {again}; }} &\nagain {serve}\nexit $?\n"
    else:
        lines += [
            f"--array=0-{job.hosts - 1}",
            "--nodes=1",
            "--ntasks=1",
            f"--output={output}-%a",
        ]
        body = f"again {supervise}\nexit $?\n"
    head = "\n".join(f"#SBATCH {shlex.quote(line)}" for line in [*lines, *_words(run.options)])
    return f"#!/bin/bash\n{head}\n{_AGAIN}{body}"


def _words(options: Any) -> list[str]:
    named = {name: getattr(options, name) for name in OPTIONS}
    return [*(f"--{name}={value}" for name, value in named.items() if value), *options.sbatch]


def _command(name: str, *words: str) -> str:
    """What one of Slurm's commands prints.

    Raises:
        UserError: If there is no such command, or it fails.
    """
    if shutil.which(name) is None:
        raise UserError(f"there is no {name} here; run this on a machine from which Slurm is used")
    try:
        done = subprocess.run(
            [name, *words], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{name} has not answered for {_SECONDS} s") from error
    if done.returncode:
        raise UserError(f"{name} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
