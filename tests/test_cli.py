import json
import os
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from srl.api.cli import COMMANDS, extra_commands, main
from srl.config.experiment import load_experiment
from srl.core.errors import RunError, UserError
from srl.pools import make
from srl.record.checkpoint import Checkpoints
from srl.run.folder import create_run

COUNTS = {"env_steps": 300, "updates": 3}


def learner(width):
    return {
        "params": {"policy": {"Dense_0": {"kernel": np.ones((2, width), np.float32)}}},
        "optimizer": {"count": np.int32(1)},
        "observations": {"mean": np.arange(2.0)},
        "values": {"mean": np.float32(3)},
        "key": np.zeros(2, np.uint32),
    }


@pytest.fixture
def run_dir(tmp_path):
    """A run with the state of one policy at update 3 and at update 6."""
    folder = create_run(load_experiment("CartPole-v1", ["--seed", "9"]), tmp_path / "run")
    checkpoints = Checkpoints(folder.checkpoints)
    for version, width in ((3, 4), (6, 8)):
        counts = {**COUNTS, "updates": version}
        checkpoints.save(version, {"learners": {"policy": learner(width)}}, counts)
    checkpoints.close()
    return folder.path


def complaint(capsys, *words):
    """What is told to the user; it must be short, and the exit code 2."""
    assert main(words) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert len(output.err.splitlines()) <= 2
    return output.err


