"""Runs whose policies have learned nothing, which takes no time."""

import contextlib

import jax
import pytest

from srl.loop.policy_set import PolicySet
from srl.record.checkpoint import Checkpoints
from srl.record.run_record import write_specs
from srl.run.folder import create_run


@pytest.fixture(scope="session")
def save_run():
    """Makes the folder of a run with one checkpoint, after 7 updates."""

    def save(resolved, specs, path):
        experiment, folder = resolved.experiment, create_run(resolved, path)
        write_specs(folder, specs)
        policy_set = PolicySet.of(experiment.algorithm, experiment.policies, specs, updates=1)
        states = policy_set.init(jax.random.key(0))
        tree = {"learners": {name: state._asdict() for name, state in states.items()}}
        with contextlib.closing(Checkpoints(folder.checkpoints)) as checkpoints:
            checkpoints.save(7, tree, {"updates": 7, "env_steps": 16}, wait=True)
        return folder.path

    return save
