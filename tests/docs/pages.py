"""The README and the pages of docs/: their blocks of Python, and their command lines."""

import re
import string
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    """The path of a page in the repository."""
    return str(page.relative_to(ROOT))


class Block(NamedTuple):
    """A block of Python, and the number of its first line."""

    line: int
    code: str


def python_blocks(page: Path) -> list[Block]:
    """The blocks of Python of a page, in their order."""
    text = page.read_text()
    return [
        Block(text[: match.start(2)].count("\n") + 1, match[2])
        for match in _FENCED.finditer(text)
        if match[1] == "python"
    ]


def command_lines(page: Path) -> list[str]:
    """The lines of a page's indented blocks, with those that continue them, variables put in."""
    text = _FENCED.sub("", page.read_text()).replace("\\\n", " ")
    variables, lines = {"seed": "1"}, []
    for line in re.findall(r"^ {4,}(?![-*] )(\S.*)$", text, re.MULTILINE):
        expanded = string.Template(line).safe_substitute(variables)
        if assigned := re.fullmatch(r'(\w+)="([^"]*)"', expanded):
            variables[assigned[1]] = " ".join(assigned[2].split())
        else:
            lines.append(expanded)
    return lines


def inline_commands(page: Path) -> list[str]:
    """The calls of srl with arguments that a page names within its sentences."""
    text = _FENCED.sub("", page.read_text())
    found = re.findall(r"(?<!`)`(srl [a-z][^`|]*)`(?!`)", text)
    return [" ".join(command.split()) for command in found if not re.search(r"[\[<]", command)]
