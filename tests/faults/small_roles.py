"""The smallest workers that a controller can run, and what a test needs to run and to break them.

A file `<fault>-<worker>` in the run's folder makes that worker do it, once: `hang`, `raise`,
`lose` (a peer), `crash` or `misuse`. `<fault>-<worker>-always` does it in every process of the
worker. After a file `miscount-<worker>`, a learner counts one unroll more than there are. While a
file `compile-<worker>` is there, it does nothing else, and while one is there that
is called `compute-<worker>`, it computes, as a compiler does.
"""

import contextlib
import json
import os
import sys
import time

from srl.config.experiment import load_experiment
from srl.core.errors import UserError
from srl.dataflow import plans
from srl.launch.controller import Controller
from srl.loop.stage import Stage
from srl.pools import make_pool
from srl.run.folder import create_run
from srl.streams.tickets import Counts
from srl.streams.transport import Disconnected, listen

DEADLINE = 60


def actor(context):
    """Steps nothing until it is to stop."""
    with make_pool("native:CartPole-v1", 2) as pool:
        work(context, pool.specs, last=None)


def learner(context):
    """Counts updates up to 20 a process, or as the file `updates` says, and keeps a checkpoint."""
    file = context.folder / "updates"
    work(context, None, int(file.read_text()) if file.exists() else 20)


def either(context):
    """The role of a fragment's name."""
    (learner if context.fragment.startswith("learner") else actor)(context)


def work(context, specs, last):
    name, checkpoint = f"{context.fragment}-{context.replica}", context.folder / "checkpoint"
    context.endpoints().busy.begin(threads=1)  # so beats have seconds, also those of one that hangs
    fail(context.folder, f"{name}-early")
    with listen("host", context.identity, limit_bytes=1000) as listener:
        start = context.register({"here": listener.address}, specs)
        goes_on = last and context.resume and checkpoint.exists()
        done = int(checkpoint.read_text()) if goes_on else 0
        ledger = context.ledger if last and context.replica == 0 else None
        restored = done
        if ledger:
            ledger.restart(done)
        agents = start.specs and start.specs.agents
        values = {"agents": agents, "modules": heavy_modules(), "done": done}
        peers = start.peers
        note(context, {"start": peers, **values})
        while (context.folder / f"compile-{name}").exists():
            context.stopping.wait(0.02)
        if (context.folder / f"compute-{name}").exists():
            context.stage(Stage.COMPILING)
            while (context.folder / f"compute-{name}").exists():
                sum(range(1000))
        while not context.stopping.is_set() and done != last:
            fail(context.folder, name)
            if (peers_now := context.peers()) != peers:
                peers = peers_now
                note(context, {"peers": peers})
            done += 1
            context.progress(**{"steps" if last is None else "updates": done})
            if last is None:
                context.stopping.wait(0.02)
            else:
                if ledger:
                    new, lie = done - restored, (context.folder / f"miscount-{name}").exists()
                    ledger.write(Counts(2 * new + lie, new, 0, new))
                    ledger.report()
                time.sleep(0.02)
                context.report({"updates": done, "env_steps": 4 * done})
                (context.folder / name).write_text(str(done))
                os.replace(context.folder / name, checkpoint)
        note(context, {"stopped": done})


def heavy_modules():
    return sorted({"jax", "flax", "optax", "zmq"} & set(sys.modules))


def fail(folder, name):
    for fault, act in FAULTS.items():
        once, always = folder / f"{fault}-{name}", folder / f"{fault}-{name}-always"
        if once.exists():
            once.unlink()
            act()
        if always.exists():
            act()


def hang():
    while True:
        time.sleep(1)


def stumble():
    raise ValueError("a bug in the simulator")


def misuse():
    raise UserError("there is no such environment; take another")


def lose():
    raise Disconnected("unix:1: it has closed")


FAULTS = {"lose": lose, "hang": hang, "raise": stumble, "crash": os.abort, "misuse": misuse}


def note(context, values):
    """Appends a line that the test can read."""
    values = {"incarnation": context.incarnation, **values}
    path = context.folder / f"notes-{context.fragment}-{context.replica}"
    with path.open("a") as file:
        file.write(json.dumps(values) + "\n")


# ---- the test's end ----

EXPERIMENT = """
from srl import Experiment
from srl.dataflow import plans

experiment = Experiment(name="small", env="native:CartPole-v1", plan=plans.inline())
"""


class Screen:
    """A terminal that keeps what it was told."""

    def __init__(self):
        self.lines, self.reports = [], []

    def say(self, text):
        self.lines.append(text)

    def report(self, metrics):
        self.reports.append(metrics)


def new_run(path, updates):
    file = path / "small.py"
    file.write_text(EXPERIMENT)
    resolved = load_experiment(str(file), ["--num-envs", "4"])
    folder = create_run(resolved, path / "run")
    (folder.path / "updates").write_text(str(updates))
    return resolved.experiment, folder


class Play:
    """A run of small workers; `faults` are done one after the other as their conditions hold."""

    def __init__(self, path, plan=None, heartbeat_seconds=30.0, updates=20, role="either"):
        _, self.folder = new_run(path, updates)
        self.screen = Screen()
        self.controller = Controller(
            plan or plans.inline(),
            self.folder,
            self.screen,
            heartbeat_seconds=heartbeat_seconds,
            role=f"small_roles:{role}",
        )
        self.steps = []
        self.asked_to_stop = False

    def when(self, condition, action):
        """Does `action(self)` once `condition(self)` holds, after what was said before."""
        self.steps.append((condition, action))
        return self

    def run(self):
        began = time.monotonic()

        def look():
            assert time.monotonic() - began < DEADLINE, self.told
            if self.steps and self.steps[0][0](self):
                self.steps.pop(0)[1](self)
            return self.asked_to_stop

        with contextlib.closing(self.controller):
            try:
                self.controller.run(look)
            finally:
                self.account = self.controller.account()
        assert not self.steps
        return self

    def stop(self):
        self.asked_to_stop = True

    def fault(self, name):
        (self.folder.path / name).touch()

    def member(self, name):
        return next(m for m in self.controller._members if m.name == name)

    def notes(self, name):
        path = self.folder.path / f"notes-{name}"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    @property
    def told(self):
        return "\n".join(self.screen.lines)

    @property
    def updates(self):
        return self.screen.reports[-1]["updates"] if self.screen.reports else 0


def working(play):
    """Every worker's main loop has shown progress."""
    return all(m.beat.get("state") == "running" for m in play.controller._members)


def again(name, times=1):
    """A worker has been started again so often, and every worker works."""
    return lambda play: play.member(name).gang.incarnation >= times and working(play)
