"""The blocks of Python that the documents show: they run, with small budgets."""

import ast
import contextlib
import importlib
import inspect
import io
import re
import sys
import textwrap

import pytest
from pages import DOCS, PAGES, ROOT, name_of, python_blocks

from srl.algorithms import Algorithm
from srl.dataflow.trace import trace

CHECKED_ALONE = {
    ("docs/sharing.md", "onnxruntime"): "tests/policies exports and runs the same in minutes",
    ("docs/sharing.md", "huggingface_hub"): "the hub's package is not among the tests' tools",
    ("docs/jax_environments.md", "class Corridor"): "docs/corridor.py, which is run as a whole",
    ("docs/getting_started.md", "# corridor.py"): "test_site.py runs it by srl run",
    ("docs/index.md", "srl.train"): "the same as the README's, as a test below makes sure",
}
"""Blocks that are compiled and whose imports of srl are made, by page and a text in them: why."""

CARTPOLE = 'Experiment("x", "native:CartPole-v1",'
SMALLER = [
    (r"env_steps=([\d_]+)", lambda match: f"env_steps={int(match[1]) // 100}"),
    (r"episodes=100?\b", "episodes=2"),
    (r"episodes=20\b(?=\)\.)", "episodes=2, num_envs=2"),
    (r', plan="inline"', ""),  # its processes take seconds each to start
    (r"workers=\d", "workers=2"),
    (r"while True:", "for _ in range(2):"),
    (r"Experiment\(\.\.\.,(?= policies)", 'Experiment("x", "native:HideAndSeek-v1",'),
    (r"Experiment\(\.\.\.,", CARTPOLE),
]
"""What is replaced, so that a block takes little time."""

BEFORE = {
    "README.md": "",
    "docs/environments.md": """
        import gymnasium, numpy as np
        from srl import Experiment
        def MyBatchedSimulator(num_envs, friction):
            return gymnasium.make_vec("CartPole-v1", num_envs, vectorization_mode="sync")
    """,
    "docs/evaluation.md": "from srl import Evaluation, Experiment",
    "docs/pools.md": "policy = lambda observation: np.zeros(8, np.int64)",
    "docs/python.md": "import srl",
}
"""Names that the reader has, by page."""

AFTER = {
    "docs/environments.md": """
        pool.close()
        simulator = make_my_envs(2)
        ResetMask(simulator).reset(options={"reset_mask": np.array([True, False])})
        simulator.close()
    """,
    "docs/pools.md": "pool.close()",
}
"""Statements that use what a page has defined."""

MODULES = {
    "my_simulator.py": """
        import gymnasium
        def MyEnv():
            return gymnasium.make("CartPole-v1")
    """,
    "my_module.py": """
        import gymnasium
        gymnasium.register("MyEnv-v0", "gymnasium.envs.classic_control:CartPoleEnv")
    """,
}
"""Files that stand for the reader's own."""


def reason_not_to_run(page, block) -> str | None:
    """The reason why a block is compiled only; None for blocks that are run."""
    reasons = [
        why
        for (name, text), why in CHECKED_ALONE.items()
        if name == name_of(page) and text in block.code
    ]
    return reasons[0] if reasons else None


def smaller(code: str) -> str:
    """The code with budgets that take little time."""
    for pattern, replacement in SMALLER:
        code = re.sub(pattern, replacement, code)
    return code


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The working folder of all blocks, with runs/cartpole, which the README's block trains."""
    folder = tmp_path_factory.mktemp("documents")
    for name, text in MODULES.items():
        (folder / name).write_text(textwrap.dedent(text))
    kept_path, kept_modules = list(sys.path), set(sys.modules)
    sys.path[:0] = [str(folder), str(DOCS)]
    yield folder
    sys.path[:] = kept_path
    for name in {"my_simulator", "my_module", "reinforce", "replayed_q"} - kept_modules:
        sys.modules.pop(name, None)


def run_page(page) -> dict:
    """The names that the blocks of a page have defined, run one after the other."""
    names = {"__name__": "documents"}
    sources = [("before", textwrap.dedent(BEFORE.get(name_of(page), "")))]
    sources += [
        (f"{name_of(page)}:{block.line}", smaller(block.code))
        for block in python_blocks(page)
        if not reason_not_to_run(page, block)
    ]
    sources.append(("after", textwrap.dedent(AFTER.get(name_of(page), ""))))
    with contextlib.redirect_stdout(io.StringIO()):
        for name, code in sources:
            exec(compile(code, name, "exec"), names)
    return names


WITH_PYTHON = [page for page in PAGES if python_blocks(page)]
# The README's block trains the run that blocks of other pages load.
WITH_PYTHON.sort(key=lambda page: page.name != "README.md")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of packages that examples import
@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_blocks_of_python_run(page, folder, monkeypatch):
    monkeypatch.chdir(folder)
    if name_of(page) == "docs/python.md" and not (folder / "runs" / "cartpole").exists():
        run_page(ROOT / "README.md")
    run_page(page)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of packages that examples import
@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_blocks_that_are_not_run_compile_and_import_names_that_are_there(page):
    for block in python_blocks(page):
        if not reason_not_to_run(page, block):
            continue
        for node in ast.walk(ast.parse(block.code, f"{name_of(page)}:{block.line}")):
            if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "srl":
                module = importlib.import_module(str(node.module))
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "srl":
                assert hasattr(importlib.import_module("srl"), node.attr)


def test_each_reason_not_to_run_is_of_a_block_that_is_there():
    pages = {name_of(page): [block.code for block in python_blocks(page)] for page in PAGES}
    assert [key for key in CHECKED_ALONE if not any(key[1] in code for code in pages[key[0]])] == []


def loop_of(page) -> str:
    (block,) = [block for block in python_blocks(page) if block.code.startswith("def loop(")]
    return block.code


def bare(code: str) -> str:
    """The statements of code without docstrings and annotations."""
    tree = ast.parse(textwrap.dedent(code))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns, node.body = None, node.body[ast.get_docstring(node) is not None :]
            for argument in node.args.args:
                argument.annotation = None
    return ast.unparse(tree)


def test_the_loop_that_the_page_of_plans_shows_is_that_of_all_algorithms():
    assert bare(loop_of(DOCS / "plans.md")) == bare(inspect.getsource(Algorithm.loop))


def test_the_loop_with_a_teacher_is_one_that_srl_traces():
    names = {}
    exec(loop_of(DOCS / "write_an_algorithm.md"), names)
    own = type("Own", (Algorithm,), {"loop": names["loop"]})
    assert "teach" in {edge.source for edge in trace(own()).edges}


def test_the_home_of_the_site_shows_the_readmes_script():
    script = python_blocks(ROOT / "README.md")[0].code
    assert python_blocks(DOCS / "index.md")[0].code == script
    assert len([line for line in script.splitlines() if line]) == 7
