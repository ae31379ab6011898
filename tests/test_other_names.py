"""Settings by the names that other libraries give them, and other mistakes of a first hour."""

import copy
import dataclasses
import inspect
import pickle
import re
from pathlib import Path

import gymnasium
import pytest

import srl
from srl import Experiment, UserError
from srl.algorithms import ALGORITHMS, DQN, PPO, SAC
from srl.api.cli import main
from srl.config.evaluation import Evaluation
from srl.config.overrides import override
from srl.core.other_names import OTHER_NAMES, WITHOUT
from srl.dataflow import plans
from srl.networks import MLP
from srl.pools import make_pool

CARTPOLE = Experiment("cartpole", "CartPole-v1")


class Sized(gymnasium.Env):
    """An environment that cannot be made without its size."""

    observation_space = action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size, speed=1.0):
        self.size = size


# ---- options ----


@pytest.mark.parametrize(
    ("algorithm", "flag", "ours"),
    [
        ("ppo", "--lr", "--algorithm.learning-rate"),
        ("ppo", "--learning_rate", "--algorithm.learning-rate"),
        ("ppo", "--algorithm.lr", "--algorithm.learning-rate"),
        ("ppo", "--total-timesteps", "--env-steps"),
        ("ppo", "--n-envs", "--num-envs"),
        ("ppo", "--gamma", "--algorithm.discount"),
        ("ppo", "--batch-size", "--algorithm.minibatches"),
        ("sac", "--batch-size", "--algorithm.batch-size"),
        ("ppo", "--n-steps", "--algorithm.unroll-length"),
        ("ppo", "--ent-coef", "--algorithm.entropy-cost"),
        ("sac", "--ent-coef", "--algorithm.temperature"),
        ("ppo", "--vf-coef", "--algorithm.value-cost"),
        ("ppo", "--gae-lambda", "--algorithm.gae-lambda"),
        ("ppo", "--clip-range", "--algorithm.clip"),
        ("ppo", "--n-epochs", "--algorithm.epochs"),
        ("ppo", "--num-workers", "--workers"),
        ("dqn", "--buffer-size", "--algorithm.replay"),
        ("ppo", "--buffer-size", "--algorithm.replay, which is no option here"),
        ("sac", "--tau", "--algorithm.target-rate"),
        ("ppo", "--net-arch", "--algorithm.network.widths"),
        ("ppo", "--device", "JAX_PLATFORMS=cpu"),
        ("ppo", "--batch-mode", "leave it out"),
        ("ppo", "--framework", "leave it out"),
    ],
)
def test_an_option_of_another_library_is_answered_with_ours(algorithm, flag, ours):
    with pytest.raises(UserError) as error:
        override(CARTPOLE, ["--algorithm", algorithm, flag, "3"])
    assert flag.replace("_", "-") in str(error.value)
    assert ours in str(error.value)
    assert "\n" not in str(error.value)


def settings_of(path):
    """The names of the settings among which the last part of a path has to be."""
    *outer, name = path.split(".")
    kinds = {
        "": [Experiment],
        "algorithm": ALGORITHMS,
        "algorithm.network": [type(PPO().network)],
        "algorithm.network.mlp": [MLP],
        "evaluation": [Evaluation],
    }
    return name, {field.name for k in kinds[".".join(outer)] for field in dataclasses.fields(k)}


@pytest.mark.parametrize("other", OTHER_NAMES)
def test_what_stands_for_another_librarys_name_is_a_setting(other):
    paths = OTHER_NAMES[other]
    for path in (paths,) if isinstance(paths, str) else paths:
        name, known = settings_of(path)
        assert name in known, path
    assert other not in WITHOUT


def test_the_names_that_the_documents_list_are_in_the_table():
    text = Path(__file__).parents[1].joinpath("docs/algorithms.md").read_text()
    rows = text.split("## Names from other libraries")[1].split("## ")[0].splitlines()
    others = {name for row in rows for cell in row.split("|")[1:3] for name in row_names(cell)}
    own = {name for row in rows for cell in row.split("|")[3:4] for name in row_names(cell)}
    assert len(others) > 25
    assert others - own <= {*OTHER_NAMES, *WITHOUT}


def row_names(cell):
    return re.findall(r"`(\w+)`", cell)


