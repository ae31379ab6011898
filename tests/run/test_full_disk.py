"""Runs whose disk is small, or becomes full."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_trainer

TINY = Path(tiny_trainer.__file__)
EXPERIMENT = """
from srl import Experiment
from srl.algorithms import PPO
from srl.networks import MLP

experiment = Experiment(
    name="disk",
    env="native:CartPole-v1",
    num_envs=8,
    algorithm=PPO(network=MLP(width=128), unroll_length=16, epochs=1),
    report_every=1,
)
"""


@pytest.fixture
def disk(tmp_path):
    """Runs a shell script where `$disk` is a small disk; gives its exit code and what it shows.

    The size may be followed by other options of mount.
    """

    def run(size, script):
        (tmp_path / "disk").mkdir()
        (tmp_path / "experiment.py").write_text(EXPERIMENT)
        names = {
            "disk": tmp_path / "disk",
            "tiny": f"{sys.executable} {TINY}",
            "srl": f"{sys.executable} -m srl",
            "experiment": tmp_path / "experiment.py",
        }
        given = "".join(f'{name}="{value}"\n' for name, value in names.items())
        mount = f"mount -t tmpfs -o size={size} tmpfs $disk || exit 99\n"
        done = subprocess.run(
            ["unshare", "-rm", "bash", "-c", f"{given}{mount}cd $disk\n{script}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        if done.returncode == 99:
            pytest.skip("this machine lets no user mount a disk")
        return done.returncode, done.stdout

    return run


def test_a_disk_without_room_for_the_run_folder_keeps_nothing_of_it(disk):
    code, shown = disk("1m,nr_inodes=4", "$srl run $experiment --run-dir run; c=$?; ls; exit $c")
    assert (code, shown.count("\n")) == (2, 1), shown
    assert re.search("cannot write the run folder .*/run: No space left on device", shown)


@pytest.mark.parametrize("plan", [pytest.param("threads", marks=pytest.mark.slow), "inline"])
def test_a_disk_without_room_for_a_checkpoint_is_refused_before_the_first_update(disk, plan):
    code, shown = disk(
        "100k", f"$srl run $experiment --plan {plan} --run-dir run; c=$?; ls; exit $c"
    )
    assert code == 2, shown
    line = r"srl: the disk of \S+ has no room for a checkpoint of at least 0\.\d MB; make some, or"
    assert re.search(line, shown)
    assert "Traceback" not in shown
    assert "started again" not in shown
    assert shown.splitlines()[-1] != "run"  # its folder, which held nothing else, is gone


def test_a_disk_with_room_for_some_checkpoints_is_warned_of_and_trained_on(disk):
    code, shown = disk("1m", "$tiny run width=25000 updates=3 keep-checkpoints=9")
    assert code == 0, shown
    assert re.search(
        r"has room for [345] checkpoints of at least 0\.2 MB, and the run needs 10", shown
    )


FILLS = "width=25000 updates=60 report-every=1 checkpoint-minutes=0 keep-checkpoints=1000"


def test_a_run_whose_disk_becomes_full_ends_in_a_line_and_goes_on_once_there_is_room(
    disk, tmp_path
):
    code, shown = disk(
        "2m",
        f"$tiny run {FILLS}; echo ended with $?\n"
        "mount -o remount,size=100m $disk; $tiny run width=25000 resume && cp -r run ../copy",
    )
    assert code == 0, shown
    ending = re.search(r"\ncannot save a checkpoint in .*", shown, re.DOTALL)
    assert ending, shown
    first, second, third, *_ = ending[0].strip().splitlines()
    assert "No space left on device; the earlier checkpoints (1, 2," in first
    version = re.search(r", (\d+)\) are intact", first)
    assert f"goes on after update {version[1]}" in second
    assert third == "ended with 1"
    assert "Traceback" not in shown
    assert "done; the run is in" in shown
    lines = (tmp_path / "copy" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 60


def test_a_learner_whose_disk_becomes_full_ends_the_run_at_once_with_its_reason(disk):
    words = "--plan inline --plan.actors.replicas 1 --checkpoint-minutes 0 --keep-checkpoints 1000"
    code, shown = disk("3m", f"$srl run $experiment {words} --run-dir run")
    assert code == 1, shown
    assert "No space left on device; the earlier checkpoints (1, 2," in shown
    assert re.search(r"`srl resume run` goes on after update \d+", shown)
    assert "Traceback" not in shown
    assert "started again" not in shown
