import dataclasses
import json
import subprocess
import sys

import pytest

from srl.algorithms import PPO
from srl.config.experiment import Experiment, load_experiment
from srl.core.config_values import config_values
from srl.core.errors import UserError
from srl.dataflow import Fragment, Plan, plans
from srl.networks import MLP
from srl.pools import NamedEnv

FILE = '''
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from srl.algorithms import PPO
from srl.config.experiment import Experiment
from srl.networks import MLP
from srl.pools import EnvConfig


@dataclass(frozen=True)
class Game(EnvConfig):
    """A game."""

    scenario: Literal["small", "full"] = "small"
    """Which field is played on."""
    lidar: bool = True
    speed: float = 1.0


def make():
    return None


experiment = Experiment(
    name="game",
    env=Game(),
    policies={"hider*": "hiders", "seeker*": "seekers"},
    algorithm=PPO(network=MLP()),
)
made = Experiment(name="made", env=make)
plain = Experiment(name="plain", env="CartPole-v1")
number = 3
'''


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "game.py"
    path.write_text(FILE)
    return path


def load(target, *words):
    return load_experiment(str(target), words).experiment


def failure(target, *words):
    with pytest.raises(UserError) as caught:
        load(target, *words)
    assert len(str(caught.value).splitlines()) <= 2
    return str(caught.value)


def test_a_file_gives_its_experiment_or_another_by_name(file):
    assert load(file).name == "game"
    assert load(f"{file}:made").name == "made"


def test_an_environment_id_gives_a_default_experiment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = Experiment(
        name="CartPole-v1",
        env="CartPole-v1",
        algorithm=PPO(minibatches=16),
        plan=plans.replicated(1),
    )
    assert load("CartPole-v1") == expected
    assert load("native:CartPole-v1").name == "native-CartPole-v1"
    assert load("my_module:Env-v0").env == "my_module:Env-v0"


def test_overrides_reach_every_level_and_keep_types(file):
    words = "--num-envs=32 --seed 3 --algorithm.learning-rate 3e-4 --algorithm.network.width 8"
    words += " --env.scenario full --env.no-lidar --policies.hider* same --updates 5 --env.speed 2"
    experiment = load(file, *words.split())
    assert experiment.num_envs == 32
    assert experiment.algorithm == PPO(learning_rate=3e-4, network=MLP(width=8), minibatches=8)
    assert (experiment.env.scenario, experiment.env.lidar) == ("full", False)
    assert isinstance(experiment.env.speed, float)
    assert experiment.policies == {"hider*": "same", "seeker*": "seekers"}
    assert experiment.updates == 5
    assert type(experiment) is Experiment


@pytest.mark.parametrize(("text", "value"), [("1e6", 10**6), ("10_000", 10**4), ("2e5", 200_000)])
def test_a_count_may_be_written_with_an_exponent_or_underscores(text, value):
    experiment = load("CartPole-v1", "--env-steps", text)
    assert experiment.env_steps == value
    assert type(experiment.env_steps) is int
    assert load("CartPole-v1", f"--updates={text}").updates == value


@pytest.mark.parametrize("words", ["--env.no-lidar", "--env.lidar false", "--env.lidar=False"])
def test_a_switch_is_turned_off_by_its_name_or_by_a_value(file, words):
    experiment = load(file, *words.split(), "--seed", "2")
    assert (experiment.env.lidar, experiment.seed) == (False, 2)


def test_an_option_takes_as_many_values_as_its_field_holds():
    words = ["--plan.learners.nodes", "step", "act", "collect", "learn", "--seed", "2"]
    experiment = load("CartPole-v1", *words)
    assert experiment.plan.fragments["learners"].nodes == ("step", "act", "collect", "learn")
    assert experiment.seed == 2


ENVIRONMENT = """
import gymnasium

class Walk(gymnasium.Env):
    pass
"""


def test_a_file_with_an_environment_and_no_experiment_is_answered_with_what_to_write(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_envs.py").write_text(ENVIRONMENT)
    told = failure("my_envs.py")
    assert (
        "my_envs.py has no `experiment`; `srl run my_envs:Walk` trains on the environment" in told
    )
    assert "or add `experiment = Experiment(name=..., env=Walk)` to it" in told
    monkeypatch.chdir("/")
    assert "; add `experiment = Experiment(name=..., env=Walk)`" in failure(tmp_path / "my_envs.py")


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        ("x = 1 / 0", "line 2, imported by .*exp.py, raised ZeroDivisionError"),
        ("def f(:", "line 2, imported by .*exp.py, raised SyntaxError"),
        ("import no_such_module", "line 2, imported by .*exp.py, raised ModuleNotFoundError"),
    ],
)
def test_a_mistake_in_an_imported_file_is_placed_there(tmp_path, monkeypatch, mistake, told):
    name = f"imported_{abs(hash(mistake))}"
    (tmp_path / f"{name}.py").write_text(f"\n{mistake}\n")
    (tmp_path / "exp.py").write_text(f"import {name}\n")
    with pytest.raises(UserError, match=rf"{name}\.py, {told}"):
        load_experiment(str(tmp_path / "exp.py"))


