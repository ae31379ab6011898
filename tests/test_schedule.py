"""Settings that follow a schedule."""

import dataclasses
import json

import jax
import numpy as np
import pytest

import srl
from srl import Experiment, Schedule, UserError
from srl.algorithms import ALGORITHMS, DQN, PPO
from srl.algorithms.algorithm import adjustable_settings
from srl.api.cli import main
from srl.config.overrides import override
from srl.core.config_values import config_values, made_from
from srl.core.errors import RunError
from srl.loop.learning.learner import Learner
from srl.loop.make_training import make_training
from srl.pools import make_pool
from srl.record.checkpoint import Checkpoints
from srl.run.metrics import read_metrics
from tests.small_runs import CARTPOLE, assert_same

FALLING = Schedule.linear(1e-2, 0.0)


def half(progress):
    return 0.5 * progress


def test_values_lie_on_the_lines_between_points():
    steps = Schedule(((0.2, 1.0), (0.5, 1.0), (0.5, 3.0), (0.9, 5.0)))
    values = [steps.value(p) for p in (0.0, 0.2, 0.4, 0.5, 0.7, 0.9, 1.0)]
    assert values == pytest.approx([1, 1, 1, 3, 4, 5, 5])
    assert [FALLING.value(p) for p in (0, 0.25, 1)] == pytest.approx([1e-2, 0.75e-2, 0])
    assert Schedule.linear(1, 2, 5).value(0.75) == 3.5
    assert Schedule(function=half).value(0.5) == 0.25


@pytest.mark.parametrize("text", ["0:0.01/1:0", "0.2:1/0.5:1/0.5:3/0.9:5"])
def test_a_schedule_is_read_from_the_text_that_it_gives(text):
    assert str(Schedule.read(text)) == text
    assert Schedule.read("3e-4/1e-4/0") == Schedule(((0, 3e-4), (0.5, 1e-4), (1, 0)))


def test_every_adjustable_setting_of_every_algorithm_takes_one_as_an_option():
    for kind in ALGORITHMS:
        for name in adjustable_settings(kind):
            flag = f"--algorithm.{name.replace('_', '-')}"
            words = ["--algorithm", kind.__name__, flag, "0.1/0.2"]
            algorithm = override(Experiment("any", "CartPole-v1"), words).algorithm
            assert getattr(algorithm, name) == Schedule.linear(0.1, 0.2)
            assert getattr(algorithm.at_start(), name) == 0.1
            assert made_from(json.loads(json.dumps(config_values(algorithm)))) == algorithm


@pytest.mark.parametrize(
    ("algorithm", "told"),
    [
        (lambda: PPO(gae_lambda=FALLING), "gae_lambda is a schedule; of PPO, learning_rate and m"),
        (lambda: PPO(clip=Schedule.linear(0.2, -0.1)), "the value of a point is -0.1; expected"),
        (lambda: PPO(clip=Schedule()), "a Schedule has points, or a function; give one"),
        (lambda: PPO(clip=Schedule(((0.5, 1.0), (0.2, 1.0)))), "in the order of their progress"),
        (lambda: PPO(clip=Schedule(((2.0, 1.0),))), "the progress of a point is 2.0; expected"),
        (lambda: PPO(clip=Schedule(function=lambda p: p)), "has no name by which a run's process"),
        (lambda: PPO(clip=Schedule(function=np.log)), "log failed at progress 0.0"),
        (lambda: DQN(learning_rate=Schedule(points=(1, 2))), "points[0] is 1; expected a tuple"),
    ],
)
def test_what_is_no_schedule_of_a_setting_is_refused(algorithm, told):
    with pytest.raises(UserError) as error:
        algorithm().validate()
    assert told in str(error.value)
    assert main(["run", "CartPole-v1", "--algorithm.clip", "0.2/0.1/x"]) == 2


def test_a_function_that_gives_no_number_is_named():
    with pytest.raises(RunError, match="the schedule half gives nan at progress nan"):
        Schedule(function=half).value(float("nan"))


