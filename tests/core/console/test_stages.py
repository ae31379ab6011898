import io

import pytest
from rich.console import Console
from test_evaluate import saved
from waiting import wait_until

from srl.api.cli import main
from srl.core.console.stages import Stages


def stages(**settings):
    output, now = io.StringIO(), [0.0]
    console = Console(file=output, width=100, **settings)
    return Stages(console, lambda: now[0]), output, now


def test_a_pipe_shows_a_line_for_each_stage_and_ever_fewer_while_one_lasts():
    shown, output, now = stages()
    for second in range(1000):
        now[0] = float(second)
        shown.show("starting" if second < 5 else "first steps", f"actors {second} of 1000")
    lines = output.getvalue().splitlines()
    assert lines[0] == "starting     actors 0 of 1000"
    assert lines[1] == "first steps  actors 5 of 1000"
    assert lines[2:] == [
        f"first steps  actors {second} of 1000  (for {second - 5} s)"
        for second in (15, 35, 75, 155, 315, 615, 915)
    ]


def test_a_terminal_shows_the_newest_stage_in_one_line_that_goes_at_the_end():
    shown, output, now = stages(force_terminal=True, color_system=None)
    with shown:
        shown.show("compiling")
        now[0] = 1.0
        shown.show("compiling", "learner 1 of 2")
    assert "compiling    learner 1 of 2" in output.getvalue()
    assert output.getvalue().count("\n") <= 1


def test_on_a_terminal_the_seconds_go_on_while_nothing_else_is_shown():
    shown, output, now = stages(force_terminal=True, color_system=None)
    with shown:
        shown.show("compiling", "before the first update")
        now[0] = 75.0
        wait_until(lambda: "for 75 s" in output.getvalue())


@pytest.mark.parametrize("words", [["--json"], []])
def test_an_evaluation_shows_on_standard_error_how_many_episodes_are_done(tmp_path, capsys, words):
    run = saved(tmp_path / "run", "native:CartPole-v1", "--num-envs", "2")
    assert main(["eval", str(run), "--episodes", "3", *words]) == 0
    output, errors = capsys.readouterr()
    assert "playing      episodes 0 of 3" in errors
    assert "playing" not in output


def test_a_benchmark_shows_on_standard_error_how_many_rounds_are_done(capsys):
    words = ["bench", "pool", "--env", "native:CartPole-v1", "--seconds", "0.1", "--rounds", "1"]
    assert main([*words, "--json"]) == 0
    output, errors = capsys.readouterr()
    assert "measuring    CartPole-v1, 64 environments, round 0 of 1" in errors
    assert output.startswith("{")
