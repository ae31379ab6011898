import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from srl.api.cli import main
from srl.config.experiment import load_experiment
from srl.core.errors import UserError
from srl.record.array_file import SUFFIX
from srl.record.checkpoint import BEST, Checkpoints
from srl.run.folder import create_run, open_run
from srl.run.follow_here import follow_here
from srl.run.resume import made_ready, return_to
from srl.run.terminal import INTERRUPTED
from srl.system.child_process import program_command

FILE = """
from near_the_experiment import CLIP
from srl.algorithms import PPO
from srl.config.experiment import Experiment

experiment = Experiment(name="near", env="CartPole-v1", algorithm=PPO(clip=CLIP))
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "near_the_experiment.py").write_text("CLIP = 0.25\n")
    path = tmp_path / "code" / "near.py"
    path.write_text(FILE)
    return path


@pytest.fixture(autouse=True)
def forget_the_neighbour(monkeypatch):
    monkeypatch.syspath_prepend("")  # restores sys.path afterwards
    yield
    sys.modules.pop("near_the_experiment", None)


def make(target, *words, run_dir=None):
    resolved = load_experiment(str(target), words)
    return resolved, create_run(resolved, run_dir)


def save(folder, *versions):
    """Checkpoints of so many updates, each of 100 env steps."""
    with contextlib.closing(Checkpoints(folder.checkpoints)) as checkpoints:
        for updates in versions:
            counts = {"env_steps": 100 * updates, "updates": updates}
            checkpoints.save(updates, {"x": np.zeros(1)}, counts, wait=True)


def test_a_run_lies_under_its_name_and_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = [make("CartPole-v1")[1].path for _ in range(3)]
    assert len(set(folders)) == 3
    for folder in folders:
        assert folder.parent == tmp_path / "runs" / "CartPole-v1"
        names = {path.name for path in folder.iterdir()}
        assert names == {"config.json", "checkpoints", "logs"}


def test_a_run_keeps_its_plan(tmp_path):
    words = "--plan inline --plan.actors.replicas 4 --max-staleness none".split()
    resolved, folder = make("CartPole-v1", *words, run_dir=tmp_path / "run")
    stored = json.loads(folder.config.read_text())["experiment"]["plan"]
    assert stored["name"] == "inline"
    assert stored["fragments"]["actors"]["replicas"] == 4
    assert open_run(folder.path, to_train=True)[1].experiment == resolved.experiment


def test_the_folder_holds_the_source_and_every_value(file, tmp_path):
    _, folder = make(file, "--seed", "3", run_dir=tmp_path / "run")
    config = json.loads(folder.config.read_text())
    assert folder.source.read_text() == FILE
    assert config["sha256"] == hashlib.sha256(FILE.encode()).hexdigest()
    assert config["experiment"]["seed"] == 3
    assert config["experiment"]["algorithm"]["clip"] == 0.25
    assert config["overrides"] == ["--seed", "3"]
    assert config["source"] == str(file)


def test_a_run_opens_as_it_was_even_when_its_source_has_changed(file, tmp_path):
    resolved, _ = make(file, "--seed", "3", run_dir=tmp_path / "run")
    file.write_text("raise ValueError")
    assert open_run(tmp_path / "run")[1].experiment == resolved.experiment


def test_a_run_of_an_id_opens_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    resolved, folder = make("CartPole-v1", "--seed", "3")
    monkeypatch.chdir("/")
    assert open_run(folder.path)[1] == resolved


def test_changed_code_is_told_by_the_value_it_changes(file, tmp_path):
    make(file, run_dir=tmp_path / "run")
    del sys.modules["near_the_experiment"]
    file.with_name("near_the_experiment.py").write_text("CLIP = 0.3125  # changed\n")
    with pytest.raises(UserError, match=r"algorithm\.clip=0\.25, but .* now gives 0\.3125"):
        open_run(tmp_path / "run", to_train=True)
    open_run(tmp_path / "run")  # to evaluate, it is a warning


def test_a_changed_copy_of_the_source_is_told(file, tmp_path):
    _, folder = make(file, run_dir=tmp_path / "run")
    folder.source.write_text(FILE + "\n")
    with pytest.raises(UserError, match=r"experiment\.py was changed after the run began"):
        open_run(tmp_path / "run")


@pytest.mark.parametrize(
    ("text", "told"),
    [(None, "is not a run folder"), ("{", "is not JSON any more"), ("{}", "has schema None")],
)
def test_a_missing_or_broken_config_is_told(tmp_path, text, told):
    _, folder = make("CartPole-v1", run_dir=tmp_path / "run")
    folder.config.unlink() if text is None else folder.config.write_text(text)
    with pytest.raises(UserError, match=told):
        open_run(tmp_path / "run")


def test_a_folder_with_a_run_is_not_used_again(tmp_path):
    make("CartPole-v1", run_dir=tmp_path / "run")
    with pytest.raises(UserError, match="already holds a run; `srl resume"):
        make("CartPole-v1", run_dir=tmp_path / "run")


def test_a_folder_with_anything_else_is_not_touched(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiment.py").write_text(FILE)
    with pytest.raises(UserError, match="is not empty; give --run-dir a new or an empty folder"):
        make("CartPole-v1", run_dir=Path("."))
    assert [path.name for path in tmp_path.iterdir()] == ["experiment.py"]
    (tmp_path / "empty").mkdir()
    make("CartPole-v1", run_dir=tmp_path / "empty")


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write the run folder .*: Not a directory"):
        make("CartPole-v1", run_dir=tmp_path / "file" / "run")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_told(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match=r"cannot write the run folder .*: Permission denied"):
        make("CartPole-v1", run_dir=tmp_path / "run")


def test_a_longer_budget_stays_with_the_run(tmp_path):
    words = ["--updates=7", "--seed", "3", "--env_steps", "5"][:3]
    resolved, folder = make("CartPole-v1", *words, run_dir=tmp_path / "run")
    longer = made_ready(folder, resolved, print, env_steps=5000)
    for experiment in (longer.experiment, open_run(folder.path)[1].experiment):
        assert (experiment.env_steps, experiment.updates, experiment.seed) == (5000, None, 3)
    again = made_ready(folder, longer, print, env_steps=6000)
    assert again.overrides == ("--seed", "3", "--pause-at", "none", "--env-steps", "6000")
    with pytest.raises(UserError, match="env_steps is 0"):
        made_ready(folder, again, print, env_steps=0)


def test_a_run_whose_file_has_a_pause_is_extended_again_and_again(tmp_path):
    file = tmp_path / "paused.py"
    file.write_text(
        "from srl import Experiment\n"
        "experiment = Experiment(name='paused', env='CartPole-v1', pause_at=300, env_steps=900)\n"
    )
    _, folder = make(file, run_dir=tmp_path / "run")
    for env_steps in (600, 700):
        resolved = open_run(folder.path, to_train=True)[1]
        made_ready(folder, resolved, print, env_steps=env_steps)
        experiment = open_run(folder.path, to_train=True)[1].experiment
        assert (experiment.pause_at, experiment.env_steps) == (None, env_steps)


def test_a_budget_is_compared_with_the_version_that_a_run_goes_on_from(tmp_path):
    resolved, folder = make("CartPole-v1", run_dir=tmp_path / "run")
    save(folder, 3, 9)
    with pytest.raises(UserError, match="900 are done already"):
        made_ready(folder, resolved, print, env_steps=500)
    assert made_ready(folder, resolved, print, env_steps=500, version=3).experiment.env_steps == 500


def test_a_best_version_that_came_later_is_set_aside_with_the_later_checkpoints(tmp_path):
    _, folder = make("CartPole-v1", run_dir=tmp_path / "run")
    save(folder, 3, 9)
    best = folder.checkpoints / f"{BEST}{SUFFIX}"
    shutil.copy(folder.checkpoints / f"9{SUFFIX}", best)
    with pytest.raises(UserError, match="version is 'best'; expected a number of updates"):
        return_to(folder, BEST)
    assert [path.name for path in return_to(folder, 3)] == ["9.later", "best.later"]


@pytest.mark.parametrize("plan", [(), ("--plan", "inline")], ids=["by srl", "by Slurm"])
def test_a_resume_that_is_refused_keeps_the_settings_and_the_newest_checkpoint(tmp_path, plan):
    _, folder = make("CartPole-v1", *plan, run_dir=tmp_path / "run")
    save(folder, 3, 9)
    before = folder.config.read_bytes()
    options = ("--version", "3", "--env-steps", "5000", "--on", "slurm", "--partition", "nowhere")
    assert main(["resume", str(folder.path), *options]) == 2
    assert Checkpoints(folder.checkpoints).versions() == [3, 9]
    assert folder.config.read_bytes() == before


def test_a_budget_that_is_used_up_is_refused(tmp_path):
    resolved, folder = make("CartPole-v1", run_dir=tmp_path / "run")
    save(folder, 3)
    before = folder.config.read_text()
    with pytest.raises(UserError, match="--env-steps 300: 300 are done already; give more"):
        made_ready(folder, resolved, print, env_steps=300)
    with folder.locked(), pytest.raises(UserError, match="another process is training"):
        made_ready(folder, resolved, print, env_steps=301)
    assert folder.config.read_text() == before
    assert made_ready(folder, resolved, print, env_steps=301).experiment.env_steps == 301


def test_a_folder_that_only_happens_to_hold_a_run_is_refused(tmp_path):
    make("CartPole-v1", run_dir=tmp_path / "run")
    (tmp_path / "photos").mkdir()
    with pytest.raises(UserError, match="is not a run folder"):
        open_run(tmp_path)


def test_a_folder_of_runs_by_their_times_may_hold_other_folders(tmp_path):
    make("CartPole-v1", run_dir=tmp_path / "2026-11-01_10-00-00")
    (tmp_path / "notes").mkdir()
    assert open_run(tmp_path)[0].path.name == "2026-11-01_10-00-00"


def test_a_folder_of_runs_means_its_newest(tmp_path, caplog):
    for number, name in enumerate(("b", "c", "a")):
        folder = make("CartPole-v1", "--seed", str(number), run_dir=tmp_path / name)[1]
        os.utime(folder.config, (number, number))
    folder, resolved = open_run(tmp_path)
    assert (folder.path.name, resolved.experiment.seed) == ("a", 2)
    assert f"using {folder.path}, the newest of the runs (3) in {tmp_path}" in caplog.text
    assert open_run(tmp_path / "b")[0].path.name == "b"


def test_only_one_process_trains_a_run(tmp_path):
    _, folder = make("CartPole-v1", run_dir=tmp_path / "run")
    with folder.locked():
        busy = subprocess.run(["flock", "--nonblock", str(folder.path / "lock"), "true"])
        assert busy.returncode != 0
        with pytest.raises(UserError, match="another process is training"), folder.locked():
            pass
    with folder.locked():
        pass


def test_the_process_that_trains_a_run_is_known_while_it_does(tmp_path):
    _, folder = make("CartPole-v1", run_dir=tmp_path / "run")
    assert folder.trained_by() is None
    with folder.locked():
        assert folder.trained_by() == (os.getpid(), socket.gethostname())
    assert folder.trained_by() is None
    assert (folder.path / "lock").read_text() == ""  # the next one's id is not there at once


def test_a_file_system_without_locks_is_told(tmp_path):
    _, folder = make("CartPole-v1", run_dir=tmp_path / "run")
    with folder.locked():
        pass
    source, library = tmp_path / "no_locks.c", tmp_path / "no_locks.so"
    source.write_text("#include <errno.h>\nint flock() { errno = ENOSYS; return -1; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    for command, words in (
        ("resume", f"cannot lock {folder.path}/lock: Function not implemented"),
        ("stop", "has ended"),
    ):
        done = subprocess.run(
            program_command("srl", command, str(folder.path)),
            env=os.environ | {"LD_PRELOAD": str(library)},
            capture_output=True,
            text=True,
        )
        assert words in done.stdout + done.stderr


def test_a_run_begins_while_others_look_who_trains_it(tmp_path):
    _, folder = make("CartPole-v1", run_dir=tmp_path / "run")
    done = threading.Event()

    def look():
        while not done.wait(0.001):  # looks all the time would leave the lock to nobody
            folder.trained_by()

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        for _ in range(100):
            with folder.locked():
                pass
        done.set()
        looking.result()


def test_discarding_leaves_what_is_not_of_the_run(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    make("CartPole-v1", run_dir=tmp_path / "run")[1].discard()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_discarding_keeps_a_folder_that_was_there_before_the_run(tmp_path):
    mine = tmp_path / "prepared" / "mine"
    mine.mkdir(parents=True)
    make("CartPole-v1", run_dir=mine)[1].discard()
    assert [*mine.parent.rglob("*")] == [mine]
    make("CartPole-v1", run_dir=tmp_path / "new" / "run")[1].discard()
    assert [path.name for path in tmp_path.iterdir()] == ["prepared"]


def test_a_run_is_shown_without_importing_its_file_or_what_it_names(file, tmp_path):
    _, folder = make(file, run_dir=tmp_path / "run")
    folder.source.write_text("raise SystemExit('imported')\n")
    (file.parent / "near_the_experiment.py").unlink()
    sys.modules.pop("near_the_experiment", None)
    shown = []
    assert follow_here(folder, shown.append) == INTERRUPTED
    assert "has ended" in shown[-1]
    config = folder.config.read_text().replace('"env_steps": 1000000', '"env_steps": "x"')
    folder.config.write_text(config)
    with pytest.raises(UserError, match=r"config.json is damaged: env_steps is 'x'"):
        follow_here(folder, shown.append)
