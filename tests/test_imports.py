"""Neither modules nor rooms (folders of srl) need each other in a circle."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
CACHE = {"__pycache__"}


def modules():
    """The files of srl by module; envs/ is installed as srl.envs."""
    found = {}
    for folder, package in ((ROOT / "srl", "srl"), (ROOT / "envs", "srl.envs")):
        for file in folder.rglob("*.py"):
            parts = file.relative_to(folder).with_suffix("").parts
            name = ".".join([package, *parts]).removesuffix(".__init__")
            found[name] = file
    return found


def imports(file, known):
    """The modules of srl that a file imports, in functions too, but not for type checkers alone."""
    names, waiting = set(), [ast.parse(file.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= inner & known
            if not inner <= known:
                names.add(node.module)
        waiting += ast.iter_child_nodes(node)
    return names & known


def circles(graph):
    """The sets of modules that need each other: strongly connected components, by Tarjan."""
    order, low, path, found = {}, {}, [], []

    def visit(name):
        order[name] = low[name] = len(order)
        path.append(name)
        for other in graph[name]:
            if other not in order:
                visit(other)
            if other in path:
                low[name] = min(low[name], low[other])
        if low[name] == order[name]:
            start = path.index(name)
            found.append(frozenset(path[start:]))
            del path[start:]

    for name in graph:
        if name not in order:
            visit(name)
    return {circle for circle in found if len(circle) > 1}


def test_a_circle_is_found_through_any_number_of_modules():
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"d"}}
    assert circles(graph) == {frozenset("abc")}


def test_no_module_needs_one_that_needs_it():
    files = modules()
    assert not circles({name: imports(file, set(files)) for name, file in files.items()})


def room(module):
    """The folder of srl that holds a module; each extra is a room."""
    parts = module.split(".")
    return ".".join(parts[: 3 if parts[1:2] == ["extras"] else 2])


def test_rooms_import_only_rooms_below():
    files = modules()
    graph = {room(name): set() for name in files if name not in ("srl", "srl.__main__")}
    for name, file in files.items():
        if room(name) in graph:
            others = {room(other) for other in imports(file, set(files))}
            graph[room(name)] |= others & graph.keys() - {room(name)}
    assert not circles(graph)


def test_the_rooms_are_those_of_the_documents():
    text = (ROOT / "docs" / "developing" / "index.md").read_text()
    rows = re.findall(r"^\| ((?:`\w+/`(?:, )?)+) \|", text, re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"\w+", row)}
    assert told == {path.name for path in (ROOT / "srl").iterdir() if path.is_dir()} - CACHE | {
        "envs"
    }


def test_workers_that_do_not_learn_import_no_learner():
    files = modules()
    graph = {name: imports(file, set(files)) for name, file in files.items()}
    reached, waiting = set(), ["srl.workers.actor_role", "srl.workers.policy_role"]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += graph[name]
    assert "srl.loop.acting.parameters" in reached
    assert "srl.loop.learning.learner" not in reached
