"""Replays recordings of the reference environment and tells the largest differences.

    python -m srl.envs.hide_and_seek.verify FILE.npz... [--json]

Each world is built anew from its recording, and compared in three ways. *model*: the arrays that
MuJoCo computes with. *states*: every recorded state is set, all that is observed in it compared,
and one step done from it; rules (who sees, holds and locks what, rewards, whether the episode ends)
are to be the same, and the next state within rounding. *replay*: the actions are done one after the
other from the first state; the episode is to end at the same step. Physics is chaotic: differences
of 1e-15 after the first grab may grow without any error, so only the first 60 steps are bounded.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from srl.core.errors import UserError
from srl.envs.hide_and_seek.recording import Recording
from srl.pools import make_pool

if TYPE_CHECKING:
    from srl.pools.native.pool import NativePool

THRESHOLD = 1e-6
"""A rule may come out differently where a state that is this near (metres, radians) has it so."""
REPLAY_STEPS = 60
REPLAY_TOLERANCE = 1e-6  # of positions, in these steps
STATE_TOLERANCES = {"qpos": 1e-9, "qvel": 1e-7}  # after one step from a recorded state
MODEL_TOLERANCE = 1e-12
LIDAR_TOLERANCE = 1e-6
_NEARBY = 32  # states that are tried near one where a rule came out differently
_JUMP = 1e-3  # metres by which a lidar's ray reads another thing: no matter of rounding
_KINDS = ("agents", "boxes", "ramps")


@dataclass
class Difference:
    """The largest of a key, and where it was."""

    largest: float = 0.0
    step: int | None = None
    tolerance: float | None = None
    """None where it may be anything."""

    @property
    def passed(self) -> bool:
        """True within the tolerance."""
        return self.tolerance is None or self.largest <= self.tolerance


@dataclass
class Report:
    """The result of verifying a recording."""

    path: Path
    steps: int
    differences: dict[str, Difference] = field(default_factory=dict)
    near_thresholds: list[str] = field(default_factory=list)
    """Rules that came out differently within THRESHOLD of where they change."""
    ties: list[str] = field(default_factory=list)
    """Locks by several agents at once, of whom chance chose another one."""
    same_rules_for: int = 0
    """Steps of the replay until a grip or a lock was another one."""

    @property
    def passed(self) -> bool:
        """True if every check passed."""
        return all(difference.passed for difference in self.differences.values())

    def note(
        self, key: str, value: float, tolerance: float | None, step: int | None = None
    ) -> None:
        """Keeps a difference if it is the largest of its key."""
        known = self.differences.setdefault(key, Difference(tolerance=tolerance))
        if np.isnan(known.largest):  # which is more than any number
            return
        if not value <= known.largest:
            self.differences[key] = Difference(float(value), step, tolerance)

    def json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "file": str(self.path),
            "steps": self.steps,
            "passed": self.passed,
            "differences": {
                key: {**vars(value), "passed": value.passed}
                for key, value in self.differences.items()
            },
            "near_thresholds": self.near_thresholds,
            "ties": self.ties,
            "same_rules_for": self.same_rules_for,
        }


def verify(path: Path) -> Report:
    """Compares a recording in all three ways.

    Raises:
        UserError: The file is no recording.
    """
    recording = Recording.load(path)
    report = Report(path, recording.steps)
    with opened(recording) as world:
        _compare_models(recording, world.pool.model(0), report)
        _compare_states(world, report)
    with opened(recording) as world:
        _replay(world, report)
    return report


@dataclass
class World:
    """The world of a recording, in a pool of one environment."""

    recording: Recording
    pool: NativePool

    def put(self, step: int, nudge: np.ndarray | float = 0.0) -> None:
        """Sets the positions and velocities of a step; `nudge` is added to positions."""
        recording = self.recording
        ends = recording.agents, recording.agents + recording.boxes
        for name, added in (("qpos", nudge), ("qvel", 0.0)):
            rows = (recording[f"state/{name}"][step] + added).reshape(-1, 4)
            for kind, part in zip(_KINDS, np.split(rows, ends), strict=True):
                self.pool.inject(0, f"{kind}_{name}", part)
        self.pool.inject(0, "step", step)

    def observed(self) -> dict[str, np.ndarray]:
        """The observations of all agents now, by key; flat."""
        numbers = self.pool.inspect(0)
        return {key: numbers[f"observation/{key}"] for key in self.recording.observed}

    def state(self) -> dict[str, np.ndarray]:
        """`qpos` and `qvel`."""
        numbers = self.pool.inspect(0)
        return {
            name: np.concatenate([numbers[f"{kind}_{name}"] for kind in _KINDS])
            for name in ("qpos", "qvel")
        }

    def step(self, step: int) -> dict[str, np.ndarray]:
        """Does the recorded actions of a step.

        Returns:
            For each agent the reward, and whether the episode ended: ours and the recorded, [2, A].
        """
        timestep, recording = self.pool.step(self.recording.actions[step]), self.recording
        done = (timestep.terminated | timestep.truncated).ravel()
        return {
            "reward": np.stack([timestep.reward.ravel(), recording["reward"][step]]),
            "done": np.stack([done, np.full_like(done, recording["done"][step])]),
        }

    def results(self, step: int) -> dict[str, np.ndarray]:
        """Does the recorded actions of a step; gives what `step` does, and `rules`."""
        return {**self.step(step), **self.rules(step)}

    def rules(self, step: int) -> dict[str, np.ndarray]:
        """Gives the decisions of rules in the last step: ours and the recorded, [2, ...] each."""
        numbers, recording = self.pool.inspect(0), self.recording
        objects = np.arange(recording.things - recording.agents)
        lockable = recording.locked.shape[1]
        return {
            "grabbed": np.stack(
                [numbers["grabbed"][:, None] == objects, recording["obj_grabbed"][step]]
            ),
            "locked": np.stack([numbers["locked"][:lockable] > 0, recording.locked[step]]),
            "last_locker": np.stack(
                [numbers["last_locker"][:lockable], recording.last_locker[step]]
            ),
        }

    def settle(self, step: int) -> list[str]:
        """Goes on with the recorded locks; gives those that chance had decided otherwise.

        Of several agents that lock an object at once, one is drawn, whose team may unlock it.
        """
        rules = {name: pair.astype(int) for name, pair in self.rules(step).items()}
        if all((ours == theirs).all() for ours, theirs in (rules["locked"], rules["last_locker"])):
            return []
        pressed = self.recording.actions[step][:, 4] == 1
        ties = [
            f"step {step}: object {thing}"
            for thing, (ours, theirs) in enumerate(rules["last_locker"].T)
            if ours != theirs and rules["locked"][:, thing].all() and pressed[[ours, theirs]].all()
        ]
        locked, lockers = rules["locked"][1], rules["last_locker"][1]
        more = [0] * (self.recording.things - self.recording.agents - len(lockers))
        if (rules["locked"][0] != locked).any():
            held = np.where(locked, lockers, -1)
            self.pool.inject(0, "locked_by", [*held, *(-1 for _ in more)])
        self.pool.inject(0, "last_locker", [*lockers, *more])
        return ties


@contextmanager
def opened(recording: Recording) -> Iterator[World]:
    """The world of a recording at its first state."""
    with cast("NativePool", make_pool(recording.environment(), threads=1)) as pool:
        pool.reset(0)
        pool.inject(0, "walls", recording.walls)
        pool.inject(0, "box_sizes", recording.box_sizes)
        world = World(recording, pool)
        world.put(0)
        yield world


def _compare_states(world: World, report: Report) -> None:
    recording, pool = world.recording, world.pool
    for step in range(recording.steps + 1):
        world.put(step)
        _compare_observations(world, step, report)
        if step == recording.steps:
            return
        before = pool.save()
        results = world.results(step)
        ties = world.settle(step)
        report.ties += ties
        if ties:
            results["last_locker"] = world.rules(step)["last_locker"]
        for name, value in world.state().items():
            difference = np.abs(value - recording[f"state/{name}"][step + 1]).max()
            report.note(f"states/{name}", difference, STATE_TOLERANCES[name], step)
        for name, (ours, theirs) in results.items():
            difference = np.abs(ours.astype(float) - theirs).max(initial=0)
            if difference and _is_so_nearby(world, before, step, name):
                report.near_thresholds.append(f"step {step}: {name}")
                difference = 0.0
            report.note(f"states/{name}", difference, 0.0, step)


def _compare_observations(world: World, step: int, report: Report) -> None:
    for key, ours in world.observed().items():
        theirs = world.recording[f"obs/{key}"][step].ravel().astype(float)
        differences = np.abs(ours - theirs)
        jumps = differences > (0.0 if key.startswith("mask") else _JUMP)
        if jumps.any() and (key.startswith("mask") or key == "lidar"):
            excused = jumps & _are_so_nearby(world, step, key, theirs)
            if excused.any():
                report.near_thresholds.append(f"step {step}: {key}")
            differences = differences[~excused]
        report.note(f"states/{key}", differences.max(initial=0), _tolerance(key, theirs), step)


def _tolerance(key: str, values: np.ndarray) -> float:
    if key.startswith("mask"):
        return 0.0
    if key == "lidar":
        return LIDAR_TOLERANCE
    return 1e-9 + float(np.spacing(np.abs(values).max(initial=0), dtype=np.float32))


def _nudges(size: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    for _ in range(_NEARBY):
        yield rng.uniform(-THRESHOLD, THRESHOLD, size)


def _are_so_nearby(world: World, step: int, key: str, theirs: np.ndarray) -> np.ndarray:
    """Marks where a mask or the lidar is as recorded in one of the states nearby."""
    found = np.zeros(theirs.shape, bool)
    for nudge in _nudges(4 * world.recording.things):
        world.put(step, nudge)
        found |= np.abs(world.observed()[key] - theirs) < _JUMP
    world.put(step)
    return found


def _is_so_nearby(world: World, before: bytes, step: int, name: str) -> bool:
    """Tells if a rule comes out as recorded from one of the states nearby."""
    after = world.pool.save()
    try:
        for nudge in _nudges(4 * world.recording.things):
            world.pool.restore(before)
            world.put(step, nudge)
            ours, theirs = world.results(step)[name]
            if (ours == theirs).all():
                return True
        return False
    finally:
        world.pool.restore(after)


def _replay(world: World, report: Report) -> None:
    recording, same = world.recording, True
    for step in range(recording.steps):
        ours, theirs = world.step(step)["done"]
        report.note("replay/done", (ours != theirs).any(), 0.0, step)
        rules = world.rules(step)
        if world.settle(step):
            rules = world.rules(step)
        same &= all((ours == theirs).all() for ours, theirs in rules.values())
        report.same_rules_for += same
        for name, value in world.state().items():
            difference = np.abs(value - recording[f"state/{name}"][step + 1]).max()
            bounded = name == "qpos" and step < REPLAY_STEPS
            key = f"replay/{name} of the first {REPLAY_STEPS}" if bounded else f"replay/{name}"
            report.note(key, difference, REPLAY_TOLERANCE if bounded else None, step)


_OF_GEOMS = ("size", "friction", "contype", "conaffinity", "condim", "solref", "solimp", "margin")
_OF_JOINTS = ("type", "axis", "pos")
_OF_DOFS = ("damping", "armature", "frictionloss")
_OF_ACTUATORS = ("trntype", "gear", "gainprm", "biasprm")


def _compare_models(recording: Recording, saved: bytes, report: Report) -> None:
    """Notes how MuJoCo's arrays differ for everything that the recording's world has."""
    import mujoco

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "world.mjb")
        file.write_bytes(saved)
        model = mujoco.MjModel.from_binary_path(str(file))  # pyright: ignore[reportAttributeAccessIssue]

    def compare(name: str, ours: Any, theirs: Any) -> None:
        ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
        if ours.size != theirs.size:
            raise UserError(
                f"{recording.path}: model/{name} has {theirs.size} numbers, expected {ours.size}"
            )
        difference = np.abs(ours.ravel() - theirs.ravel())
        report.note(f"model/{name}", difference.max(initial=0), MODEL_TOLERANCE)

    kinds = {"agent": "agent", "moveable_box": "box", "ramp": "ramp", "wall": "wall"}
    for prefix, name in kinds.items():
        for number, body in enumerate(recording.bodies(prefix)):
            own = model.body(f"{name}{number}")
            if name != "wall":  # which the reference places by its geom
                for key in ("pos", "mass", "inertia"):
                    theirs = recording[f"model/body_{key}"][body]
                    compare(f"body_{key}", getattr(own, key), theirs)
            for index, geom in enumerate(recording.geoms(body)):
                first = int(model.body_geomadr[own.id])
                for key in _OF_GEOMS:
                    values = getattr(model, f"geom_{key}")[first + index]
                    compare(f"geom_{key}", values, recording[f"model/geom_{key}"][geom])
    for kind, keys in (("jnt", _OF_JOINTS), ("dof", _OF_DOFS), ("actuator", _OF_ACTUATORS)):
        for key in keys:
            compare(
                f"{kind}_{key}", getattr(model, f"{kind}_{key}"), recording[f"model/{kind}_{key}"]
            )
    for key in ("solref", "solimp"):
        compare(f"eq_{key}", getattr(model, f"eq_{key}"), recording[f"model/eq_{key}"])


def main(words: Sequence[str]) -> int:
    """The command; gives 0 if all recordings passed, 1 if one did not, 2 for a wrong file."""
    parser = argparse.ArgumentParser(
        "python -m srl.envs.hide_and_seek.verify",
        description="Replays recordings of hide-and-seek.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.npz")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each file")
    options = parser.parse_args(words)
    code = 0
    for path in options.files:
        try:
            report = verify(path)
        except UserError as error:
            sys.stderr.write(f"srl: {error}\n")
            code = 2
            continue
        code = max(code, 0 if report.passed else 1)
        shown = json.dumps(report.json()) if options.json else _shown(report)
        sys.stdout.write(shown + "\n")
    return code


def _shown(report: Report) -> str:
    lines = [f"{report.path}: {'passed' if report.passed else 'FAILED'}, {report.steps} steps"]
    for key, value in report.differences.items():
        mark = "" if value.passed else f"  MORE THAN {value.tolerance:.0e}"
        step = "" if value.step is None else f"  step {value.step}"
        lines.append(f"  {key:<32} {value.largest:.3g}{step}{mark}")
    lines.append(f"  grips and locks as recorded for {report.same_rules_for} steps of the replay")
    for title, found in (("near a threshold", report.near_thresholds), ("ties", report.ties)):
        lines += [f"  {title}: {', '.join(itertools.islice(found, 20))}"] if found else []
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
