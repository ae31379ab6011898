"""Runs that remember: they go on exactly, survive the death of their learner and keep the bound."""

import itertools
import os
import shutil

import numpy as np
import pytest
from real_runs import GROUPS, STEPS_OF_UPDATE, RealRun, Trouble

from srl.api.cli import main
from srl.core.tree import leaves_of
from srl.record import block_files
from srl.record.block_files import Blocks
from srl.record.checkpoint import Checkpoints

NATIVE = repr("native:CartPole-v1")
BLOCKS = 10
"""Unrolls that are remembered of each slot."""
DQN = [
    *("--algorithm", "DQN", "--algorithm.unroll-length", 16, "--algorithm.batch-size", 32),
    *("--algorithm.samples-per-insert", 0.5, "--algorithm.warm-up", 256),
    *("--algorithm.priorities", 0.6, "--algorithm.replay", BLOCKS * STEPS_OF_UPDATE),
]
SAC = [
    *("--algorithm", "SAC", "--algorithm.unroll-length", 16, "--algorithm.batch-size", 32),
    *("--algorithm.burn-in", 4, "--algorithm.sequence", 4, "--algorithm.network.memory", 4),
    *("--algorithm.samples-per-insert", 0.5, "--algorithm.warm-up", 256),
    *("--algorithm.replay", BLOCKS * STEPS_OF_UPDATE),
]
"""With memory."""
LEARNERS = {"inline": 1, "replicated": 2}


def remembered(folder):
    """The newest checkpoint: its tree, and the arrays of each of the files that it needs."""
    checkpoints = Checkpoints(folder / "checkpoints")
    tree, damaged = checkpoints.restore_newest()
    files = checkpoints.replay_files()
    checkpoints.close()
    assert not damaged
    return tree, {
        name: block_files.read(checkpoints.replay_folder, name, x) for name, x in files.items()
    }


def newest_blocks(arrays, part):
    """What one learner remembers: the newest blocks of each array, oldest first."""
    own = sorted((Blocks.named(name), found) for name, found in arrays.items())
    own = [found for blocks, found in own if blocks.part == part]
    names = [name for name in own[-1] if name.startswith("policy/unrolls")]
    rings = {name: np.concatenate([found[name] for found in own])[-BLOCKS:] for name in names}
    return {**own[-1], **rings}


@pytest.mark.parametrize(
    ("plan", "env", "algorithm"),
    [
        ("inline", "native:CartPole-v1", DQN),
        pytest.param("inline", "native:Pendulum-v1", SAC, marks=pytest.mark.slow),
        pytest.param("replicated", "native:CartPole-v1", DQN, marks=pytest.mark.slow),
    ],
)
def test_a_run_that_was_cut_off_goes_on_to_the_last_bit(tmp_path, plan, env, algorithm):
    early, updates = 11, 15
    words = ["--plan", plan, "--updates", updates, *algorithm, "--checkpoint-minutes", 0]
    words += ["--keep-checkpoints", updates]
    with RealRun(tmp_path, *words, env=repr(env)) as run:
        assert run.end() == 0, run.told
    shutil.copytree(tmp_path / "run", tmp_path / "cut")
    for version in range(early + 1, updates + 1):
        os.unlink(tmp_path / "cut" / "checkpoints" / f"{version}.safetensors")
    with RealRun(tmp_path, command=["resume", str(tmp_path / "cut")]) as run:
        assert run.end() == 0, run.told
    assert f"goes on after {early * STEPS_OF_UPDATE:,} env steps" in run.told
    (whole, arrays), (resumed, others) = remembered(tmp_path / "run"), remembered(tmp_path / "cut")
    for name in ("learners", "episodes"):
        for a, b in zip(leaves_of(whole[name]), leaves_of(resumed[name]), strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(whole["environments"], resumed["environments"])
    for part in range(LEARNERS[plan]):
        one, other = newest_blocks(arrays, part), newest_blocks(others, part)
        for name, array in one.items():
            np.testing.assert_array_equal(array, other[name])
        kept = one["policy/unrolls/update"]
        assert kept[:, 0, 0].tolist() == list(range(updates - BLOCKS, updates))


def test_a_learner_that_dies_goes_on_with_what_it_remembered(tmp_path):
    env_steps = 6_000
    words = ["--plan", "decoupled", "--env-steps", env_steps, "--checkpoint-minutes", 0.001, *DQN]
    with RealRun(tmp_path, *words, pace="0.01") as run:
        run.wait(lambda: run.checkpoint() >= 2)
        trouble = Trouble(run, seed=0)
        trouble.strike_often(["learner-0"], 1)
        trouble.over()
        run.order("go")
        assert run.end() == 0, run.told
    updates = -(-env_steps // STEPS_OF_UPDATE)
    assert run.deaths() == {"learner-0": 1}
    assert "holds no replay" not in run.told
    assert run.metrics()[-1]["updates"] == updates
    produced, learned, in_flight, lost, rolled_back = run.account()
    assert produced == learned + in_flight + lost + rolled_back
    assert learned == updates * GROUPS
    _, arrays = remembered(run.folder)
    kept = newest_blocks(arrays, 0)["policy/unrolls/update"]
    assert (kept[:, 0] == np.arange(updates - BLOCKS, updates)[:, None]).all()


@pytest.mark.parametrize("bound", [1])
def test_the_bound_holds_for_what_is_remembered(tmp_path, bound):
    words = ["--plan", "threads", "--max-staleness", bound, "--updates", 15, *DQN]
    with RealRun(tmp_path, *words, pace="0.001") as run:
        assert run.end() == 0, run.told
    found = [line["staleness_max"] for line in run.metrics()]
    assert len(found) == 15
    assert min(found) == 0
    assert 1 <= max(found) <= bound


def test_without_a_kept_replay_a_resumed_run_warms_up_before_it_learns_on(tmp_path, capsys):
    early, updates = 4, 8
    words = ["--num-envs", 8, "--groups", 4, "--algorithm.network.mlp.width", 16, *DQN]
    words += ["--plan", "replicated", "--plan.learners.replicas", 1, "--updates", updates]
    words += ["--algorithm.keep-replay", "false", "--run-dir", tmp_path / "run"]
    words += ["--checkpoint-minutes", 0, "--keep-checkpoints", 99]
    assert main(["run", "native:CartPole-v1", *map(str, words)]) == 0
    assert not list((tmp_path / "run" / "checkpoints").rglob("replay/*"))
    for version in range(early + 1, updates + 1):
        os.unlink(tmp_path / "run" / "checkpoints" / f"{version}.safetensors")
    assert main(["resume", str(tmp_path / "run")]) == 0
    assert "the checkpoint holds no replay" in capsys.readouterr().out
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints")
    trees = [checkpoints.restore(n)[0] for n in range(1, updates + 1)]
    checkpoints.close()
    leaves = [leaves_of(tree["learners"]["policy"]["params"]) for tree in trees]
    changed = [
        any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))
        for one, other in itertools.pairwise(leaves)
    ]
    # Of updates 2 to 8: warm-up takes two, the second of which learns; so it does again.
    assert changed == [True] * 3 + [False] + [True] * 3
