"""Folders of strangers: nothing that they name is imported or executed unless it is trusted."""

import json
import shutil
import sys
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

import srl
from srl import (
    Evaluation,
    Experiment,
    Fixed,
    Fragment,
    Lesson,
    Mixture,
    Plan,
    Schedule,
    SelfPlay,
    Tracking,
    UserError,
)
from srl.algorithms import PPO, SAC
from srl.api.cli import main
from srl.config.experiment import load_experiment
from srl.core.config_values import config_values, made_from
from srl.envs.hide_and_seek import HideAndSeek
from srl.networks import MLP
from srl.pools import NamedEnv
from srl.pools.outside import outside_module
from srl.record.trust import is_own, is_signed, only_settings, signed, unsigned
from tests.small_runs import CARTPOLE, resolved, save

EXPERIMENT = """
from pathlib import Path
from srl import Experiment
from srl.algorithms import PPO
from srl.networks import MLP

Path(__file__).with_name("executed").touch()
experiment = Experiment(
    "shared", "native:CartPole-v1", num_envs=8, algorithm=PPO(network=MLP(width=16))
)
"""
EVIL = """
from dataclasses import dataclass
from pathlib import Path
from srl.algorithms import PPO

Path(__file__).with_name("imported").touch()

@dataclass(frozen=True)
class Mine(PPO):
    pass
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of an experiment file, of which there is a checkpoint."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "shared.py").write_text(EXPERIMENT)
    return save(load_experiment(str(folder / "shared.py")), folder / "run").path


@pytest.fixture
def run(made, tmp_path, monkeypatch):
    """The same as a stranger's: of somebody with another key; beside it is a module `evil_one`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "evil_one.py").write_text(EVIL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "evil_one", raising=False)
    copied = shutil.copytree(made, tmp_path / "run")
    yield copied
    sys.modules.pop("evil_one", None)


def change(run, edit):
    """Changes the configuration of a run."""
    config = json.loads((run / "config.json").read_text())
    edit(config)
    (run / "config.json").write_text(json.dumps(config))


def names_evil(config):
    config["experiment"]["algorithm"]["type"] = "evil_one:Mine"


def imported(run):
    """Whether code of the stranger's has run."""
    return [name for name in ("imported", "executed") if (run.with_name(name)).exists()] + [
        file.name for file in run.glob("executed")
    ]


# ---- the own ----


def test_a_run_is_the_users_own_wherever_it_is_moved_to(made, tmp_path):
    moved = shutil.copytree(made, tmp_path / "moved")
    assert is_own(json.loads((moved / "config.json").read_text()))


def test_a_configuration_that_was_changed_is_not_the_users_own(made, tmp_path):
    moved = shutil.copytree(made, tmp_path / "moved")
    change(moved, names_evil)
    assert not is_own(json.loads((moved / "config.json").read_text()))


