"""No module of srl needs, even by way of others, one that needs it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


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


@pytest.fixture(scope="module")
def found():
    files = modules()
    return circles({name: imports(file, set(files)) for name, file in files.items()})


def test_a_circle_is_found_through_any_number_of_modules():
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"d"}}
    assert circles(graph) == {frozenset("abc")}


def known(folder):
    """The circles that a folder still has."""
    return pytest.param(folder, marks=pytest.mark.xfail(reason="it is still to be taken apart"))


@pytest.mark.parametrize(
    "folder", [known("srl.envs"), known("srl.networks"), "srl.pools", "srl.streams", "srl.loop"]
)
def test_a_folder_has_no_circle_of_imports(found, folder):
    inside = {circle for circle in found if all(name.startswith(folder) for name in circle)}
    assert not inside


def test_no_other_circle_of_imports_is_there(found):
    folders = ("srl.envs.", "srl.networks.")
    others = {circle for circle in found if not all(n.startswith(folders) for n in circle)}
    assert not others
