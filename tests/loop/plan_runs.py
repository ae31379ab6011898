"""Trains small experiments by plans, and compares what they have led to."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from small_runs import CARTPOLE, save

from srl.algorithms import PPO
from srl.config.experiment import Resolved, load_experiment, resolved_value
from srl.core.tree import leaves_of
from srl.launch.local import train
from srl.launch.processes import train_in_processes
from srl.networks import MLP
from srl.record.checkpoint import Checkpoints
from srl.run.folder import create_run
from srl.streams.group_state import unpack
from srl.streams.transport import Transport

DOCS = Path(__file__).parents[2] / "docs"
MODULES = (
    *(DOCS / f"{x}.py" for x in ("alphazero", "bit_flip", "corridor", "reinforce")),
    Path(__file__).parents[1] / "hybrid.py",
)
"""What experiments import from beside their file."""
PLAIN = ("replicated", "--plan.learners.replicas", "1")
"""The plain loop, in one thread."""

_ENV = """
from srl import Experiment
from srl.algorithms import ALGORITHM
from srl.networks import MLP

experiment = Experiment(
    name="small",
    env="native:CartPole-v1",
    num_envs=16,
    groups=4,
    algorithm=ALGORITHM(network=MLP(width=8, depth=1, MEMORY), SETTINGS),
    updates=3,
)
"""


def _by(algorithm: str, settings: str, network: str = "") -> str:
    """An experiment on CartPole, by a network as small as can be: it is compiled in many tests."""
    words = {"ALGORITHM": algorithm, "SETTINGS": settings, "MEMORY": network}
    return functools.reduce(lambda text, word: text.replace(*word), words.items(), _ENV)


def _replayed(algorithm: str, settings: str, network: str = "") -> str:
    """An experiment that learns from a replay of two unrolls, the oldest of which is written over.

    After the first update it is still warming up; some rounds have no gradient step.
    """
    settings = f"{settings}, unroll_length=8, replay=256, warm_up=200"
    return _by(algorithm, settings, network).replace("updates=3", "updates=5")


def _swung(algorithm: str, settings: str, network: str = "") -> str:
    """An experiment as `_replayed`, on Pendulum."""
    return _replayed(algorithm, settings, network).replace("CartPole", "Pendulum")


def _joint(algorithm: str, settings: str, network: str = "") -> str:
    """An experiment of a team of two, each of whose values QMIX mixes."""
    settings = f"{settings}, mixer=Mixer(width=4, weights_width=4)"
    make = _by if algorithm == "PQN" else _replayed
    return (
        make(algorithm, settings, network)
        .replace(f"import {algorithm}", f"import {algorithm}, Mixer")
        .replace("native:CartPole-v1", "jax:srl.envs.two_step:TwoStep")
    )


_MINIBATCHES = "unroll_length=16, epochs=2, minibatches=2"
_CARTPOLE = _by("PPO", _MINIBATCHES)
_DQN = "priorities=0.6, n_step=2, batch_size=64, samples_per_insert=4.25, frame_stack=2"
_TEAM = "priorities=0.6, n_step=2, batch_size=8, samples_per_insert=1.0"
_BATCHES = "batch_size=32, samples_per_insert=1.0"
_SEQUENCES = f"{_BATCHES}, burn_in=2, sequence=4"
_GAME = """
from srl import Experiment
from srl.algorithms import PPO
from srl.envs.hide_and_seek import HideAndSeek
from srl.networks import EntityAttention, MLP

