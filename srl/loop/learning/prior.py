"""Prior data of a run's folder, as the second replay of the slots here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from srl.algorithms.preprocessing import reward_transform
from srl.algorithms.prior_replay import WithPrior
from srl.algorithms.replay import Replay
from srl.algorithms.stretch import Stretch
from srl.core.errors import RunError, UserError
from srl.core.lazy import jax
from srl.core.spaces import Space, spaces
from srl.core.types import Array, Tree, Unroll
from srl.record import block_files
from srl.record.array_file import Unreadable, named_leaves
from srl.record.block_files import Blocks
from srl.record.prior import ANY_POLICY, PriorFiles, read_list
from srl.system.shared_memory import available_bytes, size_text


def with_prior(replays: Mapping[str, Tree], priors: Mapping[str, Replay]) -> dict[str, Tree]:
    """Gives replays by policy with the prior data of those that have some."""
    return {
        name: WithPrior(replay, priors[name]) if name in priors else replay
        for name, replay in replays.items()
    }


def priors_of(replays: Mapping[str, Tree]) -> dict[str, Replay]:
    """Gives the prior data of replays, by policy."""
    return {name: x.prior for name, x in replays.items() if isinstance(x, WithPrior)}


def without_prior(replays: Mapping[str, Tree]) -> dict[str, Tree]:
    """Gives replays by policy without their prior data, which checkpoints do not hold."""
    return {name: x.own if isinstance(x, WithPrior) else x for name, x in replays.items()}


def load_prior(
    folder: Path | None, instances: Mapping[str, Any], unrolls: Mapping[str, Unroll], numbers: Any
) -> dict[str, Replay]:
    """Reads the prior data for the slots here, by policy: NumPy's arrays [K, rows, B, ...].

    Unroll i of the data belongs to the policy's slot i mod N, of the N in the run, in whichever
    learner that is. The first unrolls stand twice where they do not divide the slots.

    Args:
        folder: Of the prior data.
        instances: The policies' functions, of which some ask for prior data.
        unrolls: Of the slots here, for their shapes.
        numbers: Gives the numbers of the slots here among a policy's slots, by its name.

    Raises:
        UserError: If the data are not of the environments' form, or too large.
        RunError: If a file is absent or damaged.
    """
    asking = {name: x for name, x in instances.items() if getattr(x.config, "prior", "")}
    if not asking:
        return {}
    if folder is None:
        raise UserError("algorithm.prior needs a run's folder, which holds the prior data")
    listed = read_list(folder)
    _expect_room(folder, listed)
    arrays = _arrays(folder, listed)
    priors: dict[str, Replay] = {}
    for name, instance in asking.items():
        own = _of_policy(arrays, name, listed)
        replay = _replay(own, instance, unrolls[name], listed)
        count, slots = len(replay.reward), max(instance.slots, 1)
        order = np.arange(-(-count // slots))[:, None] * slots + np.asarray(numbers(name))
        priors[name] = jax.tree.map(
            lambda x, order=order % count: np.moveaxis(x[order], 1, 2), replay
        )
    return priors


def _expect_room(folder: Path, listed: PriorFiles) -> None:
    """Raises UserError where memory would not hold the data and their copy for the slots."""
    size = sum(file.stat().st_size for name in listed.files if (file := folder / name).exists())
    if 2 * size > (free := available_bytes()):
        raise UserError(
            f"algorithm.prior: {listed.source} takes {size_text(size)}, twice of it while it is "
            f"read, and {size_text(free)} of memory are free; give less prior data"
        )


def _arrays(folder: Path, listed: PriorFiles) -> dict[str, np.ndarray]:
    """The arrays of all files, each [P, rows, ...]: by update, then by slot."""
    ranges: dict[tuple[int, int], dict[int, dict[str, np.ndarray]]] = {}
    for name, checksum in listed.files.items():
        blocks = Blocks.named(name)
        assert blocks is not None, name
        try:
            parts = ranges.setdefault((blocks.begin, blocks.end), {})
            parts[blocks.part] = block_files.read(folder, name, checksum)
        except Unreadable as error:
            raise RunError(
                f"cannot read the run's prior data: {error}; bring the file back, or begin a new "
                "run"
            ) from error
    flat: list[dict[str, np.ndarray]] = []
    for _, parts in sorted(ranges.items()):
        for part in (parts[number] for number in sorted(parts)):
            flat.append({name: _by_unroll(x) for name, x in part.items() if _is_of_rows(name)})
    names = set.intersection(*(set(part) for part in flat)) if flat else set()
    return {name: np.concatenate([part.pop(name) for part in flat]) for name in sorted(names)}


def _by_unroll(x: np.ndarray) -> np.ndarray:
    """Joins the axes of updates and of slots: [K, rows, B, ...] to [K * B, rows, ...]."""
    return np.moveaxis(x, 2, 1).reshape(-1, x.shape[1], *x.shape[3:])


_FIELDS = ("observation", "reward", "terminated", "truncated", "action", "update", "earlier")


def _is_of_rows(name: str) -> bool:
    """Tells if an array is of a replay's rows: no priorities, and no memories."""
    return any(part in _FIELDS for part in name.split("/")[1:3])