def test_all_of_a_pass_has_the_value_of_its_begin_and_a_change_ends_the_schedule():
    algorithm = dataclasses.replace(
        CARTPOLE.algorithm, learning_rate=FALLING, clip=Schedule(function=half)
    )
    experiment = dataclasses.replace(CARTPOLE, algorithm=algorithm, updates=10)
    with make_pool(experiment.env) as pool:
        learner = Learner(experiment, pool.specs)
    assert learner.policy_set.instances["policy"].config.anneal is False
    learner.progress.updates = 5
    assert learner.settings.now["learning_rate"] == pytest.approx(0.5e-2)
    assert learner.setting_operands["clip"] == np.float32(0.25)
    assert learner.settings.changed == {}
    assert learner.settings.moving.keys() == {"learning_rate", "clip"}
    learner.settings.change({"clip": 0.1})
    learner.progress.updates = 20  # beyond the end
    assert learner.settings.now["learning_rate"] == 0
    assert learner.settings.changed == {"clip": 0.1}
    assert learner.setting_operands["clip"] == np.float32(0.1)


def test_a_linear_schedule_is_what_annealing_does_under_every_plan(tmp_path):
    """To a few bits: annealing computes in float32."""
    annealed = dataclasses.replace(CARTPOLE.algorithm, learning_rate=1e-2)
    algorithm = dataclasses.replace(annealed, learning_rate=FALLING)
    parameters = {}
    for name, chosen in {"annealed": annealed, "threads": algorithm, "fused": algorithm}.items():
        plan = "threads" if name == "annealed" else name
        experiment = dataclasses.replace(CARTPOLE, algorithm=chosen, updates=3, plan=plan)
        training = make_training(experiment)
        training.start()
        for _ in range(3):
            training.update()
        parameters[name] = training.state()["learners"]["policy"]["params"]
        assert ("settings/learning_rate" in training.report()) == (name != "annealed")
        training.close()
    assert_same(parameters["threads"], parameters["fused"])
    leaves = (jax.tree.leaves(each) for each in parameters.values())
    for by_annealing, scheduled, _ in zip(*leaves, strict=True):
        assert np.ravel(scheduled) == pytest.approx(np.ravel(by_annealing), abs=1e-5)


FILE = """
from srl import Experiment, Schedule
from srl.algorithms import PPO
from srl.networks import MLP


def falling(progress):
    return 1e-2 * (1 - progress) ** 2


experiment = Experiment(
    "falling", "native:CartPole-v1", num_envs=4, report_every=1, updates=4, plan="{plan}",
    algorithm=PPO(network=MLP(width=8), unroll_length=8, epochs=1,
                  learning_rate=Schedule(function=falling)),
)
"""


@pytest.mark.parametrize(
    "plan", ["fused", pytest.param("parameter_server", marks=pytest.mark.slow)]
)
def test_a_run_by_a_function_of_its_file_goes_on_as_if_it_had_not_stopped(plan, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(FILE.format(plan=plan))
    pause = ["--pause-at", str(2 * 4 * 8)]
    assert main(["run", str(file), "--run-dir", str(tmp_path / "whole")]) == 0
    assert main(["run", str(file), "--run-dir", str(tmp_path / "run"), *pause]) == 0
    assert main(["resume", str(tmp_path / "run"), "--env-steps", str(4 * 4 * 8)]) == 0
    rates = [line["settings/learning_rate"] for line in read_metrics(tmp_path / "run")]
    assert rates == pytest.approx([1e-2 * (1 - n / 4) ** 2 for n in (0, 1, 2, 3)])
    trees = [Checkpoints(tmp_path / name / "checkpoints").restore()[0] for name in ("whole", "run")]
    assert_same(trees[0]["learners"], trees[1]["learners"])
    assert srl.load(tmp_path / "run").act(np.zeros(4))[0] in (0, 1)


def test_the_text_of_a_schedule_gives_the_same_schedule():
    schedule = Schedule(((0.0, 1.2345678e-4), (1 / 3, 2 / 3), (1.0, 0.0)))
    assert Schedule.read(str(schedule)) == schedule


@dataclasses.dataclass(frozen=True)
class Tuned(PPO):
    """Declares settings again, without their ranges."""

    learning_rate: float = 1e-3
    epochs: int = 4


def test_a_setting_that_is_declared_again_keeps_its_range_and_may_change():
    assert "learning_rate" in Tuned().adjustable
    with pytest.raises(UserError, match="epochs"):
        Tuned(epochs=0).validate()
    Tuned(learning_rate=Schedule.linear(1e-3, 0.0)).validate()
