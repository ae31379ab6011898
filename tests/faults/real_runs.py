"""Runs of `srl` in processes of their own, what is seen of them from outside, and what is left."""

import contextlib
import json
import os
import random
import re
import resource
import signal
import subprocess
import threading
import time
from pathlib import Path

from watching import account, workers_of

from srl.record.checkpoint import Checkpoints
from srl.system.child_process import program_command

EXPERIMENT = '''
import os
import random
import time

import gymnasium

from srl import Experiment
from srl.algorithms import PPO
from srl.networks import MLP


class Fickle(gymnasium.Wrapper):
    """CartPole that obeys files beside this one.

    It takes about `{pace}` seconds a step until `go` is there, and stays in a step as long as
    `hang` is, which `hangs` then shows.
    """

    def reset(self, **words):
        self.hurries = os.path.exists({folder!r} + "/go")
        return super().reset(**words)

    def step(self, action):
        if not self.hurries:
            time.sleep(random.uniform(0, 2 * {pace}))
            if os.path.exists({folder!r} + "/hang"):
                brood()
        return super().step(action)


def brood():
    open({folder!r} + "/hangs", "w").close()
    while os.path.exists({folder!r} + "/hang"):
        time.sleep(0.1)


def make():
    return Fickle(gymnasium.make("CartPole-v1"))


experiment = Experiment(
    name="faults",
    env={env},
    num_envs=8,
    groups=4,
    algorithm=PPO(network=MLP(width=16), unroll_length=16, epochs=2),
    report_every=1,
)
'''
GROUPS, STEPS_OF_UPDATE = 4, 128
DEADLINE = 120


class RealRun:
    """`srl run` or `srl resume`, and its folder."""

    def __init__(self, path, *words, env="make", pace="0.0", command=None, most_memory=None):
        """Starts it, in `path`.

        Args:
            path: A folder, for the experiment's file and the run's folder.
            *words: Options.
            env: Of the experiment, as Python.
            pace: Seconds that the environment takes a step.
            command: In place of `run` and its target.
            most_memory: Bytes that a file, or a piece of shared memory, may have.
        """
        self.path, self.folder = path, path / "run"
        file = path / "experiment.py"
        if not file.exists():
            file.write_text(EXPERIMENT.format(env=env, pace=pace, folder=str(path)))
        command = command or ["run", str(file), "--run-dir", str(self.folder)]
        self._log = path / "terminal"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                program_command("srl", *command, *map(str, words)),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=path,
            )
        if most_memory:
            limits = most_memory, most_memory
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, limits)
        self.pid = self.process.pid

    def order(self, word):
        """Tells the environments something; gives the file that does."""
        (self.path / word).touch()
        return self.path / word

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()

    @property
    def told(self):
        """All that the terminal shows."""
        return self._log.read_text()

    def wait(self, condition, seconds=DEADLINE):
        """Waits for a condition while the run goes on; gives what it gives."""
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert self.process.poll() is None, self.told
            assert time.monotonic() < deadline, self.told
            time.sleep(0.02)
        return found

    def end(self, seconds=DEADLINE):
        """Waits for the run's end; gives its exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.told) from None

    def metrics(self):
        """The lines of metrics so far."""
        file = self.folder / "metrics.jsonl"
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        return [json.loads(line) for line in lines]

    @property
    def updates(self):
        lines = self.metrics()
        return lines[-1]["updates"] if lines else 0

    def has_passed(self, updates):
        """Whether more updates have been reported."""
        return self.updates > updates

    def checkpoint(self):
        """The newest checkpoint's version; -1 without one."""
        version = Checkpoints(self.folder / "checkpoints").latest()
        return -1 if version is None else version

    def workers(self):
        """Process ids of the workers that there are now, by name."""
        return workers_of(self.pid)

    def account(self):
        """Produced, learned, in flight, lost and rolled back, as told at the end."""
        return account(self.told)

    def deaths(self):
        """How often which worker was started again, as told at the end."""
        counts = {}
        for line in re.findall(r"^started again: (.*)$", self.told, re.MULTILINE):
            name, times = line.partition(",")[0], re.search(r"\((\d+) times\)", line)
            counts[name] = counts.get(name, 0) + int(times[1] if times else 1)
        return counts