def test_the_key_is_for_its_user_alone_and_one_that_others_can_read_counts_for_nothing(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    config = signed({"a": 1.5})
    key = tmp_path / "srl" / "key"
    assert (key.stat().st_mode & 0o777, len(key.read_bytes())) == (0o600, 32)
    assert [*key.parent.iterdir()] == [key]
    assert is_own(config)
    assert not is_own({**config, "signature": "ä"})
    assert not is_own({"a": 1.5})
    key.chmod(0o640)
    assert not is_own(config)


def test_a_user_without_a_place_for_the_key_is_warned(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert unsigned(signed({"a": 1})) == {"a": 1}
    assert not is_signed(signed({"a": 1}))
    assert "later commands on this run need --trust" in caplog.text


@pytest.mark.parametrize("target", ["native:CartPole-v1", ""])
def test_a_configuration_that_was_changed_by_hand_is_reported_as_that(target, tmp_path, capsys):
    made = load_experiment(target) if target else resolved(CARTPOLE)
    run = save(made, tmp_path / "run").path
    change(run, lambda config: config["experiment"]["algorithm"]["network"].update(widths=[9]))
    told = f"{run / 'config.json'} was changed by hand: undo the change, or start a new run"
    for command in ("eval", "resume"):
        assert main([command, str(run)]) == 2
        assert told in capsys.readouterr().err
    with pytest.raises(UserError, match=r"another network.*config\.json was changed by hand"):
        srl.load(run)
    assert main(["resume", str(run), "--trust"]) == 2
    errors = capsys.readouterr().err
    assert ("widths=[9], where the run began with []: it was changed by hand" in errors) == bool(
        target
    )
    assert "was changed by hand" in errors


# ---- a stranger's ----


def test_a_strangers_policies_act_without_their_code(run):
    agent = srl.load(run)
    assert agent.act(np.zeros(4))[0] in (0, 1)
    assert imported(run) == []


def test_a_strangers_run_is_evaluated_without_its_code(run, capsys):
    assert main(["eval", str(run), "--episodes", "2", "--against", str(run)]) == 0
    assert imported(run) == []
    assert main(["eval", str(run), "--episodes", "2", "--trust"]) == 0
    assert imported(run) == ["executed"]


def test_an_algorithm_outside_of_srl_is_imported_only_with_trust(run):
    change(run, names_evil)
    with pytest.raises(UserError, match=r"run: its config\.json names evil_one, .*--trust"):
        srl.load(run)
    assert imported(run) == []
    srl.load(run, trust=True)
    assert imported(run) == ["imported"]


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("experiment:Mine", "its experiment.py"),
        ("srl.__main__:main", "srl.__main__"),
        ("srl.api.cli:main", "srl.api.cli"),
        ("os:system", "os"),
        ("srl.algorithms_of_mine:PPO", "srl.algorithms_of_mine"),
    ],
)
def test_nothing_but_settings_is_imported_of_srl_itself(run, kind, named):
    def edit(config):
        config["experiment"]["algorithm"]["network"]["type"] = kind

    change(run, edit)
    with pytest.raises(UserError, match=rf"names {named}, which is not part of srl"):
        srl.load(run)
    assert imported(run) == []


def test_a_class_is_taken_from_its_own_module_alone(run):
    def edit(config):
        config["experiment"]["algorithm"]["type"] = "srl.config.experiment:PPO"

    change(run, edit)
    with pytest.raises(UserError, match=r"srl\.config\.experiment:PPO is no class of settings"):
        srl.load(run)


COMMANDS = (
    ("eval", "RUN"),
    ("eval", "RUN", "--against", "untrained"),
    ("watch", "RUN"),
    ("share", "RUN", "OUT"),
    ("resume", "RUN"),
)