# ---- files ----


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: PPO(lr=3), "PPO has no setting lr; srl calls it learning_rate"),
        (lambda: PPO(batch_size=64), "PPO has no setting batch_size; srl calls it minibatches"),
        (lambda: SAC(tau=0.1), "SAC has no setting tau; srl calls it target_rate"),
        (lambda: PPO(tau=0.1), "srl calls it target_rate, which is a setting of "),
        (lambda: PPO(total_timesteps=9), "calls it env_steps, which is a setting of Experiment"),
        (lambda: PPO(num_envs=9), "it is a setting of Experiment"),
        (lambda: PPO(clp=0.1), "PPO has no setting clp; did you mean clip?"),
        (lambda: MLP(net_arch=(64,)), "MLP has no setting net_arch; srl calls it widths"),
        (lambda: PPO(device="cuda"), "PPO has no setting device; JAX takes a GPU where there is"),
        (
            lambda: Experiment("a", "CartPole-v1", num_env=3),
            "Experiment has no setting num_env; srl calls it num_envs",
        ),
        (
            lambda: Experiment("a", "CartPole-v1", lr=3),
            "srl calls it learning_rate, which is a setting of ",
        ),
        (lambda: Experiment(env="CartPole-v1"), "Experiment: missing a required argument: 'name'"),
        (lambda: Evaluation(eval_freq=3), "srl calls it every"),
        (lambda: srl.Fragment(("step",), num_workers=3), "Fragment has no setting num_workers"),
        (lambda: dataclasses.replace(PPO(), gamma=0.9), "srl calls it discount"),
    ],
)
def test_a_setting_that_a_class_does_not_have_is_answered_in_a_line(make, told):
    with pytest.raises(UserError) as error:
        make()
    assert told in str(error.value)
    assert "\n" not in str(error.value)
    assert isinstance(error.value, TypeError)  # as Python's own error would be


def test_settings_are_copied_and_shown_as_those_of_other_dataclasses():
    experiment = Experiment("cartpole", "CartPole-v1", algorithm=DQN(n_step=1), plan=plans.inline())
    assert pickle.loads(pickle.dumps(experiment)) == copy.deepcopy(experiment) == experiment
    assert list(inspect.signature(PPO).parameters)[:2] == ["unroll_length", "discount"]


def test_the_command_names_the_line_of_the_file_with_such_a_setting(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text("from srl.algorithms import PPO\n\nalgorithm = PPO(lr=3)\n")
    assert main(["run", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.endswith("mine.py, line 3: PPO has no setting lr; srl calls it learning_rate\n")


# ---- environments ----


def test_an_environment_that_is_made_already_is_refused_with_its_id():
    with gymnasium.make("CartPole-v1") as env:
        for make in (
            lambda: srl.train(Experiment("a", env), plan="inline"),
            lambda: srl.train(env),
            lambda: make_pool(env),
        ):
            with pytest.raises(
                UserError, match=r'made already, .*: give "CartPole-v1", or a funct'
            ):
                make()


def test_an_environment_without_a_needed_argument_is_refused_with_the_cure(capsys):
    cure = "give env=functools.partial(Sized, size=...)"
    with pytest.raises(UserError, match="Sized cannot be made without size: ") as error:
        make_pool(Sized)
    assert cure in str(error.value)
    assert main(["run", f"{__name__}:Sized", "--dry-run"]) == 2
    assert "without size: give --env.size VALUE, or env=NamedEnv(" in capsys.readouterr().err
    make_pool(Sized, size=3).close()


# ---- an algorithm that does not fit ----


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["CartPole-v1", "--algorithm", "sac", "--dry-run"], "take DiscreteSAC, DQN or PPO"),
        (["Pendulum-v1", "--algorithm", "dqn", "--dry-run"], "take SAC or TD3"),
        (["native:CartPole-v1", "--algorithm", "td3", "--plan", "decoupled"], "take DiscreteSAC,"),
        (["native:Pendulum-v1", "--algorithm", "dqn"], "take SAC or TD3"),
    ],
)
def test_an_algorithm_that_cannot_take_the_actions_is_refused_before_anything_begins(
    words, told, tmp_path, capsys
):
    assert main(["run", *words, "--run-dir", str(tmp_path / "run")]) == 2
    shown = capsys.readouterr()
    assert told in shown.err
    assert shown.out == ""  # neither a stage nor the run's header
    assert not (tmp_path / "run").exists()
