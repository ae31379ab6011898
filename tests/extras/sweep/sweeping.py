"""Small sweeps by the command, in this process or in one of their own."""

import json
import subprocess
import time

from srl.api.cli import main
from srl.system.child_process import program_command

SMALL = (
    *("native:CartPole-v1", "--num-envs", "8", "--algorithm.unroll-length", "16"),
    *("--algorithm.epochs", "2", "--algorithm.network.mlp.width", "16", "--report-every", "1"),
)
STEPS = 8 * 16  # of an update
RATE = "--algorithm.learning-rate"


def sweep(folder, *words, target=SMALL):
    return main(["sweep", *target, *words, "--sweep-dir", str(folder)])


def rows(text):
    """What `--json` has printed, by the trial's number."""
    return {row["trial"]: row for row in map(json.loads, text.splitlines())}


def begun(folder, *words, target=SMALL, until):
    """The process of a sweep, as soon as a condition holds."""
    command = program_command("srl", "sweep", *target, *words, "--sweep-dir", str(folder))
    process = subprocess.Popen(command, start_new_session=True)
    deadline = time.monotonic() + 120
    while not until():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


def lines(file):
    return file.read_text().count("\n") if file.exists() else 0