def test_an_id_can_be_overridden_by_an_id(file):
    assert load(f"{file}:plain", "--env", "Pendulum-v1").env == "Pendulum-v1"
    assert load("CartPole-v1", "--env", "Pendulum-v1").env == "Pendulum-v1"


@pytest.mark.parametrize("target", ["CartPole-v1", "plain"])
def test_an_id_takes_the_options_of_its_environment(file, target):
    target = f"{file}:plain" if target == "plain" else target
    words = "--env.sutton-barto-reward true --num-envs 8 --env.limit=-3 --env.name abc"
    experiment = load(target, *words.split())
    options = {"sutton_barto_reward": True, "limit": -3, "name": "abc"}
    assert experiment.env == NamedEnv("CartPole-v1", options)
    assert experiment.num_envs == 8
    assert plans.usual(experiment, 2, accelerated=False) == experiment.plan


def test_options_belong_to_the_id_they_were_given_for(file):
    text = 'env=NamedEnv("CartPole-v1", {"sutton_barto_reward": True})'
    source = FILE.replace('env="CartPole-v1"', text)
    file.write_text(source.replace("import EnvConfig", "import EnvConfig, NamedEnv"))
    more = load(f"{file}:plain", "--env.other", "2").env
    assert more == NamedEnv("CartPole-v1", {"sutton_barto_reward": True, "other": 2})
    words = ["--env", "native:Pendulum-v1"]
    assert load(f"{file}:plain", *words).env == "native:Pendulum-v1"
    assert load(f"{file}:plain", *words, "--env.g", "9").env == NamedEnv(words[1], {"g": 9})


@pytest.mark.parametrize("words", ["--env.gravity", "--env.gravity --seed 1", "--env"])
def test_an_option_of_an_id_without_a_value_is_told(words):
    assert "has no value" in failure("CartPole-v1", *words.split())


def test_a_callable_survives_overrides_of_other_fields(file):
    experiment = load(f"{file}:made", "--seed", "4")
    assert experiment.seed == 4
    assert experiment.env() is None


def test_env_steps_on_the_command_line_replaces_updates_in_the_file(tmp_path):
    path = tmp_path / "short.py"
    path.write_text(
        "from srl.config.experiment import Experiment\n"
        "experiment = Experiment(name='short', env='CartPole-v1', updates=3)\n"
    )
    assert load(path, "--env-steps", "500").updates is None
    assert load(path, "--seed", "1").updates == 3


def test_plans_are_named_and_their_fragments_sized_on_the_command_line(file):
    plan = load(file, *"--plan decoupled --plan.policies.gpus .5 --plan.actors.replicas 4".split())
    assert plan.plan == Plan(
        "decoupled",
        {
            "actors": Fragment(("step", "collect"), 4),
            "policies": Fragment(("act",), gpus=0.5),
            "learner": Fragment(("learn",)),
        },
    )
    assert load(file, "--plan", "auto").plan == "auto"
    assert load(file, "--max-staleness", "none").max_staleness is None
    assert load(file, "--max-staleness=4").max_staleness == 4


def test_self_play_is_turned_on_by_its_options(file):
    assert load_experiment(str(file)).experiment.self_play is None
    words = ["--self-play.past", "0.3", "--self-play.choice=recent"]
    self_play = load_experiment(str(file), words).experiment.self_play
    assert (self_play.past, self_play.choice, self_play.keep) == (0.3, "recent", 20)
    with pytest.raises(UserError, match=r"unknown option --self-play.psat; did you mean"):
        load_experiment(str(file), ["--self-play.psat", "0.3"])


def test_an_experiment_without_a_plan_gets_the_usual_one_for_its_environment():
    assert load("CartPole-v1").plan == plans.replicated(1)
    assert load("native:CartPole-v1").plan == plans.fused()
    assert load("CartPole-v1", "--env=native:CartPole-v1").plan == plans.fused()
    assert load("native:CartPole-v1", "--env", "CartPole-v1").plan == plans.replicated(1)


