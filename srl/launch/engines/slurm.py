"""Slurm: a job for the fragment that updates and the controller, and an array for each other one.

Jobs are made from the plan: each host that a fragment gets runs a supervisor, and whatever dies is
seen to by the controller. Slurm starts again what lost its node: the learners' job as a whole, from
the checkpoint, or the one element of an array whose node it was. Jobs share the run's folder.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from srl.core.errors import UserError
from srl.launch.engines.engine import TERMINAL, Part, Submission, names_file
from srl.launch.engines.needs import MIB
from srl.launch.engines.options import OF_SBATCH
from srl.launch.engines.slurm_room import (
    Room,
    given_to_sbatch,
    names_memory,
    refuse_too_much,
    room_of,
)
from srl.run.status import OUTCOME_FILE
from srl.system.child_process import program_command

_NOT_OURS = ("SBATCH_ARRAY_INX", "SBATCH_WAIT")  # would make an array of each job, or wait for it
_SECONDS = 60  # that a command of Slurm's may take
# A process that was killed is started again; any other end is an answer. USR1, of `srl stop` and at
# the end of a job's time, ends the run after a checkpoint; by TERM Slurm takes the host away: then
# the job ends when its supervisors have ended, whose learners write a checkpoint meanwhile.
_AGAIN = """\
again() {
  trap 'kill -USR1 $child' USR1
  trap 'kill -TERM $child $hosts 2>/dev/null; wait $child $hosts; exit 143' TERM
  while :; do
    "$@" & child=$!
    while :; do wait $child; code=$?; kill -0 $child 2>/dev/null || break; done
    case $code in
      134|135|137|139) sleep 0.2 ;;
      126|127)
        echo "$(hostname) has no $1: install srl in a place that all nodes see"
        return 127 ;;
      *) return $code ;;
    esac
  done
}
"""
# A supervisor that fails is started again after a pause, which grows while that does not help: the
# trouble may be its host's, and end. Then, and where no controller has come (75), the host is left.
# Python ends with 1 if it cannot begin.
_LASTING = """\
lasting() {
  pause=5
  while [ $pause -lt 400 ]; do
    begun=$SECONDS
    again "$@"
    code=$?
    case $code in 0|1|2|75|127|143) return $code ;; esac
    [ $((SECONDS - begun)) -gt 600 ] && pause=5
    echo "$(hostname): the supervisor has ended with $code; it is started again in $pause s"
    sleep $pause & child=$!
    wait $child
    pause=$((2 * pause))
  done
  return 75
}
"""
# Slurm ends a script that asks to be put back into the queue.
_ELEMENT = """\
lasting {supervise}
code=$?
if [ $code = 75 ] && scontrol requeue ${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID; then
  sleep 600 & child=$!
  wait $child
fi
exit $code
"""
# Without its supervisors a controller would wait for ever. But those of a start of the job that a
# later one has replaced are none of its business, nor of one whose run was given to Slurm anew. A
# controller that was ended before it could listen (138), or that cannot be started (127), has not
# recorded how the run ended. Any other has, and the run may have been given to Slurm anew since
# then. Supervisors end by themselves then; only late ones are ended with the job.
_CONTROL = """\
newest() {{ scontrol show job $SLURM_JOB_ID | grep -q " Restarts=${{SLURM_RESTART_COUNT:-0}} "; }}
ours() {{ grep -q "\\"$SLURM_JOB_ID\\"" {names}; }}
over() {{ for _ in 1 2 3 4 5; do [ -e {outcome} ] && return; sleep 1; done; return 1; }}
tell() {{ [ -e {outcome} ] || ! newest || printf '{{"code": %d}}\\n' $code > {outcome}; }}
{{
  trap 'wait $steps; exit' TERM
  {srun} & steps=$!
  wait $steps
  over || ! newest || ! ours || scontrol requeue $SLURM_JOB_ID
}} &
hosts=$!
again {serve}
code=$?
case $code in
  127) code=2; tell ;;
  138) code=130; tell ;;
