"""Environments that start a process, as simulators with a program of their own do."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces

KILL, HANG, SEGFAULT = 1, 2, 3


class Starter(gymnasium.Env):
    """Starts a process in each of three ways; observes its own process."""

    observation_space = spaces.Box(0, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(4)

    def __init__(self, listing, close="", ways=("plain", "session", "shell")):
        self.listing, self.closes, self.started = Path(listing), close, []
        for way in ways:
            self.start(way)

    def start(self, way):
        """A process in its parent's session without variables, in another, or of a shell's."""
        command = ["sleep", "86399"]
        more = {"plain": {"env": {"PATH": os.environ["PATH"]}}, "session": {}, "shell": {}}[way]
        if way == "shell":
            command = ["sh", "-c", "sleep 86399 & echo $! >> " + str(self.listing)]
        process = subprocess.Popen(command, start_new_session=way == "session", **more)
        if way == "shell":
            process.wait()
        else:
            self.started.append(process)
            with self.listing.open("a") as file:
                file.write(f"{process.pid}\n")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.array([os.getpid()], float), {}

    def step(self, action):
        if action == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        elif action == SEGFAULT:
            os.kill(os.getpid(), signal.SIGSEGV)
        elif action == HANG:
            threading.Event().wait()
        return np.array([os.getpid()], float), 1.0, False, False, {}

    def close(self):
        if self.closes == "raises":
            raise OSError("the simulator does not answer")
        if self.closes == "hangs":
            threading.Event().wait()
        if self.closes == "waits":
            self.started[0].wait()
        for process in self.started:
            process.kill()
            process.wait()


def listed(listing):
    """The processes that were started."""
    return [int(line) for line in Path(listing).read_text().split()]


def alive(pids):
    """Those that run."""
    running = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            running.append(pid)
    return running


def wait_for_their_ends(pids, seconds=20):
    """Waits until none runs; gives those that do at the end."""
    deadline = time.monotonic() + seconds
    while (left := alive(pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left
