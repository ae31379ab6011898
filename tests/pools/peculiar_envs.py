"""Environments that do what real ones do at their worst, when an action asks for it."""

import copy
import ctypes
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import gymnasium
import numpy as np
from gymnasium import spaces

FINE, RAISE, EXIT, SEGFAULT, KILL, HANG, STOP, NAN, END, NAN_REWARD, HUGE_REWARD = range(11)


class Peculiar(gymnasium.Env):
    """Observes [steps of the episode, a number drawn at reset, the process]; rewards are 1."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, crash_every=0, actions=11, render_mode=None):
        self.action_space = spaces.Discrete(actions)
        self.render_mode, self.crash_every, self.total = render_mode, crash_every, 0

    def observe(self):
        # Process ids are below 2**22, so float32 holds them.
        return np.array([self.steps, self.number, os.getpid()], float)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.number = 0, self.np_random.integers(1000)
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        self.total += 1
        if self.total == self.crash_every:
            action = SEGFAULT
        if action == RAISE:
            self.misbehave()
        elif action == EXIT:
            sys.stderr.write("licence server is gone\n")
            sys.stderr.flush()
            os._exit(3)
        elif action == SEGFAULT:
            ctypes.string_at(0)
        elif action == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        elif action == HANG:
            self.wait_for_ever()
        elif action == STOP:
            os.kill(os.getpid(), signal.SIGSTOP)
        observation = self.observe()
        if action == NAN:
            observation[1] = np.nan
        reward = {NAN_REWARD: np.nan, HUGE_REWARD: 3e38}.get(int(action), 1.0)
        return observation, reward, bool(action == END), False, {}

    def misbehave(self):
        raise KeyError("no such joint")

    def wait_for_ever(self):
        threading.Event().wait()

    def render(self):
        return np.full((4, 6, 3), self.steps, np.uint8)


class Unmade(Peculiar):
    """Cannot be made."""

    def __init__(self):
        self.find_licence()

    def find_licence(self):
        raise ValueError("no licence")


class Mute(Peculiar):
    """Closes its process's standard error."""

    def reset(self, **arguments):
        with suppress(OSError):  # closed already
            os.close(2)
        return super().reset(**arguments)


class Unseen(Peculiar):
    """Has no picture at first, and cannot make one after a step."""

    def render(self):
        if self.steps:
            raise OSError("no display")


class Surroundings(Peculiar):
    """Observes its process: whether JAX or Flax are there, OMP's threads, ours."""

    def observe(self):
        heavy = {"jax", "flax"} & set(sys.modules)
        return np.array([len(heavy), int(os.environ["OMP_NUM_THREADS"]), os.getpid()], float)


class Starts(Peculiar):
    """Ends a program and a fork of its process by SIGTERM at each reset."""

    def reset(self, **arguments):
        program = subprocess.Popen(["sleep", "3600"])
        program.terminate()
        assert program.wait() == -signal.SIGTERM
        begun, begins = os.pipe()
        fork = os.fork()
        if not fork:
            os.write(begins, b"!")
            while True:
                signal.pause()
        os.read(begun, 1)
        os.kill(fork, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]) == -signal.SIGTERM
        os.close(begun)
        os.close(begins)
        return super().reset(**arguments)


class Chancy(gymnasium.Env):
    """Observes draws from a space; episodes last up to 4 steps; the action is the reward's seed."""

    def __init__(self, observation_space, action_space):
        self.observation_space = copy.deepcopy(observation_space)
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert action in self.action_space
        self.steps += 1
        reward = float(np.sum(action)) + self.np_random.random()
        terminated = bool(self.np_random.random() < 0.2)
        return self.observation_space.sample(), reward, terminated, self.steps == 4, {}


class Gated(Peculiar):
    """A step waits until somebody writes a byte into this environment's pipe in the folder."""

    def __init__(self, folder, **options):
        super().__init__(**options)
        self.folder = folder

    def reset(self, *, seed=None, options=None):
        self.path = os.path.join(self.folder, str(seed))
        return super().reset(seed=seed)

    def step(self, action):
        with open(self.path, "rb", buffering=0) as gate:
            gate.read(1)
        return super().step(action)


gymnasium.register("Peculiar-v0", Peculiar)


def act(pool, **special):
    """A step of FINE actions, but for those given as e0=ACTION."""
    actions = np.full(pool.num_envs, FINE)
    for name, action in special.items():
        actions[int(name[1:])] = action
    return pool.step(actions)


def processes(timestep):
    return timestep.observation[:, 2].astype(int)