def test_the_plan_stands_in_the_values_of_a_run():
    values = config_values(load("CartPole-v1", "--plan", "inline"))["plan"]
    assert values["fragments"]["actors"]["nodes"] == ["step", "act", "collect"]
    assert json.loads(json.dumps(values)) == values


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--num-env 3", "unknown option --num-env; srl calls it --num-envs"),
        ("--learning-rate 1", "did you mean --algorithm.learning-rate?"),
        ("--env.scenaro full", "did you mean --env.scenario?"),
        ("--zzzzzz 1", "unknown option --zzzzzz; --help lists"),
        ("--seed x", "--seed is 'x'; expected a whole number, such as 64, 10_000 or 1e6"),
        ("--env-steps 1.5", "--env-steps is '1.5'; expected a whole number"),
        ("--updates inf", "--updates is 'inf'; expected none or a whole number"),
        ("--algorithm.clip big", "--algorithm.clip is 'big'; expected a number, such as 0.5"),
        ("--env.scenario big", "--env.scenario is 'big'; expected small, full"),
        ("--num-envs", "--num-envs has no value; give --num-envs INT"),
        ("--num-envs --seed 3", "--num-envs has no value; give --num-envs INT"),
        ("--env.lidar 3", "not expected: 3; a switch is --NAME or --no-NAME"),
        ("--env.lidar=3", "--env.lidar is '3'; expected true, false"),
        ("stray", "not expected: stray"),
        ("--updates 3 --env-steps 3", "--env-steps and --updates were both given"),
        ("--num-envs 0", "num_envs is 0; expected a whole number from 1 up"),
        ("--num-envs 2147483648", "expected a whole number from 1 to 2147483647"),
        ("--env-steps 0", "env_steps is 0; expected a whole number from 1 up"),
        ("--env-steps 1e17", "expected a whole number from 1 to 9007199254740992"),
        ("--minutes 0", "minutes is 0.0; expected a number from 0.001 up, or none"),
        ("--num-envs 1099511627776", "num_envs is 1099511627776; expected a whole number"),
        ("--threads 1099511627776", "threads is 1099511627776; expected"),
        ("--workers 1099511627776", "workers is 1099511627776; expected"),
        ("--step-timeout 1e300", "step_timeout is 1e+300; expected"),
        ("--env-steps 1000000000000000000000", "env_steps is 1000000000000000000000; expected"),
        ("--env-steps 9007199254740992", "9007199254740992; expected at most"),
        ("--updates 1099511627776", "updates is 1099511627776; expected"),
        ("--algorithm.unroll-length 1099511627776", "unroll_length is 1099511627776; expected"),
        ("--env-steps -1", "env_steps is -1; expected"),
        ("--updates 0", "updates is 0; expected"),
        ("--seed -1", "seed is -1; expected"),
        ("--seed 4294967296", "seed is 4294967296; expected a whole number from 0 to 4294967295"),
        (
            "--algorithm.unroll-length 0",
            "algorithm.unroll_length is 0; expected a whole number from 1 up",
        ),
        ("--algorithm.discount 5", "algorithm.discount is 5.0; expected a number from 0 to 1"),
        ("--algorithm.learning-rate nan", "algorithm.learning_rate is nan; expected a number"),
        ("--algorithm.gae-lambda=-0.1", "algorithm.gae_lambda is -0.1"),
        (
            "--algorithm.initial-log-std -99",
            "algorithm.initial_log_std is -99.0; expected a number from -10 to 10",
        ),
        (
            "--algorithm.network.memory 8 --algorithm.chunk 5",
            "PPO with unroll_length=32, chunk=5 and a network with memory: chunk must divide",
        ),
        ("--algorithm td3 --algorithm.noise 0.1", "noise is '0.1'; expected 2 values: FLOAT FLOAT"),
        ("--algorithm.network.widths 400,300", "put spaces between its values, not commas"),
        ("--algorithm dqn --algorithm.value-range 10", "expected 2 values: FLOAT FLOAT"),
        ("--algorithm.replay 10", "--algorithm.replay is a setting of DQN, R2D2, SAC, DiscreteSAC"),
        ("--algorithm.hindsight.k 4", "--algorithm.hindsight is a setting of DQN, R2D2, SAC, D"),
        (
            "--algorithm dqn --algorithm.hindsight true",
            "give a part of it, such as --algorithm.hin",
        ),
        ("--algorithm.network 64", "give a part of it, such as --algorithm.network.memory"),
        ("--plan auto --plan.actors.replicas 4", "which chooses such numbers itself"),
        ("--plan central --plan.policies.replicas 4", "take --plan decoupled or serving"),
        ("--team-reward sum", "--team-reward is no option; give team_reward in an experiment file"),
        ("--checkpoint-minutes -2", "checkpoint_minutes is -2.0; expected"),
        ("--name ../up", "name is '../up'; expected letters"),
        ("--plan decopled", "there is no plan 'decopled'; did you mean decoupled?"),
        ("--plan inline --plan.actor.replicas 4", "did you mean --plan.actors.replicas?"),
        ("--plan inline --plan.actors.replicas 0", "plan.actors.replicas is 0; expected a whole"),
        ("--plan inline --plan.actors.replicas 3", "64 environments cannot be divided into 3"),
        ("--plan fused", "only native environments can be stepped from inside a program"),
        ("--plan inline --groups 3 --num-envs 9", "3 groups cannot be divided among the 2"),
        ("--max-staleness -1", "max_staleness is -1; expected"),
    ],
)
def test_a_wrong_override_is_told_in_a_line(file, words, told):
    assert told in failure(file, *words.split())


