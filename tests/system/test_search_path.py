"""What srl's processes import: from an ordinary install, and from an editable one."""

import importlib.util
import shutil
import subprocess
import sys
import textwrap
import venv
from pathlib import Path

import pytest

import srl

ROOT = Path(__file__).parents[2]
SECONDS = 600  # on a machine that is busy


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory):
    """The programs of an environment into which a wheel of srl was installed."""
    folder = tmp_path_factory.mktemp("ordinary")
    venv.create(folder / "venv", symlinks=True)
    pip, python = [sys.executable, "-m", "pip"], folder / "venv/bin/python"
    settings = ["wheel.cmake=false", f"build-dir={folder / 'build'}"]
    only_python = [f"--config-settings={x}" for x in settings]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", *only_python, "-w", folder, ROOT]
    subprocess.run([str(word) for word in build], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    install = [*pip, "--python", python, "install", "--no-deps", "--no-index", wheel]
    subprocess.run([str(word) for word in install], check=True, capture_output=True)
    (packages,) = folder.glob("venv/lib/python*/site-packages")
    shutil.copy(importlib.util.find_spec("srl._core").origin, packages / "srl")
    (own,) = Path(sys.executable).parents[1].glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{own}\n")  # whose own .pth files do nothing then
    return python.parent


@pytest.fixture(params=["ordinary", pytest.param("editable", marks=pytest.mark.slow)])
def programs(request):
    """A folder with the programs `python` and `srl`."""
    if request.param == "ordinary":
        return request.getfixturevalue("ordinary")
    return Path(sys.executable).parent


HIDING = ("types", "random", "logging", "json", "jax", "gymnasium", "numpy", "zmq")


@pytest.fixture
def folder(tmp_path):
    """An experiment with modules of its own, beside files named like what srl is and imports."""
    for name in HIDING:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('the wrong {name}')\n")
    (tmp_path / "srl").mkdir()
    (tmp_path / "srl/__init__.py").write_text("raise SystemExit('the wrong srl')\n")
    (tmp_path / "envs").mkdir()  # as a folder of srl's sources is called
    (tmp_path / "envs/__init__.py").touch()
    (tmp_path / "envs/mine.py").write_text(
        textwrap.dedent(
            """
            import gymnasium
            import numpy as np
            from gymnasium import spaces

            class Mine(gymnasium.Env):
                observation_space = spaces.Box(-1, 1, (2,), np.float32)
                action_space = spaces.Discrete(2)

                def reset(self, *, seed=None, options=None):
                    super().reset(seed=seed)
                    from needed_later import START
                    self.steps = START
                    return np.zeros(2, np.float32), {}

                def step(self, action):
                    self.steps += 1
                    return np.zeros(2, np.float32), float(action), False, self.steps > 9, {}
            """
        )
    )
    (tmp_path / "needed_later.py").write_text("START = 3\n")
    (tmp_path / "mine.py").write_text(
        "from envs.mine import Mine\n"
        "from srl import Experiment\n"
        "from srl.algorithms import PPO\n"
        "experiment = Experiment(name='mine', env=Mine, num_envs=2, updates=2,\n"
        "                        algorithm=PPO(unroll_length=8))\n"
    )
    return tmp_path


def succeed(folder, *command):
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


IN_PROCESSES = ("--plan", "inline", "--workers", "1", "--run-dir", "run")


def test_workers_import_what_is_installed_and_then_what_lies_beside_the_experiment(
    programs, folder
):
    succeed(folder, programs / "srl", "run", "mine.py", *IN_PROCESSES)
    assert (folder / "run/metrics.jsonl").exists()


def test_the_package_run_as_a_program_imports_the_same(programs, folder):
    (folder / "types.py").unlink()  # Python itself takes this before srl is there
    shutil.rmtree(folder / "srl")  # and with -m any other package; a checkout's is our own
    shutil.copytree(ROOT / "srl", folder / "srl")
    (folder / "srl/api/cli.py").write_text("raise SystemExit('the wrong srl')\n")
    text = succeed(folder, programs / "python", "-m", "srl", "--version")
    assert text == succeed(folder, programs / "srl", "--version")
    succeed(folder, programs / "python", "-m", "srl", "run", "mine.py", *IN_PROCESSES)


def test_an_environment_in_the_current_folder_is_found_behind_what_is_installed(programs, folder):
    text = succeed(folder, programs / "srl", "check-env", "envs.mine:Mine", "--steps", "50")
    assert "steps in a worker process" in text
    succeed(
        folder,
        *(programs / "srl", "bench", "pool", "--env", "envs.mine:Mine", "--workers", "1"),
        *("--num-envs", "2", "--seconds", "0.1", "--rounds", "1"),
    )


def test_a_process_looks_for_modules_where_the_one_that_starts_it_does(folder, monkeypatch):
    code = (
        "def main(words):\n    import json, sys; print(sys.path == words[1:], words[0], sys.argv)\n"
    )
    (folder / "tells_its_path.py").write_text(code)
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder), "/no/such folder"])
    from srl.system.child_process import child_command

    told = succeed(folder, *child_command("tells_its_path", "a word", *sys.path))
    assert told == "True a word ['-c']\n"


def test_an_experiment_whose_module_is_hidden_is_told_to_rename_it(tmp_path):
    from srl.config.experiment import load_experiment

    (tmp_path / "mine.py").write_text("from types import MyConfig\n")
    (tmp_path / "types.py").write_text("MyConfig = 1\n")
    with pytest.raises(srl.UserError, match=r"types is the installed module .* another name"):
        load_experiment(str(tmp_path / "mine.py"))


def test_python_is_started_in_one_way():
    starting = {
        str(file.relative_to(ROOT))
        for folder in ("srl", "envs")
        for file in (ROOT / folder).rglob("*.py")
        if "sys.executable" in file.read_text() or '"-m"' in file.read_text()
    }
    starting.remove("srl/core/optional_packages.py")  # which tells a command of pip's
    assert starting == {"srl/__main__.py", "srl/system/child_process.py"}
