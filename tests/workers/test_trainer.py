"""The training loop in one process, on real pools."""

import itertools
from dataclasses import replace

import jax
import numpy as np
import pytest

from srl import Experiment, RunError, UserError
from srl.algorithms import PPO
from srl.checkpoint import Checkpoints
from srl.envs.hide_and_seek import HideAndSeek
from srl.networks import MLP, EntityAttention
from srl.workers.trainer import Trainer
from srl.workers.seeds import environment_seed

CARTPOLE = Experiment(
    name="cartpole",
    env="native:CartPole-v1",
    num_envs=8,
    algorithm=PPO(network=MLP(width=16), unroll_length=16, epochs=2),
    env_steps=10_000,
)
GAME = Experiment(
    name="game",
    env=HideAndSeek(horizon=20),
    num_envs=4,
    algorithm=PPO(network=EntityAttention(width=8, heads=2), unroll_length=8, epochs=1),
    policies={"hider*": "hiders", "seeker*": "seekers"},
    env_steps=10_000,
)
EXPERIMENTS = {"cartpole": CARTPOLE, "game": GAME}


@pytest.fixture
def start():
    trainers = []

    def make(experiment):
        trainer = Trainer(experiment)
        trainers.append(trainer)
        trainer.start()
        return trainer

    yield make
    for trainer in trainers:
        trainer.close()


def train(trainer, updates):
    reports = []
    for _ in range(updates):
        trainer.update()
        report = trainer.report()
        reports.append({k: v for k, v in report.items() if k not in ("fps", "bottleneck") and k[:5] != "time/"})
    return reports


def assert_same(a, b):
    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    assert all(np.array_equal(x, y) for x, y in leaves)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_same_seed_twice_gives_bitwise_the_same_run(start, name):
    one, two = start(EXPERIMENTS[name]), start(replace(EXPERIMENTS[name], threads=1))
    assert train(one, 4) == train(two, 4)
    assert_same(one.state()["learners"], two.state()["learners"])


def test_another_seed_gives_another_run(start):
    one, two = start(CARTPOLE), start(replace(CARTPOLE, seed=1))
    assert train(one, 2) != train(two, 2)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_stopped_run_resumes_bitwise(start, tmp_path, name):
    whole = start(EXPERIMENTS[name])
    reports = train(whole, 7)

    stopped = start(EXPERIMENTS[name])
    train(stopped, 2)
    stopped.update()  # between two reports
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(3, stopped.state(), {}, wait=True)

    resumed = start(EXPERIMENTS[name])
    assert resumed.resumes_exactly
    tree, _ = checkpoints.restore(3, like=resumed.state())
    checkpoints.close()
    resumed.restore(tree)
    first = resumed.report()
    assert first["updates"] == 3
    assert first["loss/value_loss" if name == "cartpole" else "loss/hiders/value_loss"] > 0
    assert train(resumed, 4) == reports[3:]
    assert_same(whole.state()["learners"], resumed.state()["learners"])


def test_other_environments_restart_their_episodes(start):
    experiment = replace(CARTPOLE, env="CartPole-v1")
    stopped, resumed = start(experiment), start(experiment)
    train(stopped, 2)
    resumed.restore(stopped.state())
    assert not resumed.resumes_exactly
    assert resumed.env_steps == stopped.env_steps
    train(resumed, 1)


def test_learn_reads_the_memory_that_the_pool_wrote(start):
    """Counts the copies of an unroll on its way from the simulator to the learner: none."""
    trainer = start(CARTPOLE)
    rows, actions, _ = trainer._blocks[0]
    trainer.update()
    trainer._blocks.reverse()  # look at the unroll that was just learned from
    written = [
        [rows[t].timestep.observation.ctypes.data, rows[t].timestep.reward.ctypes.data]
        for t in range(len(rows))
    ]
    unroll = trainer._unroll([trainer._memory])
    observation = unroll.observation.unsafe_buffer_pointer()
    reward = unroll.reward.unsafe_buffer_pointer()
    size = unroll.observation.dtype.itemsize * 8 * 4
    copies = sum(
        (observation + t * size != row[0]) + (reward + t * 4 * 8 != row[1])
        for t, row in enumerate(written)
    )
    assert copies == 0
    assert unroll.action.unsafe_buffer_pointer() == actions.ctypes.data


def test_only_the_row_between_two_unrolls_is_copied(start):
    trainer = start(CARTPOLE)
    for _ in range(3):
        trainer.update()
        now, before = trainer._blocks[0][0], trainer._blocks[1][0]
        np.testing.assert_array_equal(
            now[0].timestep.observation, before[len(before) - 1].timestep.observation
        )


def test_each_agent_acts_with_the_policy_it_is_mapped_to(start):
    trainer = start(GAME)
    row = trainer._current[0].timestep
    before = np.asarray(trainer._decide(row).action).reshape(4, 4, 5)
    changed = dict(trainer._policies)
    changed["seekers"] = jax.tree.map(lambda x: 30 * x, changed["seekers"])
    trainer._policies = changed
    after = np.asarray(trainer._decide(row).action).reshape(4, 4, 5)
    np.testing.assert_array_equal(before[:, :2], after[:, :2])
    assert (before[:, 2:] != after[:, 2:]).any()


def test_what_a_slot_draws_does_not_depend_on_how_many_slots_there_are(start):
    policies = {}
    for num_envs in (2, 6):
        trainer = start(replace(CARTPOLE, num_envs=num_envs))
        policies[num_envs] = np.asarray(trainer._decide(trainer._current[0].timestep).action)
    np.testing.assert_array_equal(policies[2], policies[6][:2])


@pytest.mark.parametrize(
    ("policies", "told"),
    [
        ({"hider*": "hiders"}, "agent 'seeker_0' fits none of the patterns"),
        ({"*": "all", "seeker*": "seekers"}, "policy 'seekers' gets no agent"),
    ],
)
def test_a_mapping_that_misses_somebody_is_told(start, policies, told):
    with pytest.raises(UserError, match=told):
        start(replace(GAME, policies=policies))


def test_neighbouring_run_seeds_share_no_environment():
    seeds = [environment_seed(seed, "environments") for seed in range(200)]
    ranges = sorted(seeds)
    assert min(b - a for a, b in itertools.pairwise(ranges)) > 10_000


def test_episodes_are_counted_whole(start):
    trainer = start(GAME)
    train(trainer, 5)  # 40 steps: episodes of 20, and the reset step after each
    report = trainer.report()
    assert report["episodes"] == 4
    assert report["episode_length"] == 20
    hiders, seekers = report["episode_return/hiders"], report["episode_return/seekers"]
    assert report["episode_return"] == pytest.approx((hiders + seekers) / 2)


def test_divergence_is_told_before_it_can_be_saved(start):
    trainer = start(replace(CARTPOLE, algorithm=replace(CARTPOLE.algorithm, learning_rate=1e30)))
    trainer.update()
    trainer.update()
    with pytest.raises(RunError, match="training has diverged"):
        trainer.check()
