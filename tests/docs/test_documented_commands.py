"""The command lines that the documents show: srl's own parsers take them, and files are there."""

import importlib
import re
import shlex

import pytest
from pages import PAGES, ROOT, command_lines, inline_commands, name_of

from srl.api.cli import COMMANDS
from srl.config.experiment import load_experiment
from srl.config.fixed import Fixed
from srl.core.console.arguments import Arguments
from srl.core.errors import UserError
from srl.extras.sweep.space import searched_setting, split_searched
from tools.bench.__main__ import main as bench_tools
from tools.gates.__main__ import main as gates

OTHERS = {"bash", "pip", "cmake", "hf", "wandb", "tail", ".", "done", "for"}
"""First words of lines that are calls of other programs, or belong to the shell."""
NO_COMMANDS = {
    "docs/scaling.md": r"(requests/s|policy cores|unrolls/s|learner|controller|depth|until) ?.*",
    "docs/native_environments.md": r"make_pool\(.*\)",
}
"""Lines of formulas and of Python, by page."""
PLACEHOLDERS = re.compile(r"^(FILE|ENV_ID|EXPERIMENT|my_|corridor|experiment\.py|mine)|^module:")
"""Targets that stand for the reader's own."""
TOOLS = {"tools.bench": bench_tools, "tools.gates": gates}
"""Modules that developers run in the checkout."""
WITHOUT_OVERRIDES = {"check-env", "bench pool"}
"""Commands that leave over options of an environment alone."""


class ParsedError(Exception):
    """Ends a command once its own parser has taken its arguments."""


@pytest.fixture
def parsers_alone(monkeypatch):
    """Lets commands read their arguments and do nothing else."""

    def ending(real):
        def parse(self, *args, **kwargs):
            nested, self.nested = getattr(self, "nested", False), True
            parsed = real(self, *args, **kwargs)
            if nested:
                return parsed
            options, rest = parsed if isinstance(parsed, tuple) else (parsed, [])
            raise ParsedError(options, rest)

        return parse

    monkeypatch.setattr(Fixed, "pinned", lambda policy, *_: policy)  # runs that readers will have
    for name in ("parse_args", "parse_target", "parse_known_args"):
        monkeypatch.setattr(Arguments, name, ending(getattr(Arguments, name)))


def parsed(words: list[str]):
    """The options and the other arguments, as the parser of the command reads them.

    Raises:
        UserError: If it refuses them.
    """
    module, _, function = COMMANDS[words[0]][0].partition(":")
    command = getattr(importlib.import_module(module), function)
    try:
        command(words[1:])
    except ParsedError as end:
        return end.args
    raise AssertionError(f"srl {words[0]} has read no arguments")


def expect_taken(words: list[str]) -> None:
    """Raises an error for a call that srl would refuse.

    Overrides are tried on the experiment that is named, on CartPole's in place of the reader's own.
    """
    name = " ".join(words[:2]) if words[0] == "bench" else words[0]
    target = words[1] if words[0] == "run" and len(words) > 1 else None
    options, rest = parsed(list(words))
    target = getattr(options, "target", None) or target
    if name in WITHOUT_OVERRIDES:
        assert all(word.startswith("--env.") for word in rest[::2]), rest
        return
    if not target or PLACEHOLDERS.match(target):
        target = "native:CartPole-v1"
    fixed, searched = split_searched(rest) if name == "sweep" else (rest, {})
    if target == "native:CartPole-v1" and not fixed:
        return
    experiment = load_experiment(target, fixed).experiment
    for flag, text in searched.items():
        searched_setting(flag, text, experiment)


def expect_line(line: str) -> None:
    """Raises an error for a line that a shell, srl or make would not take."""
    words = shlex.split(line.replace("{steps}", "1000"), comments=True)
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words = words[1:]
    program, *rest = words
    if program == "srl":
        expect_taken(rest)
    elif program == "python" and rest[1] in TOOLS:
        with pytest.raises(ParsedError):
            TOOLS[rest[1]](rest[2:] or ["learn"])
        for word in rest:
            if "srl run " in word:  # the commands that `tools.bench commands` compares
                expect_taken(shlex.split(word[word.index("srl run ") :])[1:])
    elif program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert [word for word in rest if "=" not in word and word not in targets] == []
    elif program == "python":
        assert rest[0] == "-m" or (ROOT / rest[0]).exists(), f"there is no {rest[0]}"
    else:
        assert program in OTHERS, f"{program} is none of the programs that documents call"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_line_that_a_page_shows_is_a_command_that_is_taken(page, monkeypatch, parsers_alone):
    monkeypatch.chdir(ROOT)
    for line in command_lines(page):
        if re.fullmatch(NO_COMMANDS.get(name_of(page), "-"), line):
            continue
        try:
            expect_line(line)
        except (Exception, SystemExit) as error:
            raise AssertionError(f"{name_of(page)} shows `{line}`: {error}") from error


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_options_of_commands_that_sentences_name_are_there(page, monkeypatch, parsers_alone):
    monkeypatch.chdir(ROOT)
    for command in inline_commands(page):
        words = shlex.split(command.replace("...", "ENV_ID"))[1:]
        words = [re.sub(r"^[A-Z]$", "1", word) for word in words]
        if words[0] == "NAME" or len(words) == 1 or words == ["bench", words[-1]]:
            continue
        try:
            try:
                expect_taken(words)
            except UserError as error:
                if "required" not in str(error) and "needs an experiment" not in str(error):
                    raise
                expect_taken([words[0], "RUN_DIR", *words[1:]])  # a sentence may leave it out
        except (Exception, SystemExit) as error:
            raise AssertionError(f"{name_of(page)} names `{command}`: {error}") from error


@pytest.mark.parametrize(
    ("line", "refusal"),
    [
        ("srl plan FILE --plan fused    what would run", "what"),
        ("srl eval runs/a --greddy", "--greddy"),
        ("srl run CartPole-v1 --algorithm.clipp 1", "clip"),
        ("srl bench pool --env CartPole-v1 --num-envs many", "many"),
        ("make tests", "tests"),
    ],
)
def test_lines_that_would_be_refused_are_found(line, refusal, parsers_alone):
    with pytest.raises((UserError, AssertionError), match=refusal):
        expect_line(line)