def exported(path):
    with safe_open(path, "numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()


def test_help_lists_every_command_and_loads_nothing_heavy():
    program = (
        "import sys; from srl.api.cli import main; main(['--help']);"
        "heavy = {'jax', 'flax', 'mujoco', 'rich', 'srl.extras'} & sys.modules.keys();"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    for name in COMMANDS:
        assert f"  {name} " in done.stdout


def test_a_folder_with_a_command_is_a_command_with_its_docstring_as_help(tmp_path):
    for name, file in (("my_extra", "command.py"), ("other", "more.py")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text('"""Do a thing.\n\nMore about it.\n"""\n')
        (tmp_path / name / file).touch()
    place = "srl.extras.my_extra.command:main"
    assert extra_commands(tmp_path) == {"my-extra": (place, "do a thing")}


def test_the_module_is_the_command_and_names_the_versions_that_it_runs_on():
    command = [sys.executable, "-X", "importtime", "-m", "srl", "--version"]
    done = subprocess.run(command, capture_output=True, text=True)
    own = metadata.version("srl-rl")
    words = [f"{name} {metadata.version(name)}" for name in ("jax", "numpy")]
    expected = f"srl {own}, python {platform.python_version()}, {', '.join(words)}"
    assert done.stdout.lower().strip() == expected
    assert re.search(r"\| +srl$", done.stderr, re.MULTILINE)
    assert not re.search(r"\| +(jax|numpy)$", done.stderr, re.MULTILINE)


@pytest.mark.parametrize("words", [["--help"], ["bench", "--help"], ["plan", "CartPole-v1"]])
def test_a_reader_that_leaves_is_no_error(words, tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "srl", *words]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_ctrl_c_that_comes_after_the_command_ends_the_process_without_a_traceback():
    program = "import atexit, os; atexit.register(os.kill, os.getpid(), 2); " + (
        "import sys; from srl.api.cli import main; sys.argv[1:] = ['--version']; sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (-2, "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(capsys, name):
    try:
        code = main([name, "--help"])
    except SystemExit as stop:
        code = stop.code
    assert code in (0, None)
    assert f"srl {name}" in capsys.readouterr().out


def test_help_on_a_target_shows_its_fields_and_their_values(capsys):
    assert main(["run", "CartPole-v1", "--help"]) == 0
    output = capsys.readouterr().out
    for text in ("--run-dir", "--num-envs", "--algorithm.learning-rate", "default: CartPole-v1"):
        assert text in output
    assert "Environments stepped together." in output


def test_a_dry_run_prints_the_resolved_experiment_and_stops(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["run", "CartPole-v1", "--num-envs", "3", "--dry-run", "--algorithm.clip=0.5"]
    assert main([*words, "--trackers", "none"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["trackers"] == []
    assert (values["env"], values["num_envs"]) == ("CartPole-v1", 3)
    assert values["algorithm"]["clip"] == 0.5
    assert values["plan"]["name"] == "replicated"
    assert values["plan"]["fragments"]["learners"]["replicas"] == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("rum", "unknown command 'rum'; did you mean run?"),
        ("zzz", "unknown command 'zzz'; there are run,"),
        ("run", "srl run needs an experiment file or an environment id first"),
        ("run --seed 3", "srl run needs an experiment file or an environment id first"),
        ("run none.py", "cannot read the experiment file none.py: No such file"),
        (
            "run native:CartPole-v1 --evaluation.options.gravity 1",
            "native:CartPole-v1: unknown option 'gravity'",
        ),
        ("plan CartPole-v1 --svg plan.png", "--svg is plan.png; expected a name that ends in .svg"),
        ("run Pendulum-v1 --gravity 3", "an option of the environment is --env.gravity; --help"),
        ("run CartPole-v1 --seed x", "--seed is 'x'; expected a whole number"),
        ("eval / --episodes 1.5", "--episodes: '1.5'; expected a whole number, such as 64"),
        (
            "run CartPole-v1 --plan inline --plan decoupled",
            "--plan is given twice, with 'inline' and 'decoupled'; give it once",
        ),
        ("run CartPole-v1 --num_envs=3 --num-envs 4", "--num-envs is given twice, with '3' and"),
        ("run CartPole-v1 --run-dir a --run-dir b", "--run-dir is given twice"),
        ("run CartPole-v1 --run-dir", "--run-dir: expected one argument"),
        ("run CartPole-v1 --compile", "--compile goes with --dry-run, on this machine"),
        ("run CartPole-v1 --run-dir /proc/run", "cannot write the run folder /proc/run"),
        ("resume", "the following arguments are required: RUN_DIR"),
        ("resume /", "/ is not a run folder"),
        (
            "resume / --env-steps x",
            "--env-steps: 'x'; expected a whole number, such as 64, 10_000 or 1e6",
        ),
        ("plan CartPole-v1 --jsn", "unknown option --jsn; did you mean --json?"),
        ("run CartPole-v1 --dry-rum", "unknown option --dry-rum; did you mean --dry-run?"),
        ("bench act CartPole-v1 --num-slot 8", "--num-slot; did you mean --num-slots?"),
        ("eval / --episode 9", "unknown option --episode; did you mean --episodes?"),
        ("eval / --n-eval-episodes=9", "--n-eval-episodes; srl calls it --episodes"),
        ("watch / --episode 9", "unknown option --episode; did you mean --episodes?"),
        ("export / out.onnx --polcy x", "unknown option --polcy; did you mean --policy?"),
        ("share / folder --versoin 3", "unknown option --versoin; did you mean --version?"),
        ("resume / --update 3", "unknown option --update; did you mean --updates?"),
        ("resume / --algorithm.width 3", "a resumed run keeps its settings, and `srl run"),
        ("top / --zzz", "unknown option --zzz; see srl top --help"),
        ("export / out.onnx more", "not expected: more; see srl export --help"),
        ("export / out.safetensors", "/ is not a run folder"),
        ("export / x.pt", ".safetensors and .onnx are offered; call it x.safetensors or x.onnx"),
        ("export / policy", "call it policy.safetensors or policy.onnx"),
    ],
)
def test_a_users_mistake_is_told_in_a_line(capsys, tmp_path, monkeypatch, words, told):
    monkeypatch.chdir(tmp_path)
    assert told in complaint(capsys, *words.split())


@pytest.mark.parametrize("more", [(), ("--dry-run",), ("--plan", "auto"), ("--plan", "inline")])
@pytest.mark.parametrize(
    ("env", "told"),
    [
        ("CartPol-v1", "has no environment 'CartPol-v1'; did you mean CartPole-v1?"),
        ("native:CartPol-v1", "did you mean native:CartPole-v1?"),
        ("pettingzoo:no_such_module", "No module named 'no_such_module'"),
        ("no_such_module:Env-v0", "No module named 'no_such_module'"),
        ("math:foo", "has no environment 'foo'; the module math has no such name either"),
        ("./x/y", "has no environment './x/y'; nor is there such a file"),
    ],
)
def test_a_wrong_id_is_told_before_anything_else(capsys, tmp_path, monkeypatch, env, told, more):
    monkeypatch.chdir(tmp_path)
    assert told in complaint(capsys, "run", env, *more)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        "CartPole-v1 --plan inline",
        "CartPole-v1 --plan auto",
        "CartPole-v1 --workers 2",
        "CartPole-v1 --plan inline --on slurm --dry-run",
        "vector:CartPole-v1 --plan inline",
        "envpool:CartPole-v1",
        "jax:gymnax:CartPole-v1",
        "native:CartPole-v1 --plan inline",
    ],
)
def test_an_algorithm_that_does_not_suit_is_reported_before_anything_starts(
    capsys, tmp_path, monkeypatch, words
):
    monkeypatch.chdir(tmp_path)
    told = complaint(capsys, "run", *words.split(), "--algorithm", "SAC")
    assert "SAC draws actions within bounds, and the action space is Discrete(2" in told
    assert list(tmp_path.iterdir()) == []


def test_an_algorithm_that_does_not_suit_is_reported_before_compiling(tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["run", "CartPole-v1", "--algorithm", "SAC", "--run-dir", str(run)]) == 2
    output = capsys.readouterr()
    assert "SAC draws actions within bounds" in output.err
    assert "compiling" not in output.out
    assert not run.exists()


UNMADE = """
import os, time

def hang(**_):
    open("began", "w").close()
    time.sleep(1000)

def crash_vector(num_envs):
    open("began", "w").close()
    os.abort()
"""


@pytest.mark.parametrize("env", ["unmade:hang", "vector:unmade:crash_vector"])
def test_an_environment_that_hangs_or_crashes_as_it_is_made_does_not_keep_the_start(
    env, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(make, "PROBE_SECONDS", 3.0)
    (tmp_path / "unmade.py").write_text(UNMADE)
    assert make.expect_environment(env, probe=True) is None
    assert (tmp_path / "began").exists()


IMPOSSIBLE = """
from srl import Experiment
from srl.envs.hide_and_seek import HideAndSeek
experiment = Experiment("impossible", HideAndSeek(scenario="full", hiders=77))
"""


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_impossible_options_of_an_environment_are_told_before_anything_else(
    capsys, tmp_path, monkeypatch, more
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "impossible.py").write_text(IMPOSSIBLE)
    assert "hiders" in complaint(capsys, "run", "impossible.py", *more)
    for words in (("native:CartPole-v1", "--workers", "2"), ("CartPole-v1", "--step-timeout", "3")):
        assert "does nothing for" in complaint(capsys, "run", *words, *more)
    assert not (tmp_path / "runs").exists()


RAISES = """
from srl import Experiment

def make():
    raise ValueError("no licence")

experiment = Experiment("raises", make)
"""


def test_a_dry_run_makes_one_environment(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raises.py").write_text(RAISES)
    assert main(["run", "raises.py", "--dry-run"]) == 1
    assert "making environment 0 raised ValueError: no licence" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "plan", "bench act", "bench train"])
def test_a_folder_in_place_of_an_experiment_is_told(run_dir, tmp_path, capsys, command):
    words = command.split()
    told = f"{run_dir} is the folder of a run: `srl resume {run_dir}` goes on with it"
    assert told in complaint(capsys, *words, str(run_dir))
    told = f"{tmp_path} is a folder of runs: `srl resume {tmp_path}` goes on with it"
    assert told in complaint(capsys, *words, str(tmp_path))
    plain = tmp_path / "plain"
    plain.mkdir()
    assert f"{plain} is a folder; give an experiment file, or" in complaint(
        capsys, *words, str(plain)
    )
    (plain / "mine.py").write_text("")
    assert f"such as {plain / 'mine.py'}" in complaint(capsys, *words, str(plain))


def test_a_folder_named_like_an_environment_does_not_hide_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "CartPole-v1").mkdir()
    assert main(["run", "CartPole-v1", "--dry-run"]) == 0


@pytest.mark.parametrize(
    ("error", "code"), [(UserError("x"), 2), (RunError("x"), 1), (KeyboardInterrupt(), 130)]
)
def test_errors_become_exit_codes(monkeypatch, error, code):
    def fail(_):
        raise error

    monkeypatch.setitem(sys.modules, "failing_command", type(sys)("failing_command"))
    sys.modules["failing_command"].call = fail  # type: ignore[attr-defined]
    monkeypatch.setitem(COMMANDS, "fail", ("failing_command:call", "fail"))
    assert main(["fail"]) == code


def test_an_exported_policy_has_its_networks_names_and_the_configuration(run_dir, tmp_path):
    output = tmp_path / "policy.safetensors"
    assert main(["export", str(run_dir.parent), str(output)]) == 0  # its only run is meant
    tensors, metadata = exported(output)
    assert {name: array.shape for name, array in tensors.items()} == {
        "policy/Dense_0/kernel": (2, 8),
        "observations/mean": (2,),
        "values/mean": (),
    }
    assert tensors["observations/mean"].dtype == np.float64
    assert json.loads(metadata["config"])["seed"] == 9
    assert (metadata["version"], metadata["env_steps"]) == ("6", "300")
    assert {path.name for path in tmp_path.iterdir()} == {"run", "policy.safetensors"}


def test_an_earlier_version_can_be_exported(run_dir, tmp_path, capsys):
    output = tmp_path / "policy.safetensors"
    words = ["export", str(run_dir), str(output), "--version"]
    assert main([*words, "3"]) == 0
    assert exported(output)[0]["policy/Dense_0/kernel"].shape == (2, 4)
    capsys.readouterr()
    assert "there is no version 4" in complaint(capsys, *words, "4")


def test_several_policies_are_told_apart_by_name(tmp_path):
    folder = create_run(load_experiment("CartPole-v1"), tmp_path / "run")
    checkpoints = Checkpoints(folder.checkpoints)
    teams = {"hiders": learner(4), "seekers": learner(8)}
    checkpoints.save(3, {"learners": teams}, COUNTS, wait=True)
    checkpoints.close()
    output = tmp_path / "policies.safetensors"
    assert main(["export", str(folder.path), str(output)]) == 0
    tensors, metadata = exported(output)
    assert tensors["hiders/policy/Dense_0/kernel"].shape == (2, 4)
    assert tensors["seekers/observations/mean"].shape == (2,)
    assert json.loads(metadata["policies"]) == ["hiders", "seekers"]


def test_an_export_that_cannot_be_written_is_told(run_dir, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    output = str(tmp_path / "file" / "policy.safetensors")
    assert "there is no folder" in complaint(capsys, "export", str(run_dir), output)
    missing = tmp_path / "missing"
    told = f"there is no folder {missing / 'dir'}; make it first"
    words = ["export", str(run_dir), str(missing / "dir" / "x.safetensors")]
    assert told in complaint(capsys, *words)
    assert not missing.exists()
    assert "there is no checkpoint" in complaint(
        capsys, "export", str(empty_run(tmp_path)), str(tmp_path / "out.safetensors")
    )


def empty_run(tmp_path) -> Path:
    return create_run(load_experiment("CartPole-v1"), tmp_path / "empty").path


def test_a_full_disk_is_an_error_of_a_command_that_trains_nothing(tmp_path):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "srl", "bench", "--help"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert done.returncode != 0
