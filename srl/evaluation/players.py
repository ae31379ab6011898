"""Policies to evaluate: from a checkpoint, or untrained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srl.algorithms.privileged import policy_specs
from srl.config.experiment import Experiment
from srl.core.errors import UserError, expect
from srl.core.lazy import jax
from srl.core.types import Specs
from srl.evaluation.episodes import Player
from srl.loop.acting.trained import acting_policy_set, trained_policies
from srl.loop.policy_set import PolicySet
from srl.loop.seeds import environment_seed
from srl.pools import make_pool
from srl.pools.python.sources import source_name
from srl.record.checkpoint import BEST, Checkpoints
from srl.record.run_record import RunFolder
from srl.run.folder import open_run

UNTRAINED = "untrained"


@dataclass(frozen=True)
class Side:
    """Policies, and where they come from."""

    player: Player
    source: Mapping[str, Any]
    """The run's folder and the version, or a note that the policies are untrained."""

    @property
    def untrained(self) -> bool:
        """True if nothing was learned."""
        return self.source["run"] == UNTRAINED


def trained(
    experiment: Experiment, folder: RunFolder, specs: Specs, version: int | str | None = None
) -> Side:
    """The policies of a checkpoint, the newest by default.

    Raises:
        UserError: If there is no such checkpoint, or it is of another network.
    """
    policy_set = _policy_set(experiment, specs)
    policies, counts = trained_policies(policy_set, Checkpoints(folder.checkpoints), version)
    source = {"run": str(folder.path), "version": counts["updates"]}
    source["env_steps"] = counts["env_steps"]
    return Side(Player(policy_set, policies), source)


def untrained(experiment: Experiment, specs: Specs, seed: int) -> Side:
    """Policies of the same experiment that have learned nothing."""
    policy_set = _policy_set(experiment, specs)
    key = jax.random.key(environment_seed(experiment.seed, f"{UNTRAINED} {seed}"))
    return Side(Player(policy_set, policy_set.policies(policy_set.init(key))), {"run": UNTRAINED})


def opponent(
    name: str, experiment: Experiment, specs: Specs, seed: int, trust: bool = False
) -> Side:
    """The policies that RUN_DIR[:V] or `untrained` names; V may be `best`.

    Args:
        name: The text.
        experiment: That is played in.
        specs: Of its environments.
        seed: Of untrained policies.
        trust: As for `srl.load`.

    Raises:
        UserError: If they cannot play in the environments of `experiment`.
    """
    expect(isinstance(name, str | Path), "against", name, "RUN_DIR[:V], or untrained")
    name = str(name)
    if name == UNTRAINED:
        return untrained(experiment, specs, seed)
    path, version = Path(name), None
    if not path.is_dir():
        before, colon, after = name.rpartition(":")
        if colon and (after == BEST or after.isdigit()):
            path, version = Path(before), after if after == BEST else int(after)
    folder, resolved = open_run(path, trained=True, trust=trust)
    if resolved.experiment.env != experiment.env:
        names = [
            source_name(getattr(e, "pool_id", e))  # pyright: ignore[reportArgumentType]
            for e in (resolved.experiment.env, experiment.env)
        ]
        with make_pool(resolved.experiment.env) as pool:
            privileged = resolved.experiment.algorithm.privileged
            theirs, ours = (policy_specs(x, privileged) for x in (pool.specs, specs))
            _expect_specs(folder, theirs, ours, names)
    return trained(resolved.experiment, folder, specs, version)


def _policy_set(experiment: Experiment, specs: Specs) -> PolicySet:
    return acting_policy_set(experiment.algorithm, experiment.policies, specs, experiment.num_envs)


def _expect_specs(folder: RunFolder, theirs: Specs, ours: Specs, names: Sequence[str]) -> None:
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