experiment = Experiment(
    name="game",
    env=HideAndSeek(horizon=20),
    num_envs=8,
    groups=4,
    algorithm=PPO(network=NETWORK, unroll_length=8, epochs=1, minibatches=2),
    policies={"seeker*": "seekers", "hider*": "hiders"},
    updates=3,
)
"""
_PAST = (
    _GAME.replace("NETWORK", "MLP(width=8, depth=1)")
    .replace("import Experiment\n", "import Experiment, SelfPlay\n")
    .replace("horizon=20", "horizon=12")
    .replace("num_envs=8", "num_envs=16")
    .replace("updates=3", "self_play=SelfPlay(past=0.5, every=1, keep=3, evaluate=0), updates=5")
)
"""Opponents stay for two updates, so that two play in turn."""
_FIXED = (
    _GAME.replace("NETWORK", "MLP(width=8, depth=1)")
    .replace("import Experiment\n", "import Experiment, Fixed\n")
    .replace('"seekers", "hider', 'Fixed("SOURCE"), "hider')
)
"""The seekers of a run that is made for it play, which remember."""
_MIRRORED = (
    _replayed("DQN", f"{_DQN}, prior='SOURCE', mirror=Mirror(flipped, other)")
    .replace("import DQN\n", "import DQN, Mirror\n")
    .replace(
        "\nexperiment =",
        "\nflipped = lambda observation: -observation\nother = lambda action: 1 - action\n"
        "\nexperiment =",
    )
)
_BITS = (
    _replayed("DQN", f"{_BATCHES}, hindsight=Hindsight(distance=0.5, terminated=reached)")
    .replace("import DQN\n", "import DQN, Hindsight\nfrom bit_flip import reached\n")
    .replace("native:CartPole-v1", "jax:bit_flip:BitFlip")
)
_TASKS = (
    _swung("SAC", _BATCHES)
    .replace("import Experiment", "import Experiment, Mixture")
    .replace(
        '"native:Pendulum-v1"',
        'Mixture({"swing": "native:Pendulum-v1", "hop": "native:Hopper-v5"})',
    )
)
_LESSONS = (
    _CARTPOLE.replace("import Experiment", "import Experiment, Lesson")
    .replace(
        'env="native:CartPole-v1"',
        """env="jax:srl.envs.t_maze:TMaze",
    curriculum=(
        Lesson({"length": 2}, "episode_return >= -1", episodes=40),
        Lesson({"length": 5}, "episode_length >= 5 and updates >= 3", episodes=10),
    )""",
    )
    .replace("updates=3", "updates=5")
)
_SOURCES = {
    "game against a fixed policy": "game with memory",
    "cartpole by DQN from prior data": "cartpole by DQN",
}
"""Experiments by those that need a run of them."""
FILES = {
    "cartpole": _CARTPOLE,
    "cartpole with memory": _by("PPO", f"{_MINIBATCHES}, chunk=4", "memory=8"),
    "bits by DQN with hindsight": _BITS,
    "cartpole by APPO": _by("APPO", _MINIBATCHES),
    "cartpole by C51": _replayed("DQN", f"{_DQN}, atoms=5, dueling=True"),
    "cartpole by DiscreteSAC": _replayed("DiscreteSAC", _BATCHES),
    "cartpole by DiscreteSAC with memory": _replayed("DiscreteSAC", _SEQUENCES, "memory=4"),
    "cartpole by DQN": _replayed("DQN", _DQN),
    "cartpole by DQN from prior data": _MIRRORED,
    "cartpole by IMPALA with memory": _by("IMPALA", "unroll_length=16", "memory=8"),
    "cartpole by PQN with memory": _by("PQN", _MINIBATCHES, "memory=8"),
    "cartpole by R2D2": _replayed(
        "R2D2",
        "chunk=2, burn_in=2, sequence=4, n_step=2, batch_size=16, samples_per_insert=1.0",
        "memory=8",
    ),
    "cartpole by REINFORCE": _by("Reinforce", "unroll_length=16").replace(
        "srl.algorithms", "reinforce"
    ),
    "corridor in JAX": _CARTPOLE.replace("native:CartPole-v1", "jax:corridor:Corridor"),
    "pendulum by REDQ": _swung("SAC", f"{_BATCHES}, critics=3, subset=2"),
    "pendulum by REPPO": _by("REPPO", f"{_MINIBATCHES}, atoms=5, reward_scale=0.05").replace(
        "CartPole", "Pendulum"
    ),
    "pendulum by SAC": _swung("SAC", _BATCHES),
    "pendulum by SAC with memory": _swung("SAC", _SEQUENCES, "memory=4"),
    "pendulum by TD3": _swung("TD3", _BATCHES),
    "pendulum by TD3 with memory": _swung("TD3", _SEQUENCES, "memory=4"),
    "team by DQN": _joint("DQN", _TEAM),
    "team by PQN": _joint("PQN", "unroll_length=16, epochs=2, minibatches=32"),
    "team by R2D2": _joint("R2D2", f"{_TEAM}, chunk=2, burn_in=2, sequence=4", "memory=8"),
    "tic-tac-toe by AlphaZero": _by("AlphaZero", "simulations=4, old_unrolls=2, width=8")
    .replace("srl.algorithms", "alphazero")
    .replace("native:CartPole-v1", "jax:alphazero:BoardGame")
    .replace("network=MLP(width=8, depth=1, ), ", ""),
    "trees of actions": _CARTPOLE.replace("native:CartPole-v1", "jax:hybrid:HybridInJax"),
    "game": _GAME.replace("NETWORK", "MLP(width=8, depth=1)"),
    "game by MAPPO": _GAME.replace("NETWORK", "MLP(width=8, depth=1)")
    .replace("PPO", "MAPPO")
    .replace("unroll_length", "privileged=('box_obs',), unroll_length"),
    "game against the past": _PAST,
    "game against a fixed policy": _FIXED,
    "game with memory": _GAME.replace("NETWORK", "MLP(width=8, depth=1, memory=2)").replace(
        "PPO(", "PPO(chunk=4, "
    ),
    "drawn": (Path(__file__).with_name("drawn.py")).read_text(),
    "lessons": _LESSONS,
    "tasks by PPO": _TASKS.replace("SAC", "PPO").replace(
        f"{_BATCHES}, unroll_length=8, replay=256, warm_up=200", _MINIBATCHES
    ),
    "tasks by SAC": _TASKS,
    "hide and seek": _GAME.replace("NETWORK", "EntityAttention(width=8, heads=2)"),
}
"""Experiments: of one agent, and of two policies for two agents each."""


class Trained(NamedTuple):
    """What a run has led to."""

    parameters: np.ndarray
    """Those of all policies, one after the other."""
    timesteps: dict[str, list[np.ndarray]]
    """Where the environments stand, by field; their actions have led there."""
    lesson: int = 0
    """The lesson of the curriculum, from 0."""


def loaded(folder: Path, name: str, *options: str) -> Resolved:
    """The experiment that `trained` would train.

    Raises:
        PlanError: If the plan cannot run its loop.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file, colon, part = name.partition(":")
    text = FILES[file]
    if file in _SOURCES:
        text = text.replace("SOURCE", _source(_SOURCES[file]))
    if "TEACHER" in text:
        text = text.replace("TEACHER", _teacher())
    (folder / "experiment.py").write_text(text)
    for module in MODULES:
        shutil.copy(module, folder)
    plan = () if not options or options[0].startswith("--") else ("--plan",)
    return load_experiment(f"{folder}/experiment.py{colon}{part}", [*plan, *options])


