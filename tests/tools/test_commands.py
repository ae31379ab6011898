"""`python -m tools.bench commands`: programs of any kind are measured between two budgets."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from srl.core.errors import RunError, UserError
from tools.bench.__main__ import main
from tools.bench.commands import main as bench


def program(folder: Path, name: str, steps_per_second: int) -> str:
    """A program that starts slowly, then does so many steps per second."""
    file = folder / f"{name}.py"
    file.write_text(f"import sys, time\ntime.sleep(0.2 + int(sys.argv[1]) / {steps_per_second})\n")
    return f"{shlex.quote(sys.executable)} {shlex.quote(str(file))} {{steps}}"


def test_both_programs_are_run_to_both_budgets(tmp_path, capsys):
    ours, theirs = program(tmp_path, "ours", 200), program(tmp_path, "theirs", 100)
    arguments = [ours, "--vs", theirs, "--steps", "1,200", "--rounds", "1", "--json"]
    assert main(["commands", *arguments]) == 0
    line = json.loads(capsys.readouterr().out)
    assert line["config"]["command"] == ours
    assert line["config"]["vs"] == theirs
    assert line["config"]["steps"] == [1, 200]
    assert line["ratio"] == line["value"] / line["vs_value"]  # of one round
    assert line["config"]["seconds"] >= 0.2 + 1
    assert line["config"]["vs_seconds"] >= 0.2 + 2


def test_a_program_that_fails_shows_its_last_words(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("import sys\nprint('the disk is full')\nsys.exit(3)\n")
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(file))} {{steps}}"
    with pytest.raises(RunError, match=r"ended with 3:\nthe disk is full"):
        bench([command, "--steps", "1,2"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["true {steps}", "--steps", "5"], "two budgets"),
        (["true {steps}", "--steps", "5,4"], "the smaller first"),
        (["true {steps}", "--steps", "a,b"], "not 'a,b'"),
        (["true", "--steps", "1,2"], "has no {steps}"),
        (["true {steps}", "--vs", "true", "--steps", "1,2"], "has no {steps}"),
        (["no-such-program {steps}", "--steps", "1,2"], "cannot run"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments, words):
    with pytest.raises(UserError) as caught:
        bench(arguments)
    assert words in str(caught.value)