def test_overriding_a_callable_says_where_to_change_it(file):
    for words in (["--env", "CartPole-v1"], ["--env.speed", "3"]):
        told = "env is a function; change it in the experiment file"
        assert told in failure(f"{file}:made", *words)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"num_envs": 2.5}, "num_envs is 2.5"),
        ({"num_envs": True}, "num_envs is True"),
        ({"env": 3}, "env is 3; expected an id"),
        ({"env": ""}, "env is ''"),
        ({"algorithm": "ppo"}, "algorithm is 'ppo'; expected an algorithm such as PPO()"),
        ({"policies": {}}, "policies is {}"),
        ({"policies": {"*": "a/b"}}, "policies['*'] is 'a/b'"),
        ({"keep_checkpoints": 0}, "keep_checkpoints is 0"),
    ],
)
def test_values_that_cannot_be_are_refused(change, told):
    experiment = dataclasses.replace(Experiment(name="a", env="CartPole-v1"), **change)
    with pytest.raises(UserError) as caught:
        experiment.validate()
    assert told in str(caught.value)


def test_a_class_in_place_of_a_configuration_is_told(file):
    file.write_text(FILE.replace("env=Game()", "env=Game"))
    assert "env is the class Game; call it: Game()" in failure(file)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("x = 1 / 0", "game.py, line 2, raised ZeroDivisionError: division by zero"),
        ("import no_such_module", "game.py, line 2, raised ModuleNotFoundError"),
        ("def f(:", "game.py, line 2, raised SyntaxError"),
        ("raise SystemExit('no')", "game.py, line 2, raised SystemExit: no"),
        (
            "from srl.algorithms import PPO; PPO(lr=1)",
            "game.py, line 2: PPO has no setting lr; srl calls it learning_rate",
        ),
    ],
)
def test_a_file_that_raises_is_told_with_its_line_and_leaves_no_trace(tmp_path, line, told):
    path = tmp_path / "game.py"
    path.write_text("# an experiment\n" + line + "\n")
    before = list(sys.path), {name for name in sys.modules if name.startswith("srl_experiment")}
    assert told in failure(path)
    after = list(sys.path), {name for name in sys.modules if name.startswith("srl_experiment")}
    assert before == after


def test_a_file_without_an_experiment_lists_those_it_has(file, tmp_path):
    assert "has no `other`; it has experiment, made, plain" in failure(f"{file}:other")
    assert "`number` in" in failure(f"{file}:number")
    (tmp_path / "empty.py").write_text("")
    assert "add `experiment = Experiment(" in failure(tmp_path / "empty.py")


def test_a_missing_file_is_told(tmp_path):
    assert "cannot read the experiment file" in failure(tmp_path / "none.py")
    assert "neither an experiment file nor an environment id" in failure("")


def test_a_file_imports_its_neighbours(tmp_path):
    (tmp_path / "neighbour_of_experiment.py").write_text("ENV = 'CartPole-v1'\n")
    path = tmp_path / "near.py"
    path.write_text(
        "from neighbour_of_experiment import ENV\n"
        "from srl.config.experiment import Experiment\n"
        "experiment = Experiment(name='near', env=ENV)\n"
    )
    assert load(path).env == "CartPole-v1"


def test_two_files_of_the_same_name_do_not_meet(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same.py").write_text(
            "from srl.config.experiment import Experiment\n"
            f"experiment = Experiment(name='{name}', env='CartPole-v1')\n"
        )
    assert load(tmp_path / "one" / "same.py").name == "one"
    assert load(tmp_path / "two" / "same.py").name == "two"


def test_resolved_values_are_json_with_the_types(file):
    values = config_values(load(file, "--env.scenario", "full"))
    assert json.loads(json.dumps(values)) == values
    assert values["env"] == {
        "type": "experiment:Game",
        "scenario": "full",
        "lidar": True,
        "speed": 1.0,
    }
    assert values["algorithm"]["network"]["type"] == "srl.networks.mlp:MLP"
    assert config_values(load(f"{file}:made"))["env"] == "experiment:make"


def test_loading_an_experiment_imports_no_jax(file):
    program = (
        "import sys; from srl.config.experiment import load_experiment;"
        "from srl.core.config_values import config_values;"
        f"config_values(load_experiment({str(file)!r}, ['--seed', '1']).experiment);"
        "heavy = {'jax', 'flax', 'optax', 'tensorboardX', 'rich.progress', 'mujoco'};"
        "sys.exit(str(heavy & sys.modules.keys()) if heavy & sys.modules.keys() else 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