class Traces:
    """What a run uses of the machine, noted while it goes on, to be looked for afterwards."""

    def __init__(self):
        self.pids, self.addresses = set(), set()

    def note(self, run):
        """Notes all that the run's processes hold now."""
        pids = {run.pid, *run.workers().values()}
        self.pids |= pids
        held = {inode for pid in pids for inode in sockets_of(pid)}
        for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
            words = line.split()
            if words[6] in held and words[-1].startswith("@"):
                self.addresses.add(words[-1])
        for pid in pids:
            with contextlib.suppress(OSError):
                assert "/dev/shm/" not in Path(f"/proc/{pid}/maps").read_text()

    def left(self, run):
        """What is still there."""
        mine = str(run.folder).encode()
        processes = [pid for pid in self.pids if os.path.exists(f"/proc/{pid}")]
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mine in (folder / "cmdline").read_bytes():
                    processes.append(int(folder.name))
        bound = set(re.findall(r"@\w+$", Path("/proc/net/unix").read_text(), re.MULTILINE))
        return processes, self.addresses & bound


def sockets_of(pid):
    """Inodes of a process' sockets, as text."""
    found = []
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(OSError):
            if match := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(link)):
                found.append(match[1])
    return found


def holdings(pid):
    """How many descriptors, threads and pieces of shared memory a process has."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    return (
        len(os.listdir(f"/proc/{pid}/fd")),
        len(os.listdir(f"/proc/{pid}/task")),
        maps.count("/memfd:srl"),
    )


class Trouble:
    """Kills and stops workers of a run at random moments."""

    def __init__(self, run, seed, kinds=(signal.SIGKILL, signal.SIGSTOP)):
        self.run, self.kinds, self.traces = run, kinds, Traces()
        self.hit = {}
        """Of each process that was hit: the worker's name and the signal."""
        self._random, self._pause = random.Random(seed), threading.Event()
        self._learned = -1

    def strike(self, name, number):
        """Hits a worker some time after its last process was there."""
        run = self.run
        if name.startswith("learner"):  # dying again and again without progress ends a run
            run.wait(lambda: run.checkpoint() > self._learned)
        pid = run.wait(lambda: run.workers().get(name))
        self._pause.wait(self._random.uniform(0, 1.5))
        self.traces.note(run)
        self._learned = run.checkpoint() if name.startswith("learner") else self._learned
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            self.hit[pid] = (name, number)

    def strike_often(self, names, times):
        """Hits each of the workers as often, with each signal as often, in a random order."""
        victims = [names[i % len(names)] for i in range(times)]
        blows = [self.kinds[i % len(self.kinds)] for i in range(times)]
        for order in (victims, blows):
            self._random.shuffle(order)
        for name, number in zip(victims, blows, strict=True):
            self.strike(name, number)

    def over(self):
        """Waits until every process that was hit is gone, and all workers are there again."""
        names = {name for name, _ in self.hit.values()}
        self.run.wait(lambda: not [p for p in self.hit if os.path.exists(f"/proc/{p}")])
        self.run.wait(lambda: names <= self.run.workers().keys())
        self.traces.note(self.run)


class Delays:
    """Stops workers of a run for moments, at random, while in a `with` block."""

    def __init__(self, run, seed, names=None, longest=0.3):
        """Delays the named workers, or all, each time for up to `longest` seconds."""
        self._run, self._names, self._longest = run, names, longest
        self._random, self._over = random.Random(seed), threading.Event()
        self._thread = threading.Thread(target=self._delay)
        self.count = 0

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._over.set()
        self._thread.join()

    def _delay(self):
        workers = self._run.workers()
        pids = [workers[name] for name in self._names or sorted(workers)]
        while not self._over.is_set():
            pid = self._random.choice(pids)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                self._over.wait(self._random.uniform(0, self._longest))
                os.kill(pid, signal.SIGCONT)
                self.count += 1
            self._over.wait(self._random.uniform(0, self._longest / 3))
