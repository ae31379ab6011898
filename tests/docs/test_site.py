"""The documents: links lead somewhere, commands are such as srl takes, and examples run."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from srl.bench.bench import _BENCHMARKS
from srl.cli import COMMANDS, main
from srl.experiment import load_experiment
from srl.sweep.space import searched_setting, split_searched

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])

PLACEHOLDERS = re.compile(r"^(FILE|ENV_ID|my_|corridor|experiment\.py|mine)|^module:|^vector:")
"""Targets that stand for the reader's own."""
SWITCHES = {"--dry-run", "--json", "--keys", "--sampled", "--live", "--drawing", "--list"}
"""Options without a value."""
TAKING_OVERRIDES = {"run", "plan", "bench train", "bench act", "bench learn", "bench actors"}
"""Commands that take overrides of an experiment's fields."""


def test_the_site_is_built_and_no_link_leads_nowhere(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "reference" / "python" / "index.html").stat().st_size > 20_000


def test_links_of_the_readme_lead_somewhere():
    text = (ROOT / "README.md").read_text()
    targets = re.findall(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)", text)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_files_of_tests_that_a_page_names_are_there():
    named = [
        path for page in PAGES for path in re.findall(r"`(tests/[\w/]+\.py)`", page.read_text())
    ]
    assert len(named) > 30
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_environment_in_jax_that_a_page_shows_is_the_file_that_it_names():
    (shown,) = re.findall(
        r"^```python\n(.*?)^```", (DOCS / "jax_environments.md").read_text(), re.M | re.S
    )
    assert shown in (DOCS / "corridor.py").read_text()


def commands_of(page: Path) -> list[str]:
    """The lines of a page's code blocks that are calls of srl, with those that continue them."""
    text = page.read_text().replace("\\\n", " ")
    lines = re.findall(r"^ {4,}(srl [a-z].*)$", text, re.MULTILINE)
    return [re.split(r"\s{2,}#|\s{3,}", line)[0] for line in lines]


@cache
def options_of(*words: str) -> frozenset[str]:
    """The options that the help of a command names."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        main([*words, "--help"])
    # What follows are settings of the experiment: those are tried with their values.
    own, *_ = output.getvalue().split("The settings of a")
    return frozenset(re.findall(r"--[a-z][a-z-]*", own))


def expect_taken(words: list[str]) -> None:
    """Raises an error for a call that srl would refuse.

    Overrides are tried on the experiment that is named, on CartPole's in place of the reader's own.
    """
    name, *rest = words
    assert name in COMMANDS
    if name == "bench":
        assert rest[0] in _BENCHMARKS
        name, *rest = f"bench {rest[0]}", *rest[1:]
    plan = {"--plan"} if name in ("run", "plan") else set()
    others = without(rest, options_of(*name.split()) - plan)
    if name in {*TAKING_OVERRIDES, "sweep"}:
        target, *overrides = others or ["native:CartPole-v1"]
        if target.startswith("--"):
            target, overrides = "native:CartPole-v1", others
        if PLACEHOLDERS.match(target):
            target = "native:CartPole-v1"
        fixed, searched = split_searched(overrides) if name == "sweep" else (overrides, {})
        experiment = load_experiment(target, fixed).experiment
        for flag, text in searched.items():
            searched_setting(flag, text, experiment)
    else:
        unknown = [word for word in others if word.startswith("--")]
        assert not [word for word in unknown if not word.startswith("--env.")], unknown


def without(words: list[str], known: frozenset[str]) -> list[str]:
    """The words but for these options and their values."""
    kept, skip = [], False
    for word in words:
        if skip and not word.startswith("--"):
            skip = False
        elif word.split("=")[0] in known:
            skip = "=" not in word and word not in SWITCHES
        else:
            kept.append(word)
            skip = False
    return kept


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_a_page_shows_is_one_that_srl_takes(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    for command in commands_of(page):
        if re.search(r"[\[\]|<]|\.\.\.", command):
            continue  # a synopsis
        try:
            expect_taken(shlex.split(command.replace("$seed", "1"))[1:])
        except Exception as error:
            raise AssertionError(f"{page.relative_to(ROOT)} shows `{command}`: {error}") from error


def files_of(page: Path) -> dict[str, str]:
    """The Python files that a page shows whole, by the name in their first line."""
    blocks = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", page.read_text(), re.M | re.S)
    return dict(blocks)


def test_the_first_steps_run_as_they_are_written(tmp_path):
    files = files_of(DOCS / "getting_started.md")
    assert files.keys() == {"my_experiment.py", "my_simulator.py", "corridor.py"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for words in (
        ["check-env", "my_simulator:Corridor", "--seconds", "2"],
        ["run", "corridor.py", "--env-steps", "512", "--run-dir", "corridor"],
        ["run", "my_experiment.py", "--env-steps", "2048", "--run-dir", "mine"],
        ["eval", "mine", "--episodes", "2"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "srl", *words], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
