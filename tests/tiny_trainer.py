"""The smallest thing the launcher can train, and a program that trains it.

python tiny_trainer.py RUN_DIR [resume] [hang=HOW at=UPDATE | fork=SIGNAL] [option=value ...]
"""

import ctypes
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from gymnasium.spaces import Box

from srl.config.experiment import load_experiment
from srl.core.errors import RunError
from srl.core.types import Specs
from srl.launch.local import train
from srl.run.folder import create_run, open_run
from srl.tracking.tracker import Histogram

STEPS = 100  # of the environments, in each update


def no_settings(settings):
    assert not settings


def hang(how):
    """Waits for what never comes: in Python, or in C without Python's lock, or in C with it."""
    sys.stdout.write("it hangs\n")
    sys.stdout.flush()
    if how == "python":
        while True:
            time.sleep(1)
    library = {"released": ctypes.CDLL, "held": ctypes.PyDLL}[how](None)
    mutex = ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def fork(number):
    """Ends a fork of this process by signals, the second a while after the first."""
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,))
    child.start()
    while child.exitcode is None:
        os.kill(child.pid, number)
        child.join(0.1)
    sys.stdout.write(f"the fork has ended with {child.exitcode}\n")


class TinyTrainer:
    """A random walk; everything it does follows from its state."""

    def __init__(self, width=4, fail_at=None, error=None, pause=0.0, exact=True, on_update=None):
        self.fail_at, self.error, self.pause = fail_at, error, pause
        self.resumes_exactly = exact
        self.on_update = on_update  # called with this trainer after each update
        self.updates = 0
        self.weights = np.zeros(width)
        self.rewards = np.zeros(2)  # sum and count since the last report
        self.generator = np.random.default_rng(0)
        self.closed = False

    @property
    def env_steps(self):
        return self.updates * STEPS

    @property
    def agent_steps(self):
        return self.updates * STEPS

    @property
    def counts(self):
        return {n: getattr(self, n) for n in ("env_steps", "agent_steps", "updates")}

    parameters = {"policy": 4}  # noqa: RUF012
    agents = {"policy": ("hider0", "hider1")}  # noqa: RUF012
    specs = Specs(Box(-1.0, 1.0), Box(-1.0, 1.0), ("hider0", "hider1"))
    account = awaited = ""
    settings = SimpleNamespace(now={}, changed={}, change=no_settings)
    replays = SimpleNamespace(nbytes=0)
    learner = environments = progress = policy_set = property(lambda self: self)

    def start(self):
        if self.fail_at == 0:
            raise self.error

    def update(self):
        time.sleep(self.pause)
        self.updates += 1
        self.weights = self.weights + self.generator.normal(size=self.weights.shape)
        self.rewards += self.weights.sum(), 1
        if self.updates == self.fail_at:
            raise self.error
        if self.on_update:
            self.on_update(self)

    def report(self):
        total, count = self.rewards
        self.rewards = np.zeros(2)
        return {
            "env_steps": self.env_steps,
            "agent_steps": self.agent_steps,
            "updates": self.updates,
            "fps": 1000.0,
            "episode_return": total / count,
            "episode_length": float("nan"),
            "episodes": int(count),
            "policy_version": self.updates,
            "staleness_mean": 0.0,
            "staleness_max": 0,
            "loss/policy_loss": np.float32(self.weights[0]),
        }

    def histograms(self):
        return {"parameters/kernel": Histogram.of(self.weights)}

    def check(self):
        if not np.isfinite(self.weights).all():
            raise RunError("training has diverged")

    def state(self):
        inner = self.generator.bit_generator.state["state"]
        words = [int(inner[k]) >> (64 * i) & (2**64 - 1) for k in ("state", "inc") for i in (0, 1)]
        return {
            "learners": {"policy": {"params": {"policy": {"kernel": self.weights}}}},
            "updates": np.int64(self.updates),
            "generator": np.array(words, np.uint64),
            "window": self.rewards,
        }

    def save_replays(self, folder):
        return {}

    def restore(self, tree):
        self.weights = tree["learners"]["policy"]["params"]["policy"]["kernel"]
        self.updates = int(tree["updates"])
        self.rewards = tree["window"].copy()
        words = [int(word) for word in tree["generator"]]
        state = self.generator.bit_generator.state
        state["state"] = {"state": words[0] | words[1] << 64, "inc": words[2] | words[3] << 64}
        self.generator.bit_generator.state = state

    def close(self):
        self.closed = True


class Program:
    """The tiny trainer in a process of its own."""

    def __init__(self, *words):
        self.process = subprocess.Popen(
            [sys.executable, __file__, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,  # as the shell does it, for Ctrl-Z
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def wait_for(self, text, pipe="stdout"):
        assert any(text in line for line in getattr(self.process, pipe))

    def catches(self, number):
        """Whether the process has a handler for a signal."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return bool(int(status.split("SigCgt:")[1].split()[0], 16) >> (number - 1) & 1)

    def end(self):
        output, errors = self.process.communicate(timeout=30)
        return self.process.returncode, output, errors


def main(run_dir, *options):
    resume = "resume" in options
    values = dict(option.split("=") for option in options if "=" in option)
    pause, width = float(values.pop("pause", 0)), int(values.pop("width", 4))
    trainer = TinyTrainer(width, pause=pause)
    if "hang" in values:
        how, at = values.pop("hang"), int(values.pop("at"))
        trainer.on_update = lambda trainer: hang(how) if trainer.updates == at else None
    if "fork" in values:
        number = int(values.pop("fork"))
        trainer.on_update = lambda _: fork(number)
    if "fail_at" in values:
        trainer.fail_at = int(values.pop("fail_at"))
        trainer.error = {"bug": ValueError("a bug"), "run": RunError("the simulator raised")}[
            values.pop("error", "bug")
        ]
    if resume:
        folder, resolved = open_run(Path(run_dir))
    else:
        words = [word for k, v in values.items() for word in (f"--{k}", v)]
        resolved = load_experiment("Tiny-v0", words)
        folder = create_run(resolved, Path(run_dir))
    return train(resolved.experiment, folder, resume=resume, trainer=trainer)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
