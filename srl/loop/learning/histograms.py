"""Histograms of what a learner holds."""

from __future__ import annotations

from collections.abc import Mapping

from srl.algorithms import State
from srl.core.lazy import jax, optax
from srl.core.tree import leaves_of, names_of
from srl.core.types import Tree
from srl.record.array_file import named_leaves
from srl.tracking.tracker import Histogram


def histograms_of(states: Mapping[str, State]) -> dict[str, Histogram]:
    """Histograms of each array of parameters, and of its gradients where the optimizer is Adam.

    These are Adam's running means of gradients: a pass over the batch for a single gradient would
    cost as much as learning does.

    Args:
        states: Of the policies, by name, which the histograms' names have where there are several.
    """
    found: dict[str, Histogram] = {}
    for policy, state in states.items():
        whose = f"/{policy}" if len(states) > 1 else ""
        found |= _of_arrays(state.params, f"parameters{whose}")
        means = optax.tree_utils.tree_get_all_with_path(state.optimizer, "mu")
        for _, tree in means:
            found |= _of_arrays(tree, f"gradients{whose}")
    return found


def _of_arrays(tree: Tree, name: str) -> dict[str, Histogram]:
    arrays = named_leaves(jax.device_get(tree))
    return {f"{name}/{leaf}": Histogram.of(array) for leaf, array in arrays.items()}


def histograms_of_actions(actions: Tree | None) -> dict[str, Histogram]:
    """Histograms of a batch's actions [T, B, ...], one for each array; none where there is none."""
    if actions is None:
        return {}
    names, arrays = leaves_of(names_of(actions, "actions")), leaves_of(actions)
    return {name: Histogram.of(array) for name, array in zip(names, arrays, strict=True)}
