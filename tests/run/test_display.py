"""What the terminal shows of a run."""

import contextlib
import dataclasses
import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import tiny_trainer
from rich.console import Console
from tiny_trainer import TinyTrainer

from srl.config.experiment import load_experiment
from srl.launch.processes import show_stage
from srl.loop.stage import Stage
from srl.record.run_record import RunFolder
from srl.run.display import Display
from srl.run.status import read_stage

PROGRAM = Path(tiny_trainer.__file__)


def test_returns_of_several_policies_are_shown_each():
    report = {
        "fps": 1000.0,
        "episode_return": 0.0,
        "episode_length": 240,
        "episode_return/hiders": 12.5,
        "episode_return/seekers": -12.5,
    }
    shown = Display(load_experiment("Tiny-v0").experiment).summary(report)
    assert shown == "fps 1,000  return hiders 12.5, seekers -12.5  length 240"


def test_the_first_statistics_of_the_environment_are_shown_with_successes_before_others():
    values = {"env/coins": 2.5, "env/falls": None, "env/is_success": 0.75, "env/jumps": 1}
    report = {"fps": 1000, "episode_return": 1, "episode_length": 9, **values, "bottleneck": "x"}
    display = Display(load_experiment("Tiny-v0", ["--updates", "9"]).experiment)
    numbers = "fps 1,000  return 1  length 9  is_success 0.75, coins 2.5, falls -"
    assert display.summary(report) == f"{numbers}  x"
    for terminal in (False, True):
        output = io.StringIO()
        console = Console(file=output, force_terminal=terminal, width=100, color_system=None)
        display = Display(load_experiment("Tiny-v0", ["--updates", "9"]).experiment, console)
        with contextlib.closing(display):
            display.start(TinyTrainer())
            display.report({"env_steps": 0, "updates": 0, **report})
        assert "is_success 0.75, coins 2.5, falls -" in output.getvalue()


def test_an_environment_is_told_by_what_differs_from_the_default(tmp_path):
    output = io.StringIO()
    chosen = load_experiment("experiments/hide_and_seek.py:full_large").experiment
    Display(chosen, Console(file=output, width=200)).header(RunFolder(tmp_path))
    assert "HideAndSeek(scenario=full, floor_size=12.0), 4000 at a time" in output.getvalue()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--num-envs 64", ["workers      64 of 100,000, one for each environment"]),
        ("--num-envs 64 --groups 2", ["workers      32 of 100,000, one for each environment of a"]),
        ("--num-envs 200000", []),
    ],
)
def test_workers_that_have_no_environment_to_step_are_not_counted(tmp_path, words, told):
    output = io.StringIO()
    words = ["--workers", "100000", *words.split()]
    experiment = load_experiment("CartPole-v1", words).experiment
    Display(experiment, Console(file=output, width=200)).header(RunFolder(tmp_path))
    lines = [line for line in output.getvalue().splitlines() if line.startswith("workers")]
    assert len(lines) == len(told)
    assert all(line.startswith(part) for line, part in zip(lines, told, strict=True))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", "fused: steps and learns in turns"),
        (
            "--max-staleness 2",
            "threads: steps while it learns, with parameters up to 2 updates old",
        ),
        ("--plan inline", "inline: steps and learns in turns, as max_staleness is 0"),
        (
            "--plan inline --max-staleness none",
            "inline: steps while it learns, with parameters of ",
        ),
    ],
)
def test_the_plan_is_told_and_if_it_steps_while_it_learns(tmp_path, monkeypatch, words, told):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    output = io.StringIO()
    experiment = load_experiment("native:CartPole-v1", words.split()).experiment
    Display(experiment, Console(file=output, width=200)).header(RunFolder(tmp_path))
    assert f"plan         {told}" in output.getvalue()


@dataclasses.dataclass
class Sized:
    """An environment whose class is a dataclass."""

    sizes: list = dataclasses.field(default_factory=list)


def test_a_class_of_environments_is_told_by_its_name(tmp_path):
    output = io.StringIO()
    experiment = dataclasses.replace(load_experiment("Tiny-v0").experiment, env=Sized)
    Display(experiment, Console(file=output, width=200)).header(RunFolder(tmp_path))
    assert "Sized, " in output.getvalue()


