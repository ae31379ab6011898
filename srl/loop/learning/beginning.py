"""The first parameters of a run that begins from those of another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from srl.config.fixed import Fixed
from srl.config.sources import INIT_FROM
from srl.core.errors import RunError, UserError
from srl.core.lazy import jax
from srl.core.types import Array, Tree
from srl.record.array_file import named_leaves
from srl.record.checkpoint import Checkpoints

PARTS = ("params", "targets", "observations", "values")
"""The fields of a learner's state that are taken over: networks, and statistics that they need."""


def begun_from(
    source: Fixed, states: Mapping[str, Any]
) -> tuple[dict[str, dict[str, Tree]], list[str]]:
    """Takes over each layer of another run that has the names, shapes and types of one here.

    So are statistics. Only arrays are read: nothing that the other run's folder names is imported.

    Args:
        source: The version of the other run. Of its policies, the one of the same name counts, or
            the only one.
        states: Learners' states as they were drawn, by policy.

    Returns:
        The parts of each policy's state with these arrays, and lines about them.

    Raises:
        UserError: If no layer fits, or the version cannot be read.
    """
    name = source.file.stem
    try:
        version = int(name) if name.isdecimal() else name
        theirs, _ = Checkpoints(source.file.parent).learners(version)
    except RunError as error:
        raise UserError(f"{INIT_FROM}: {error}") from error
    learners: dict[str, dict[str, Tree]] = {}
    report: list[str] = []
    for policy, state in states.items():
        other = theirs.get(policy, next(iter(theirs.values())) if len(theirs) == 1 else {})
        learners[policy], lines = _taken(_parts(state._asdict()), _parts(other), source)
        report += [f"{INIT_FROM}: {policy}: {line}" for line in lines]
    return learners, report


def _parts(state: Mapping[str, Tree]) -> dict[str, Tree]:
    return {part: state[part] for part in PARTS if part in state}


def _taken(
    here: dict[str, Tree], there: dict[str, Tree], source: Fixed
) -> tuple[dict[str, Tree], list[str]]:
    """The parts of a state here with the layers of another that fit, and lines about all layers."""
    own, theirs = named_leaves(here), named_leaves(there)
    ours, others = _layers(own), _layers(theirs)
    fitting = {name for name, form in ours.items() if others.get(name) == form}
    weights = {_layer(name) for name, x in own.items() if name.startswith("params") and x.ndim > 1}
    if not any(name.startswith("params/value") for name in fitting & weights):
        fitting.discard("values")  # statistics of what another value network predicts
    if not fitting & weights:
        differ = [f"{n} has {others[n]} there and {ours[n]} here" for n in weights & others.keys()]
        names = f"it has {', '.join(others) or 'no such policy'}, and here are {', '.join(ours)}"
        raise UserError(
            f"{INIT_FROM}: no layer of {source.run} has the name and shape of one here: "
            f"{min(differ, default=names)}; choose a run of the same algorithm with a like network"
        )
    leaves = {n: theirs[n] if _layer(n) in fitting else x for n, x in own.items()}
    size = lambda names: f"{sum(own[n].size for n in names):,}"  # noqa: E731
    taken = [name for name in own if _layer(name) in fitting]
    lines = [
        f"{size(taken)} of {size(own)} numbers fit: {', '.join(filter(fitting.__contains__, ours))}"
    ]
    lines += [
        f"drawn anew, as it has another form there: {name} ({others[name]} there, {form} here)"
        for name, form in ours.items()
        if name in others and name not in fitting
    ]
    for text, names in {
        "new here": ours.keys() - others.keys(),
        "left there": others.keys() - ours.keys(),
    }.items():
        lines += [f"{text}: {', '.join(sorted(names))}"] if names else []
    return jax.tree.structure(here).unflatten(list(leaves.values())), lines


def _layer(name: str) -> str:
    """The name of the layer, or of the statistics, that an array of this name belongs to."""
    return name.rpartition("/")[0] or name


def _layers(arrays: Mapping[str, Array]) -> dict[str, str]:
    """The forms of layers by name: of each array its name, type and shape."""
    forms: dict[str, list[str]] = {}
    for name, x in arrays.items():
        text = f"{name.rpartition('/')[2]} {x.dtype}{list(x.shape)}"
        forms.setdefault(_layer(name), []).append(text)
    return {name: ", ".join(sorted(form)) for name, form in forms.items()}