@functools.cache
def _source(name: str) -> str:
    """The folder of a run that others need; made once."""
    made = Path(tempfile.mkdtemp(prefix="source-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    trained(made, name, *PLAIN)
    return f"{made}/run"


@functools.cache
def _teacher() -> str:
    """The folder of a run whose policy teaches, larger than those that it teaches."""
    made = Path(tempfile.mkdtemp(prefix="teacher-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    experiment = replace(CARTPOLE, algorithm=PPO(network=MLP(width=16)))
    return str(save(resolved_value(experiment), made / "run").path)


def trained(
    folder: Path, name: str, *options: str, transport: Transport = "host", role: str = ""
) -> Trained:
    """Trains the experiment of this name.

    Args:
        folder: Empty or absent; for the run.
        name: One of FILES; with `:NAME`, that experiment of the file.
        options: A plan's name, unless it is the experiment's, and options as on the command line.
        transport: Of the streams between processes.
        role: What workers run in place of what their nodes ask for, with another transport.
    """
    resolved = loaded(folder, name, *options)
    experiment, run = resolved.experiment, create_run(resolved, folder / "run")
    if transport == "host":
        assert train(experiment, run) == 0
    else:
        assert train_in_processes(experiment, run, transport=transport, role=role) == 0
    return result_of(run.checkpoints)


def result_of(folder: Path) -> Trained:
    """What the newest checkpoint in a folder has."""
    checkpoints = Checkpoints(folder)
    tree, _ = checkpoints.restore()
    checkpoints.close()
    parts = leaves_of({name: state["params"] for name, state in tree["learners"].items()})
    parameters = np.concatenate([np.ravel(part) for part in parts])
    lesson = int(tree["curriculum"]["lesson"]) if "curriculum" in tree else 0
    return Trained(parameters, _timesteps(tree), lesson)


def _timesteps(tree) -> dict[str, list[np.ndarray]]:
    groups = unpack(tree["environments"].copy(), 1 << 30)
    states = [groups[group]["timestep"] for group in sorted(groups, key=int)]
    assert states
    return {
        field: list(map(np.concatenate, zip(*(leaves_of(s[field]) for s in states), strict=True)))
        for field in states[0]
        if field != "env_id"  # counts within a group
    }


def assert_agree(one: Trained, other: Trained) -> None:
    """Actions are the same, and parameters up to rounding."""
    assert_same_actions(one, other)
    distance = np.linalg.norm(one.parameters - other.parameters)
    assert distance / np.linalg.norm(one.parameters) < 1e-5


def assert_same_actions(one: Trained, other: Trained) -> None:
    """The environments have come to the same states."""
    for field, leaves in one.timesteps.items():
        for a, b in zip(leaves, other.timesteps[field], strict=True):
            # Actions that are numbers follow from parameters, which agree up to rounding.
            same = np.allclose(a, b, rtol=1e-6, atol=1e-5, equal_nan=True)
            assert same, f"{field} differs, so actions have differed"
