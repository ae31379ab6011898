"""The rows of `srl bench gpu`, the most valuable first, and the measurement of each."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import Any

from srl.config.experiment import Experiment, load_experiment
from srl.core.errors import RunError
from srl.dataflow.plans import idle_gpu
from srl.extras.bench.actions import random_actions
from srl.extras.bench.gpu_load import GpuLoad
from srl.extras.bench.rounds import in_turns, repeated
from srl.extras.bench.train import FIRST_REPORT, OutOfTime, PlanSide
from srl.loop.stage import Stage
from srl.loop.stepping.environments import make_group
from srl.system.child_process import child_command
from srl.system.gpu_switches import VARIABLE
from srl.system.gpus import jax_gpus

_FILE = str(Path(__file__).with_name("gpu_games.py"))
_MEASURE_SECONDS = 6.0
_STOP_SECONDS = 10.0
_POOL_SECONDS = 2.0
_BATCHES = 20  # of actions
_GOAL = 18.0
_SLOTS = "64,512,4096"
_NOTHING: Mapping[str, str] = MappingProxyType({})

Measured = dict[str, Any]
"""The value of a row, its unit, and what else is known of it."""


@dataclass
class Room:
    """The time and the options that a row may use, and what rows share."""

    deadline: float
    """When the row must have ended, by `time.monotonic`."""
    overrides: Sequence[str] = ()
    """Options of the command line, for every run."""
    pools: dict[str, float] = field(default_factory=dict)
    """Env steps a second of each game's pool alone."""

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return max(0.1, self.deadline - time.monotonic())


@dataclass(frozen=True)
class Row:
    """One measurement."""

    name: str
    text: str
    measure: Callable[[Room], Measured]
    usual: bool = True
    """True if the row is measured by default."""


def _train(
    game: str,
    options: str,
    report_every: int,
    variables: Mapping[str, str],
    room: Room,
) -> Measured:
    """Measures env steps a second of a game's training, in a run as by `srl run`."""
    target, words = f"{_FILE}:{game}", [*options.split(), *room.overrides]
    experiment = load_experiment(target, words).experiment
    pool = _pool_rate(game, experiment, room)
    side = PlanSide(target, words, variables, report_every, room.deadline, _STOP_SECONDS)
    with closing(GpuLoad()) as load:
        first, last = side.reports(min(_MEASURE_SECONDS, room.left / 3))
        mean = load.mean(first["time"], last["time"])
    plan = experiment.settled_plan
    return {
        "value": (last["env_steps"] - first["env_steps"]) / (last["time"] - first["time"]),
        "unit": "env steps/s",
        "plan": plan.name,
        "groups": experiment.num_groups,
        "num_envs": experiment.num_envs,
        "max_staleness": experiment.max_staleness,
        "learns_on": "CPU" if idle_gpu(plan, experiment.env) else device(),
        "pool": pool,
        "gpu_load": mean,
        "compile_seconds": _compile_seconds(side.stages),
        "first_report_seconds": side.stages[FIRST_REPORT],
    }


def device() -> str:
    """The kind of device that JAX computes on here."""
    return "GPU" if jax_gpus() else "CPU"


def _compile_seconds(stages: Mapping[str, float]) -> float | None:
    """Seconds from the stage of compiling to the next one; None where no such stage was seen."""
    begin = stages.get(Stage.COMPILING)
    return None if begin is None else min(s for s in stages.values() if s > begin) - begin


def _pool_rate(game: str, experiment: Experiment, room: Room) -> float | None:
    """Env steps a second of a pool alone, with random actions; None of environments in JAX."""
    if experiment.env_id.startswith("jax:"):
        return None  # there is no pool, and this process must not start JAX: it would take the GPU
    if game not in room.pools:
        num_envs = experiment.num_envs
        with closing(make_group(experiment, num_envs)) as pool:
            slots = num_envs * len(pool.specs.agents)
            actions = random_actions(pool.specs.action, slots, _BATCHES, sticky=False)
            pool.reset(experiment.seed)

            def steps() -> None:
                for action in actions:
                    pool.step(action)

            side = repeated(steps, num_envs * _BATCHES)
            room.pools[game] = in_turns({"pool": side}, _POOL_SECONDS, 1)["pool"][-1]
    return room.pools[game]


def _place(room: Room) -> Measured:
    """Checks what is on which device, and what an update moves; see `gpu_placement`."""
    for check in ("all_devices", "fused_in_jax"):
        _output(child_command("srl.extras.bench.gpu_placement", check, dies_with_parent=True), room)
    return {"value": "holds", "unit": ""}


def _act(game: str, room: Room) -> Measured:
    """Measures microseconds a call of `act`, from NumPy's arrays to NumPy's arrays."""
    words = f"--num-slots {_SLOTS} --through thread --seconds 1.5 --rounds 2 --json"
    target = [f"{_FILE}:{game}", *words.split()]
    command = child_command("srl.api.cli", "bench", "act", *target, dies_with_parent=True)
    lines = [json.loads(line) for line in _output(command, room).splitlines()]

    def found(through: str) -> list[float]:
        return [x["latency_us"] for x in lines if x["config"]["through"] == through]

    return {
        "value": found("in process"),
        "unit": "us",
        "slots": [int(count) for count in _SLOTS.split(",")],
        "program_us": found("compiled call"),
        "policy_server_us": found("thread"),
    }


