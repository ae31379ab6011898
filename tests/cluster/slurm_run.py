"""`srl run --on slurm` as from a login node, what it tells, and what it has reached by when."""

import itertools
import json
import os
import signal
import time
from contextlib import closing

import numpy as np
from watching import processes

from srl.core.tree import leaves_of
from srl.record.checkpoint import Checkpoints
from srl.system.child_process import program_command

SECONDS = 300
CARTPOLE = ("native:CartPole-v1", "--num-envs", "16", "--algorithm.unroll-length", "16")
APART = (
    *("--plan", "decoupled", "--plan.actors.replicas", "2", "--plan.actors.hosts", "2"),
    *("--plan.policies.hosts", "1", "--plan.learner.hosts", "1"),
)


class SlurmRun:
    """`srl run ... --on slurm` at the login host, and what it has told."""

    def __init__(self, cluster, folder, *options, target=CARTPOLE, env=None):
        self.cluster, self.folder = cluster, folder
        self.terminal = folder.with_name("terminal.txt")
        words = program_command("srl", "run", *target, "--run-dir", folder, *options)
        with self.terminal.open("w") as file:
            self.process = cluster.popen(*words, "--on", "slurm", env=env, stdout=file, stderr=file)

    @property
    def told(self):
        return self.terminal.read_text()

    def follow(self, terminal):
        """Another follower of the run, `srl top`, which writes into this file."""
        with terminal.open("w") as file:
            words = program_command("srl", "top", self.folder)
            return self.cluster.popen(*words, stdout=file, stderr=file)

    def wait(self):
        """Waits for the end; gives the exit code."""
        try:
            return self.process.wait(SECONDS)
        finally:
            self.all = self.told + "".join(
                f"\n== {file}\n{file.read_text()[-2000:]}" for file in self.logs()
            )

    def logs(self):
        return sorted((self.folder / "logs").iterdir()) if self.folder.exists() else []

    def number(self, kind):
        """What Slurm calls a fragment's first job."""
        job = json.loads((self.folder / "slurm" / "jobs.json").read_text())[kind]
        return job if kind == "learner" else f"{job}_0"

    def job(self, kind):
        """What Slurm tells of a fragment's first job."""
        return self.cluster.job(self.number(kind))

    def host(self, kind):
        """The host of a fragment's first job."""
        name = self.job(kind)["NodeList"]
        return next(node for node in self.cluster.nodes if node.name == name)

    def stop(self):
        """Has it end after a checkpoint."""
        stop = program_command("srl", "stop", self.folder)
        self.cluster.run(*stop, timeout=SECONDS)

    @property
    def log(self):
        """What the controllers have noted."""
        file = self.folder / "logs" / "controller.log"
        return file.read_text() if file.exists() else ""

    def kill_controller(self):
        """Kills it and what serves in its place at once, as if each had crashed."""
        for pid in processes(
            lambda words: {"srl.launch.engines.controller_main", str(self.folder)} <= set(words)
        ):
            os.kill(pid, signal.SIGKILL)

    def metrics(self):
        file = self.folder / "metrics.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def until(self, condition):
        deadline = time.monotonic() + SECONDS
        while not condition(self):
            assert self.process.poll() is None, self.told
            assert time.monotonic() < deadline, self.told
            time.sleep(0.05)


def updates(number):
    return lambda run: any(line["updates"] >= number for line in run.metrics())


def parameters(folder):
    with closing(Checkpoints(folder / "checkpoints")) as checkpoints:
        tree, _ = checkpoints.restore()
    states = {name: state["params"] for name, state in tree["learners"].items()}
    return np.concatenate([np.ravel(leaf) for leaf in leaves_of(states)])


def newest(folder):
    with closing(Checkpoints(folder / "checkpoints")) as checkpoints:
        return checkpoints.latest()


class Pace:
    """How fast a run went, by the times of its lines of metrics; it needs one for each update."""

    def __init__(self, run):
        """Takes the lines there are; a learner that starts again may yet replace the newest."""
        self.lines = run.metrics()

    def fps(self, begin, end):
        """Environment steps a second between two times of the wall clock; 0 if there are none."""
        steps = [line["env_steps"] for line in self.lines if begin <= line["time"] <= end]
        return (max(steps) - min(steps)) / (end - begin) if steps else 0.0

    def longest_pause(self, begin, end):
        """Seconds in which no update was done, at the most."""
        times = [line["time"] for line in self.lines if begin < line["time"] < end]
        return max(b - a for a, b in itertools.pairwise([begin, *times, end]))

    def back(self, since, fps, window=3.0):
        """Seconds until it was, for as long as the window, as fast again; None if it never was."""
        times = [line["time"] for line in self.lines if line["time"] >= since + window]
        fast = (time for time in times if self.fps(time - window, time) >= 0.8 * fps)
        return next((time - since for time in fast), None)
