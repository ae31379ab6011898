"""Policies to evaluate: from a checkpoint, or untrained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srl.checkpoint import Checkpoints
from srl.errors import UserError
from srl.experiment import Experiment
from srl.lazy import jax
from srl.loop.seeds import environment_seed
from srl.loop.teams import Teams
from srl.pools import make_pool
from srl.pools.python.sources import source_name
from srl.run.folder import RunFolder, open_run
from srl.types import Specs, Tree
from srl.workers.evaluator import Player

UNTRAINED = "untrained"


@dataclass(frozen=True)
class Side:
    """Policies, and where they come from."""

    player: Player
    source: Mapping[str, Any]
    """The run's folder and the version, or that they are untrained."""

    @property
    def untrained(self) -> bool:
        """Whether nothing was learned."""
        return self.source["run"] == UNTRAINED


def trained(
    experiment: Experiment, folder: RunFolder, specs: Specs, version: int | None = None
) -> Side:
    """The policies of a checkpoint, the newest by default.

    Raises:
        UserError: There is no such checkpoint, or it is of another network.
    """
    learners, counts = Checkpoints(folder.checkpoints).learners(version)
    teams = _teams(experiment, specs)
    states = teams.init(jax.random.key(0))
    for name, state in states.items():
        # What only learning needs may have another form.
        held = state._asdict()
        acting = {part: held[part] for part in ("params", "observations") if part in held}
        acting = _filled(acting, learners.get(name, {}), folder, name)
        states[name] = state._replace(**acting)
    return Side(
        Player(teams, teams.policies(states)),
        {
            "run": str(folder.path),
            "version": counts["updates"],
            "env_steps": counts["env_steps"],
        },
    )


def untrained(experiment: Experiment, specs: Specs, seed: int) -> Side:
    """Policies of the same experiment that have learned nothing."""
    teams = _teams(experiment, specs)
    key = jax.random.key(environment_seed(experiment.seed, f"{UNTRAINED} {seed}"))
    return Side(Player(teams, teams.policies(teams.init(key))), {"run": UNTRAINED})


def opponent(name: str, experiment: Experiment, specs: Specs, seed: int) -> Side:
    """The policies that RUN_DIR[:V] or `untrained` names.

    Raises:
        UserError: They cannot play in the environments of `experiment`.
    """
    if name == UNTRAINED:
        return untrained(experiment, specs, seed)
    path, version = Path(name), None
    if not path.is_dir():
        before, colon, after = name.rpartition(":")
        if colon and after.isdigit():
            path, version = Path(before), int(after)
    folder, resolved = open_run(path, trained=True)
    if resolved.experiment.env != experiment.env:
        names = [
            source_name(getattr(e, "pool_id", e)) for e in (resolved.experiment.env, experiment.env)
        ]
        with make_pool(resolved.experiment.env) as pool:
            _refuse_other_specs(folder, pool.specs, specs, names)
    return trained(resolved.experiment, folder, specs, version)


def _teams(experiment: Experiment, specs: Specs) -> Teams:
    # Nothing is learned here, so any number of updates will do; with one and the same, policies
    # of runs of different lengths are computed by the same program.
    return Teams.of(experiment.algorithm, experiment.policies, specs, updates=1)


def _filled(like: Tree, saved: Mapping[str, Any], folder: RunFolder, policy: str) -> Any:
    """The saved arrays in the form of `like`."""
    paths, structure = jax.tree_util.tree_flatten_with_path(like)
    arrays = []
    for path, leaf in paths:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        array: Any = saved
        for part in name.split("/"):
            array = array.get(part) if isinstance(array, Mapping) else None
        if _form(array) != _form(leaf):
            raise UserError(
                f"the checkpoint in {folder.path} is of another network: {policy}/{name} is "
                f"{_form(array)} in it and {_form(leaf)} here; restore the code that the run was "
                "made with"
            )
        arrays.append(array)
    return jax.device_put(structure.unflatten(arrays))


def _form(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)}" if hasattr(array, "dtype") else "absent"


def _refuse_other_specs(
    folder: RunFolder, theirs: Specs, ours: Specs, names: Sequence[str]
) -> None:
    parts = {"agents": "agents", "actions": "action", "observations": "observation"}
    differing = [
        name for name, part in parts.items() if getattr(theirs, part) != getattr(ours, part)
    ]
    if differing:
        raise UserError(
            f"the policies of {folder.path} cannot play here: their environment, {names[0]}, "
            f"differs from this run's, {names[1]}, in its {' and '.join(differing)}; choose a run "
            "on the same environment with the same options"
        )