def _copy(game: str, room: Room) -> Measured:
    """Measures the copy of an unroll to the device that learns."""
    words = f"{_FILE}:{game}", *room.overrides
    command = child_command("srl.extras.bench.gpu_copies", *words, dies_with_parent=True)
    return json.loads(_output(command, room))


def _play_pong(room: Room) -> Measured:
    """Measures the seconds from a run's start until PPO plays Pong well."""
    words = list(room.overrides)
    side = PlanSide(f"{_FILE}:pong", words, _NOTHING, 1, room.deadline, _STOP_SECONDS)
    seconds, report = side.until(lambda report: (report["episode_return"] or 0) >= _GOAL)
    return {"value": seconds, "unit": "s", "env_steps": report["env_steps"]}


def _output(command: Sequence[str], room: Room) -> str:
    """The output of a command."""
    with TemporaryFile() as errors:
        try:
            done = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                timeout=room.left,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise OutOfTime(f"it needs more than {error.timeout:.0f} s") from None
        if done.returncode:
            errors.seek(0)
            last = errors.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise RunError(f"it ended with {done.returncode}: {last}")
    return done.stdout.decode()


def _training(name: str, text: str, game: str, options: str = "", every: int = 1) -> Row:
    """A row of a game's training."""
    return Row(name, text, partial(_train, game, options, every, _NOTHING))


def _switched(variables: Mapping[str, str], name: str, text: str, game: str, every: int = 1) -> Row:
    """A row of a game's training with a choice off; the row that its text names has it on."""
    return Row(name, text, partial(_train, game, "", every, variables))


def _chosen(choice: str) -> dict[str, str]:
    return {VARIABLE: choice}


_HIDE, _CHEETAH, _PONG = "hide_and_seek", "half_cheetah", "pong"
_PLAIN = "--plan replicated --plan.learners.replicas 1"
_AHEAD, _CENTRAL, _DECOUPLED = "--max-staleness 1", "--plan central", "--plan decoupled"
_SERVING = "--plan serving"
_WITHOUT_SHARES = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
_FULL_PRECISION = {"JAX_DEFAULT_MATMUL_PRECISION": "highest"}

ROWS: Sequence[Row] = (
    Row("placement", "arrays stay on their device, donated ones at their address", _place),
    _training("hide", "hide-and-seek `full`, default plan: `threads`", _HIDE),
    _training(
        "hide-ahead", "hide-and-seek, `threads`, staleness 1", _HIDE, f"--plan threads {_AHEAD}"
    ),
    _training(
        "hide-plain", "hide with the plain loop: the GPU idles while the pool steps", _HIDE, _PLAIN
    ),
    _training("hide-central", "hide-and-seek, `central`", _HIDE, _CENTRAL),
    _training(
        "hide-central-ahead", "hide-and-seek, `central`, staleness 1", _HIDE, f"{_CENTRAL} {_AHEAD}"
    ),
    _training(
        "hide-serving", "hide-and-seek, `serving`, staleness 1", _HIDE, f"{_SERVING} {_AHEAD}"
    ),
    _training("cheetah", "HalfCheetah, PPO, 256 environments", _CHEETAH, every=5),
    _training("humanoid", "Humanoid, SAC, 256 environments", "humanoid", every=2),
    _training("pong", "Pong, PPO, Nature CNN", _PONG),
    _training("cartpole", "CartPole in JAX, PPO, `fused`", "cartpole", every=50),
    _training("breakout", "MinAtar Breakout in JAX, PPO, `fused`", "breakout", every=10),
    Row("act-hide", "`act` of hide-and-seek", partial(_act, _HIDE)),
    Row("act-cheetah", "`act` of HalfCheetah", partial(_act, _CHEETAH)),
    _switched(
        _chosen("convolutions=patches"),
        "pong-patches",
        "pong with patches and one product, not XLA's convolutions",
        _PONG,
    ),
    _switched(_chosen("act=cpu"), "cheetah-act-cpu", "cheetah with `act` on the CPU", _CHEETAH, 5),
    _switched(
        _chosen("pools=shared"), "hide-pools", "hide with half of the cores for each pool", _HIDE
    ),
    _switched(
        _chosen("copies=apart"),
        "cheetah-copies",
        "cheetah with copies to the host one by one",
        _CHEETAH,
        5,
    ),
    Row(
        "hide-prefetch",
        "hide-ahead without copying the next batch meanwhile",
        partial(_train, _HIDE, f"--plan threads {_AHEAD}", 1, _chosen("prefetch=off")),
    ),
    _training(
        "hide-two", "hide-and-seek, `decoupled`: two processes on the GPU", _HIDE, _DECOUPLED
    ),
    Row(
        "hide-two-grow",
        "hide-two without preallocated shares of memory",
        partial(_train, _HIDE, _DECOUPLED, 1, _WITHOUT_SHARES),
    ),
    _switched(_FULL_PRECISION, "hide-precise", "hide with products in float32, not TF32", _HIDE),
    Row("copy-hide", "copy of hide-and-seek's unroll", partial(_copy, _HIDE)),
    Row("copy-pong", "copy of Pong's unroll", partial(_copy, _PONG)),
    Row("pong-time", "Pong until a return of 18", _play_pong, usual=False),
)