esac
for _ in {{1..50}}; do kill -0 $hosts 2>/dev/null || break; sleep 0.2; done
exit $code
"""


def texts(run: Submission) -> dict[str, str]:
    """The batch scripts of a run, the controller's first; for large nodes where Slurm is away."""
    try:
        command("scontrol", "ping")
    except UserError:
        room = None
    else:
        room = room_of(run.options, command)
    return {f"{part.fragment}.sh": _script(part, run, room) for part in _sized(run, room)}


def _sized(run: Submission, room: Room | None) -> Sequence[Part]:
    return room.sized(run.parts) if room else run.parts


def submit(run: Submission) -> dict[str, str]:
    """Implements `Engine.submit`; gives the jobs' numbers by fragment, the controller's first."""
    room = room_of(run.options, command)
    parts = _sized(run, room)
    if room:
        refuse_too_much(parts, room, run.options)
    folder = run.folder.path / "slurm"
    folder.mkdir(exist_ok=True)
    numbers: dict[str, str] = {}
    # Nothing of a submission that is killed in the middle begins.
    after: list[str] = ["--hold"]
    try:
        for part in parts:
            file = folder / f"{part.fragment}.sh"
            file.write_text(_script(part, run, room))
            # Arguments outdo the environment's SBATCH_ variables, which outdo the script's own.
            answer = command("sbatch", "--parsable", *after, *_options(part, run, room), str(file))
            numbers[part.fragment] = answer.strip().partition(";")[0]
            # Without their controller the others would only keep nodes from other people.
            after = [f"--dependency=after:{numbers[parts[0].fragment]}"]
        release(numbers[parts[0].fragment], run.options)
    except BaseException:
        if numbers:
            command("scancel", *numbers.values())
        raise
    return numbers


def release(number: str, options: Any) -> None:
    """Lets a job begin that was submitted with --hold, unless the user's options hold it."""
    if {"-H", "--hold"} & {*options.sbatch}:
        return
    clusters = given_to_sbatch(options).clusters
    at = [f"--clusters={clusters}"] if clusters else []
    command("scontrol", *at, "release", number)


def states(names: Mapping[str, str]) -> set[str]:
    """Implements `Engine.states`, with Slurm's reasons, such as PENDING (Priority)."""
    return {_state(*line.split("|")) for line in listed(names, "%F|%T|%r")}


def _state(number: str, state: str, reason: str) -> str:
    """The state of a job, with the cure for one that is held until people let it go on."""
    if reason == "None":
        return state
    held = "held" in reason.lower()  # as after a start that failed on its node
    cure = f": `scontrol release {number}` lets it start" if held else ""
    return f"{state} ({reason}{cure})"


def refused(names: Mapping[str, str]) -> str:
    """Implements `Engine.refused`, from the log of a job that has failed."""
    for number in listed(names, "%A", "--states=FAILED"):
        (job, *_) = command("scontrol", "--oneliner", "show", "job", number).splitlines()
        values = dict(re.findall(r"(\S+?)=(.*?)(?= [\w:/]+=|$)", job))
        log = Path(values["StdOut"])
        last = log.read_text(errors="replace").split("\n")[-2:-1] if log.exists() else []
        return f"{values['NodeList']} cannot take part: {_why(log, *last)}"
    there = listed(names, "%F")
    for fragment, number in names.items():
        if number not in there:
            return (
                f"the job of {fragment}, {number}, is not there any more; `srl stop` and then "
                "`srl resume --on slurm` give Slurm another"
            )
    return ""


def _why(log: Path, error: str = "") -> str:
    """Why a host cannot take part whose job has ended with this error, and what to do."""
    if not error:
        return (
            f"it cannot write {log}; the run's folder has to be on a file system that all nodes "
            "share: choose one with --run-dir"
        )
    hint = "; install srl in a place that all nodes see" if "No module named" in error else ""
    return f"{error.strip()}{hint}"


def stop(names: Mapping[str, str]) -> bool:
    """Implements `Engine.stop`: signals the controller's script; without one cancels all jobs."""
    controls, *_ = names
    if states({controls: names[controls]}) == {"RUNNING"}:
        command("scancel", "--signal=USR1", "--batch", names[controls])
        return True
    if there := sorted(set(listed(names, "%F"))):
        command("scancel", *there)
    return False