@pytest.mark.parametrize(
    ("part", "command"),
    [
        *(("algorithm", command) for command in (*COMMANDS, ("export", "RUN", "OUT.onnx"))),
        *(("env", command) for command in COMMANDS),  # a graph needs none
    ],
)
def test_commands_name_the_module_and_the_option(run, tmp_path, part, command, capsys):
    def edit(config):
        if part == "env":
            config["experiment"]["env"] = "evil_one:Env-v0"
        else:
            names_evil(config)

    change(run, edit)
    paths = {"RUN": run, "OUT": tmp_path / "out", "OUT.onnx": tmp_path / "out.onnx"}
    assert main([str(paths.get(word, word)) for word in command]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert "--trust" in told
    assert "evil_one" in told or command[0] == "resume"
    assert imported(run) == []


@pytest.mark.parametrize(
    "parts",
    [
        {"curriculum": (Lesson({"wrappers": ["evil_one:Wrapper"]}, "updates > 1"),)},
        {"evaluation": Evaluation(options={"wrappers": ["evil_one:Wrapper"]})},
        {
            "env": NamedEnv("mixture:a=CartPole-v1"),
            "curriculum": (Lesson({"tasks": {"a": "evil_one:Env-v0"}}, "updates > 1"),),
        },
        {"env": Mixture({"a": NamedEnv("CartPole-v1", {"wrappers": ["evil_one:Wrapper"]})})},
    ],
    ids=["lesson", "evaluation", "lesson's tasks", "task"],
)
def test_a_strangers_environment_has_no_options_that_import(run, parts, capsys):
    values = config_values(replace(Experiment("shared", "CartPole-v1"), **parts))
    values = json.loads(json.dumps({name: values[name] for name in ("env", *parts)}))
    change(run, lambda config: config["experiment"].update(values))
    assert main(["eval", str(run)]) == 2
    assert "names evil_one:" in capsys.readouterr().err
    assert imported(run) == []


def test_a_run_of_srl_train_goes_on_in_a_strangers_folder_only_with_trust(run):
    experiment = load_experiment("native:CartPole-v1").experiment
    with pytest.raises(UserError, match=r"does not know the run .* as yours"):
        srl.train(experiment, run, resume=True)
    with pytest.raises(UserError, match=r"does not know the run .* as yours"):
        srl.Run(run).resume()


def test_a_strangers_fixed_policy_is_imported_only_with_trust(run):
    change(run, names_evil)
    with pytest.raises(UserError, match=r"policies\['\*'\]: .* names evil_one, .*--trust"):
        Fixed(run).pinned("policies['*']")
    assert imported(run) == []
    assert Fixed(run, trust=True).pinned("policies['*']").version == 7


def test_a_shared_folder_has_no_signature(made, tmp_path):
    out = tmp_path / "shared"
    assert main(["share", str(made), str(out), "--episodes", "2"]) == 0
    assert "signature" not in json.loads((out / "config.json").read_text())


class Env(gymnasium.Env):
    pass


@pytest.mark.parametrize(
    ("env", "module"),
    [
        ("CartPole-v1", ""),
        ("ALE/Pong-v5", ""),
        ("native:CartPole-v1", ""),
        ("native:libwalk.so:Walk-v0", "libwalk.so:Walk-v0"),
        ("native:walk.so", "walk.so"),
        ("envpool:Pong-v5", ""),
        ("atari:Pong", ""),
        ("jax:gymnax:CartPole-v1", ""),
        ("jax:evil:maker", "evil"),
        ("vector:CartPole-v1", ""),
        ("vector:evil:maker", "evil:maker"),
        ("evil:Env-v0", "evil:Env-v0"),
        ("os.abort", "os.abort"),
        ("pettingzoo:mpe2.simple_tag_v3", "pettingzoo:mpe2.simple_tag_v3"),
        (Env, __name__),
        (NamedEnv("CartPole-v1", {"wrappers": ("TimeLimit(max_episode_steps=9)",)}), ""),
        (NamedEnv("CartPole-v1", {"wrappers": ("evil:Wrapper",)}), "evil:Wrapper"),
        (NamedEnv("evil:Env-v0"), "evil:Env-v0"),
        ("mixture:a=CartPole-v1,b=evil:Env-v0", "evil:Env-v0"),
        (Mixture({"a": "CartPole-v1", "b": NamedEnv("Pendulum-v1", {"g": 9.0})}), ""),
        (Mixture({"a": NamedEnv("CartPole-v1", {"wrappers": ["evil:Wrapper"]})}), "evil:Wrapper"),
        (Mixture({"a": "CartPole-v1", "b": Env}), __name__),
        (NamedEnv("mixture:a=CartPole-v1", {"a.wrappers": ["evil:Wrapper"]}), "evil:Wrapper"),
        (NamedEnv("mixture:a=CartPole-v1", {"tasks": {"a": "evil:Env-v0"}}), "evil:Env-v0"),
        (NamedEnv("mixture:a=CartPole-v1", {"shares": "2"}), ""),
    ],
)
def test_what_an_environment_is_made_of_outside_of_srl_is_known_from_its_id(env, module):
    assert outside_module(env) == module


def test_all_settings_that_ship_are_loaded_from_a_strangers_folder():
    classes = [Experiment, Evaluation, Fixed, Plan, Fragment, Schedule, SelfPlay, Tracking, MLP]
    for kind in [*classes, PPO, SAC, HideAndSeek, Lesson, Mixture]:
        assert only_settings(kind.__module__)


def test_a_function_is_taken_only_of_the_module_that_defines_it():
    schedule = "srl.core.schedule"
    values = {"type": f"{schedule}:Schedule", "points": [], "function": f"{schedule}:math.isinf"}
    with pytest.raises(UserError, match="is defined in math; srl did not record it so"):
        made_from(values, import_module=only_settings)