def _of_policy(
    arrays: Mapping[str, np.ndarray], name: str, listed: PriorFiles
) -> dict[str, np.ndarray]:
    """The arrays of the policy of this name, or of the only one that there is, by field."""
    roots = {x.removesuffix("update") for x in arrays if x.endswith("/update")}
    roots = {root for root in roots if f"{root}reward" in arrays}
    fitting = [root for root in roots if root.split("/")[0] in (name, ANY_POLICY)]
    if len(found := fitting or sorted(roots)) != 1:
        there = ", ".join(sorted(root.split("/")[0] for root in roots)) or "none"
        raise UserError(
            f"algorithm.prior: {listed.source} has data of the policies {there}, and this run has "
            f"the policy {name}; give data of a policy of this name, or of a single one"
        )
    own = {x.removeprefix(found[0]): array for x, array in arrays.items() if x.startswith(found[0])}
    known = own.pop("update")[:, 0] >= 0
    if not known.any():
        raise UserError(f"algorithm.prior: {listed.source} is empty; let that run train longer")
    return own if known.all() else {field: array[known] for field, array in own.items()}


def _replay(
    arrays: dict[str, np.ndarray], instance: Any, unroll: Unroll, listed: PriorFiles
) -> Replay:
    """The data as unrolls [P, rows, ...] of the form that the policy's replay has."""
    shapes = jax.eval_shape(instance.empty_replay, unroll)
    nodes = jax.tree.leaves(shapes, is_leaf=lambda node: isinstance(node, Replay))
    form: Replay = next(node for node in nodes if isinstance(node, Replay))
    form = form._replace(memory=(), update=())
    if listed.raw and "action" in arrays:
        arrays["action"] = _own_actions(arrays["action"], instance.specs.action)
        transform = reward_transform(instance.config)
        if transform is not None:
            arrays["reward"] = np.asarray(transform(arrays["reward"]))

    def fitting(name: str, like: Array) -> np.ndarray:
        array = arrays.get(name, np.zeros(0))
        dtype = np.dtype(like.dtype)
        if listed.raw and array.dtype.kind == dtype.kind:
            array = array.astype(dtype)
        if array.dtype != dtype or array.shape[2:] != like.shape[3:]:
            there = f"{array.dtype}{list(array.shape[2:])}" if name in arrays else "absent"
            raise UserError(
                f"algorithm.prior: {name} is {there} in {listed.source}, and {dtype}"
                f"{list(like.shape[3:])} here; give data of the same environment"
            )
        return array

    named = {name: fitting(name, like) for name, like in named_leaves(form).items()}
    return jax.tree.structure(form).unflatten(named.values())


def _own_actions(action: np.ndarray, space: Space) -> np.ndarray:
    """Gives an environment's actions as learning has them."""
    if isinstance(space, spaces.Discrete):
        return (action - space.start).astype(np.int32)
    if isinstance(space, spaces.Box) and action.shape[2:] == space.shape:
        return Stretch(space).inverse(action)
    return action