def listed(names: Mapping[str, str], form: str, *options: str) -> list[str]:
    """A line of squeue's for each job and element that waits or runs, or that the options name."""
    jobs = f"--jobs={','.join(names.values())}"
    try:
        return command("squeue", "--noheader", f"--format={form}", jobs, *options).splitlines()
    except UserError as error:
        if "Invalid job id" in str(error):  # so long ago that it has forgotten them
            return []
        raise


def _options(job: Part, run: Submission, room: Room | None) -> list[str]:
    """A part's options of sbatch; the user's own come last."""
    if job.controls:
        shape = [
            f"--nodes={job.hosts}",
            "--ntasks-per-node=1",
            "--signal=B:USR1@60",
            f"--output={run.folder.log(TERMINAL)}",
        ]
    else:
        shape = [
            f"--array=0-{job.hosts - 1}",
            "--nodes=1",
            "--ntasks=1",
            f"--output={_log(job, run)}-%a",
        ]
    return [
        f"--job-name=srl-{run.name}-{job.fragment}",
        "--requeue",
        "--open-mode=append",
        f"--cpus-per-task={job.cores}",
        *([f"--gpus-per-node={job.gpus}"] if job.gpus else []),
        *(["--exclusive"] if job.apart else []),
        *_memory(job, run, room),
        *shape,
        *(f"--{name}={value}" for name in OF_SBATCH if (value := getattr(run.options, name))),
        *run.options.sbatch,
    ]


def _memory(job: Part, run: Submission, room: Room | None) -> list[str]:
    """The option for a part's memory: all of a node that it has for itself.

    Where a job names none it gets all of its node, and so the node for itself, if Slurm shares out
    memory; an amount that the user gives sbatch counts more, but for one that the plan names.
    """
    fragment = run.plan.fragments.get(job.fragment)
    named = fragment is not None and bool(fragment.memory)
    if not named and (not job.memory or names_memory(run.options) or (room and not room.memory)):
        return []
    return ["--mem=0"] if job.apart else [f"--mem={math.ceil(job.memory / MIB)}M"]


def _log(job: Part, run: Submission) -> Path:
    """The log of a part's supervisors; each adds the number of its host."""
    return run.folder.log(f"slurm-{job.fragment}")


def _script(job: Part, run: Submission, room: Room | None) -> str:
    folder = run.folder
    arguments = str(folder.path), job.fragment, str(job.slots)
    supervise = shlex.join(program_command("srl.launch.hosts.supervisor", *arguments))
    if job.evaluates:
        supervise = shlex.join(
            program_command("srl.launch.engines.evaluator_main", str(folder.path))
        )
    if job.controls:
        serve = shlex.join(program_command("srl.launch.engines.controller_main", str(folder.path)))
        srun = shlex.join(
            [
                *("srun", "--kill-on-bad-exit=0", "--wait=0", f"--cpus-per-task={job.cores}"),
                f"--output={_log(job, run)}-%n",
                *("bash", "-c", f"{_AGAIN}{_LASTING}lasting {supervise}"),
            ]
        )
        outcome = shlex.quote(str(folder.path / OUTCOME_FILE))
        names = shlex.quote(str(names_file(folder.path, "slurm")))
        body = _CONTROL.format(srun=srun, serve=serve, outcome=outcome, names=names)
    else:
        comment = f"# --dependency=after: and the number of {run.parts[0].fragment}'s job\n"
        body = comment + _LASTING + _ELEMENT.format(supervise=supervise)
    head = "\n".join(f"#SBATCH {shlex.quote(line)}" for line in _options(job, run, room))
    return f"#!/bin/bash\n{head}\n{_AGAIN}{body}"


def command(name: str, *arguments: str) -> str:
    """The output of one of Slurm's commands.

    Raises:
        UserError: If there is no such command, or it fails.
    """
    if shutil.which(name) is None:
        raise UserError(f"there is no {name} here; run this on a machine from which Slurm is used")
    try:
        done = subprocess.run(
            [name, *arguments],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            env={key: value for key, value in os.environ.items() if key not in _NOT_OURS},
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{name} has not answered for {_SECONDS} s") from error
    if done.returncode:
        raise UserError(f"{name} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