def test_a_terminal_shows_a_bar(tmp_path):
    terminal, end = os.openpty()
    command = [sys.executable, str(PROGRAM), str(tmp_path / "run"), "updates=30", "pause=0.02"]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    with subprocess.Popen(command, stdout=end, stderr=end, env=environment) as process:
        os.close(end)
        shown = b""
        with open(terminal, "rb", buffering=0) as reader:
            with contextlib.suppress(OSError):  # the other end is closed
                while part := reader.read(4096):
                    shown += part
    assert process.returncode == 0
    text = shown.decode()
    assert "30/30 updates" in text
    assert "fps 1,000  return" in text
    assert "━" in text
    assert "\x1b[?25h" in text  # the cursor is given back


def test_a_terminal_shows_what_holds_the_run_back_and_where_each_kind_of_workers_time_goes():
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=100, color_system=None)
    display = Display(load_experiment("Tiny-v0").experiment, console)
    display.start(TinyTrainer())
    times = {"time/learner/learn": 0.4, "time/learner/idle": 0.6, "time/actors/step": 1.0}
    counts = {"env_steps": 0, "updates": 0}
    display.report({**counts, "bottleneck": "actor-bound: the learner waits 60 %", **times})
    display.close()
    shown = output.getvalue()
    for line in ("actor-bound: the learner waits 60 %", "idle 60%  learn 40%", "step 100%"):
        assert line in shown


class Workers:
    """A controller whose workers have begun, and learn."""

    updates = 0

    def stage(self):
        return Stage.STEPPING, "actors 2 of 2", self.updates


@pytest.fixture
def young(tmp_path, monkeypatch):
    """A run that has no report yet, each line of which is shown: the display, what it shows."""
    monkeypatch.setattr("srl.core.console.stages._FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr("srl.core.console.stages._MOST_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr("srl.run.display._NOTE_SECONDS", 0.0)
    output, stopping = io.StringIO(), threading.Event()
    experiment = load_experiment("Tiny-v0", ["--updates", "10000"]).experiment
    console = Console(file=output, width=200)
    display = Display(experiment, console, stopping.is_set)
    display.header(RunFolder(tmp_path))
    return display, output, stopping


def test_a_run_in_processes_shows_its_updates_until_there_is_a_report(young, tmp_path):
    display, output, _ = young
    workers = Workers()
    show_stage(display, workers)
    assert output.getvalue().splitlines()[-1] == "first steps  actors 2 of 2"
    workers.updates = 37
    show_stage(display, workers)
    counted = "37 updates; a report every 100"
    assert output.getvalue().splitlines()[-1] == f"first steps  {counted}"
    assert read_stage(tmp_path) == (Stage.STEPPING, counted)


def test_a_run_that_is_to_end_shows_no_stage(young, tmp_path):
    display, output, stopping = young
    show_stage(display, Workers())
    stopping.set()
    shown = output.getvalue()
    for _ in range(2):
        show_stage(display, Workers())
        display.tick(TinyTrainer(), 0.0)
    assert output.getvalue() == shown
    assert read_stage(tmp_path) == (Stage.SAVING, "")


def test_a_run_on_a_terminal_records_its_first_steps(tmp_path):
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    display = Display(load_experiment("Tiny-v0").experiment, console)
    display.header(RunFolder(tmp_path))
    with contextlib.closing(display):
        display.start(TinyTrainer())
        display.stage(Stage.STEPPING)
    assert read_stage(tmp_path) == (Stage.STEPPING, "")


@pytest.mark.parametrize(("env_steps", "told"), [(5_000, True), (5_001, False)])
def test_a_run_that_ends_before_it_would_learn_says_so(tmp_path, env_steps, told):
    output = io.StringIO()
    words = ["--algorithm", "dqn", "--algorithm.warm-up", "5000", "--env-steps", str(env_steps)]
    experiment = load_experiment("native:CartPole-v1", words).experiment
    Display(experiment, Console(file=output, width=200)).header(RunFolder(tmp_path))
    assert ("nothing is learned: give a smaller one" in output.getvalue()) == told
