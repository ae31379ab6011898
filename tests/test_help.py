"""The help of every command, at several widths of the terminal."""

import contextlib
import itertools

import pytest

from srl.api.cli import COMMANDS, main
from srl.extras.bench.command import BENCHMARKS
from tools.bench import BENCHMARKS as TOOLS
from tools.bench.__main__ import main as bench_tools
from tools.gates.__main__ import main as gates

CALLS = [
    ["--help"],
    *([name, "--help"] for name in COMMANDS),
    *(["bench", name, "--help"] for name in BENCHMARKS),
    ["run", "experiments/hide_and_seek.py", "--self-play.past", "0.1", "--help"],
    ["run", "CartPole-v1", "--algorithm", "r2d2", "--plan", "decoupled", "--help"],
]


def help_lines(capsys, words, command=main):
    with contextlib.suppress(SystemExit):
        command(words)
    return capsys.readouterr().out.splitlines()


def indentation(line):
    return len(line) - len(line.lstrip())


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_help_fits_the_terminal(capsys, monkeypatch, words, width):
    monkeypatch.setenv("COLUMNS", str(width))
    expect_fits(help_lines(capsys, words), width)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_help_of_tools_fits_the_terminal(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for words in ([], *([name, "--help"] for name in TOOLS)):
        expect_fits(help_lines(capsys, words, bench_tools), width)
    expect_fits(help_lines(capsys, ["--help"], gates), width)


def expect_fits(lines, width):
    assert len(lines) > 3
    for line in lines:
        assert line == line.rstrip()
        assert len(line) <= width or " " not in line.strip()  # a word may be longer


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("target", ["CartPole-v1", "experiments/hide_and_seek.py"])
def test_the_help_of_an_option_is_broken_only_where_a_line_is_full(
    capsys, monkeypatch, target, width
):
    monkeypatch.setenv("COLUMNS", str(width))
    texts = [line for line in help_lines(capsys, ["run", target, "--help"]) if line[:8].isspace()]
    broken = 0
    for line, after in itertools.pairwise(texts):
        if indentation(line) == indentation(after) == 8 and not line.endswith(")"):
            assert len(line) + 1 + len(after.split()[0]) > width - 2, line
            broken += 1
    assert broken > 3


def test_help_has_one_entry_for_help(capsys):
    lines = help_lines(capsys, ["run", "CartPole-v1", "--help"])
    assert [line.split()[0] for line in lines if "--help" in line] == ["-h,"]


def test_help_lists_the_options_of_the_chosen_algorithm_and_plan(capsys):
    words = ["run", "CartPole-v1", "--algorithm", "dqn", "--plan", "decoupled", "--help"]
    shown = "\n".join(help_lines(capsys, words))
    assert "--algorithm.replay INT" in shown
    assert "--algorithm.value-range FLOAT FLOAT" in shown
    assert "--algorithm.clip" not in shown
    assert "--plan.policies.replicas" in shown
    assert "(default: dqn)" in shown
    assert "(default: decoupled)" in shown


def test_help_for_an_algorithm_that_there_is_not_names_the_nearest(capsys):
    assert main(["run", "CartPole-v1", "--algorithm", "dqm", "--help"]) == 2
    assert "there is no algorithm 'dqm'; did you mean dqn?" in capsys.readouterr().err
