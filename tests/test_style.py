"""Format, lint, types, docstrings and sizes of files."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def tool(name: str) -> str:
    """The program that belongs to this Python, or the one on the path."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found, f"{name} is not installed; run: make test"
    return found


def check(*command: str | Path, cwd: Path = ROOT) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def cpp_files() -> list[Path]:
    folders = ("csrc", "docs", "tests")
    endings = ("*.cc", "*.h", "*.c")
    return [file for f in folders for ending in endings for file in (ROOT / f).rglob(ending)]


def test_python_is_formatted():
    check(tool("ruff"), "format", "--check", "--quiet", "--diff", ".")


def test_python_passes_the_linter():
    check(tool("ruff"), "check", ".")


def test_cpp_is_formatted():
    check(tool("clang-format"), "--dry-run", "-Werror", *cpp_files())


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11),
    reason="types of packages differ between the newest releases for each Python; they are "
    "checked with those for the oldest supported Python",
)
def test_types_fit(tmp_path):
    # As installed: the folder envs/ is the package srl.envs.
    # Copies, as basedpyright follows no link to a folder.
    for source, copy in (("srl", "srl"), ("envs", "srl/envs"), ("experiments", "experiments")):
        shutil.copytree(
            ROOT / source, tmp_path / copy, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    check(tool("basedpyright"), "--pythonpath", sys.executable, cwd=tmp_path)


def test_csrc_knows_python_in_one_file_only():
    knowing = {
        file.name
        for file in cpp_files()
        if "Python.h" in (t := file.read_text()) or "pybind11" in t
    }
    assert knowing == {"module.cc"}


def test_no_file_is_long():
    files = [f for folder in ("srl", "envs", "csrc", "tests") for f in (ROOT / folder).rglob("*")]
    sources = [f for f in files if f.suffix in (".py", ".cc", ".h")]
    assert sources
    long = {f.name: n for f in sources if (n := len(f.read_text().splitlines())) > 500}
    assert not long


def docstrings(file: Path) -> list[str]:
    """All strings that stand for themselves: of modules, classes, functions and attributes."""
    bodies = [getattr(node, "body", None) for node in ast.walk(ast.parse(file.read_text()))]
    statements = [each for body in bodies if isinstance(body, list) for each in body]
    values = [each.value for each in statements if isinstance(each, ast.Expr)]
    texts = [each.value for each in values if isinstance(each, ast.Constant)]
    return [text.strip() for text in texts if isinstance(text, str)]


def test_docstrings_begin_with_a_verb_or_a_noun():
    prepositions = "Of|As|In|For|From|By|With|To|At|On|Those|Between|Until|After|Before"
    clauses = "What|Whether|How|Where|Who|Which"
    bare = re.compile(rf"({prepositions}|{clauses})\b")
    files = [file for folder in ("srl", "envs", "tools") for file in (ROOT / folder).rglob("*.py")]
    assert files
    wrong = [f"{file.name}: {d}" for file in files for d in docstrings(file) if bare.match(d)]
    assert not wrong


def test_importing_an_experiment_loads_neither_jax_nor_flax():
    experiments = sorted((ROOT / "experiments").glob("*.py"))
    assert experiments
    code = (
        "import sys\n"
        "from srl.config.experiment import load_experiment\n"
        "for file in sys.argv[1:]: load_experiment(file)\n"
        "heavy = {'jax', 'flax', 'optax', 'tensorboardX'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    check(sys.executable, "-c", code, *experiments)
