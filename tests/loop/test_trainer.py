"""The training loop in one process, on real pools."""

import itertools
from dataclasses import replace

import jax
import numpy as np
import pytest
from small_runs import CARTPOLE, GAME, RECURRENT, TEAM, assert_same, train

from srl import RunError, UserError
from srl.algorithms import MAPPO
from srl.dataflow import plans
from srl.loop.fused import Fused
from srl.loop.seeds import environment_seed
from srl.loop.training import local_training
from srl.networks import MLP
from srl.record.checkpoint import Checkpoints

RECURRENT_GAME = replace(GAME.algorithm, network=MLP(width=8, depth=1, memory=4), chunk=4)
MULTI_AGENT = MAPPO(**(vars(RECURRENT_GAME) | {"privileged": ("box_obs", "lidar")}))
EXPERIMENTS = {
    "cartpole": CARTPOLE,
    "game": GAME,
    "team": TEAM,
    "recurrent": RECURRENT,
    "in JAX": replace(CARTPOLE, env="jax:gymnax:CartPole-v1"),
    "game by MAPPO": replace(GAME, algorithm=MULTI_AGENT),
}
LOSSES = {"team": "q_loss", **dict.fromkeys(("game", "game by MAPPO"), "hiders/value_loss")}


@pytest.mark.parametrize("name", ["cartpole", pytest.param("game", marks=pytest.mark.slow)])
def test_the_same_seed_twice_gives_bitwise_the_same_run(start, name):
    one, two = start(EXPERIMENTS[name]), start(replace(EXPERIMENTS[name], threads=1))
    reports = train(two, 2)
    two.state()  # for a checkpoint, which changes nothing
    assert train(one, 4) == reports + train(two, 2)
    assert_same(one.state()["learners"], two.state()["learners"])


@pytest.mark.parametrize("kind", [local_training, Fused])
def test_unrolls_that_memory_would_not_hold_are_refused_before_they_are_made(start, kind):
    long = replace(CARTPOLE.algorithm, unroll_length=2**28)
    with pytest.raises(UserError, match=r"unrolls would take .* of memory, .* a shorter"):
        start(replace(CARTPOLE, num_envs=1000, algorithm=long), kind)


@pytest.mark.parametrize("kind", [local_training, Fused])
def test_unrolls_that_leave_no_memory_to_learn_from_them_are_refused(start, kind, monkeypatch):
    monkeypatch.setattr("srl.streams.batch.available_bytes", lambda: 2**20)
    large = replace(CARTPOLE, num_envs=1024)
    with pytest.raises(UserError, match=r"would take 723 KiB of memory, what is learned from"):
        start(large, kind)


def test_another_seed_gives_another_run(start):
    one, two = start(CARTPOLE), start(replace(CARTPOLE, seed=1))
    assert train(one, 2) != train(two, 2)


SLOW = (("game", local_training), ("cartpole", Fused))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, local_training) for name in ("cartpole", "team", "game by MAPPO")),
        *(("recurrent", Fused), ("in JAX", Fused)),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW),
    ],
)
def test_a_stopped_run_resumes_bitwise(start, tmp_path, name, kind):
    whole = start(EXPERIMENTS[name], kind)
    train(whole, 2)
    whole.update()  # between two reports
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(3, whole.state(), {}, wait=True)
    files = whole.save_replays(tmp_path / "replay")
    whole.report()
    reports = train(whole, 4)  # what was saved is not touched

    resumed = start(EXPERIMENTS[name], kind)
    assert resumed.environments.resumes_exactly
    tree, _ = checkpoints.restore(3, like=resumed.state())
    checkpoints.close()
    resumed.restore(tree)
    resumed.restore_replays(tmp_path / "replay", files)
    first = resumed.report()
    assert first["updates"] == 3
    assert first[f"loss/{LOSSES.get(name, 'value_loss')}"] > 0
    assert train(resumed, 4) == reports
    assert_same(whole.state()["learners"], resumed.state()["learners"])


def test_other_environments_restart_their_episodes(start):
    experiment = replace(CARTPOLE, env="CartPole-v1")
    stopped, resumed = start(experiment), start(experiment)
    train(stopped, 2)
    resumed.restore(stopped.state())
    assert not resumed.environments.resumes_exactly
    assert resumed.learner.progress.env_steps == stopped.learner.progress.env_steps
    train(resumed, 1)


def batch_of(trainer):
    """The memory that unrolls are written into."""
    return trainer.environments.gather(0).batch


def first_actions(trainer, policies=None):
    """What would be done now, by other policies if they are given."""
    group, learner = trainer.environments.groups[0], trainer.learner
    learner.policies = policies or learner.policies
    group._acting.begin((0, 0))
    decision, _ = group._acting.decide(group._last, group._memory, 0)
    return decision.action


def test_learn_reads_the_memory_that_the_pool_wrote(start):
    """Counts the copies of an unroll on its way from the simulator to the learner: none."""
    trainer = start(CARTPOLE)
    trainer.update()
    batch, rows = batch_of(trainer), trainer.environments.groups[0]._destination.rows
    unroll = trainer.learner.prepared(batch)
    assert unroll.action.unsafe_buffer_pointer() == batch.action.ctypes.data
    for name in ("observation", "reward"):
        read = getattr(unroll, name).unsafe_buffer_pointer()
        stride = getattr(batch.timesteps, name).strides[0]
        written = [getattr(rows[t].timestep, name).ctypes.data for t in range(len(rows))]
        assert written == [read + t * stride for t in range(len(rows))]


def test_an_unroll_begins_with_the_row_that_ended_the_one_before(start):
    trainer = start(CARTPOLE)
    trainer.update()
    for _ in range(3):
        last = batch_of(trainer).timesteps.observation[-1].copy()
        trainer.update()
        np.testing.assert_array_equal(batch_of(trainer).timesteps.observation[0], last)


def test_each_agent_acts_with_the_policy_it_is_mapped_to(start):
    trainer = start(GAME)
    before = first_actions(trainer).reshape(4, 4, 5)
    changed = dict(trainer.learner.policies)
    changed["seekers"] = jax.tree.map(lambda x: 30 * x, changed["seekers"])
    after = first_actions(trainer, changed).reshape(4, 4, 5)
    np.testing.assert_array_equal(before[:, :2], after[:, :2])
    assert (before[:, 2:] != after[:, 2:]).any()


def test_what_a_slot_draws_does_not_depend_on_how_many_slots_there_are(start):
    few, many = (first_actions(start(replace(CARTPOLE, num_envs=n))) for n in (2, 6))
    np.testing.assert_array_equal(few, many[:2])


def test_groups_take_turns_and_fill_their_own_columns(start):
    trainer = start(replace(CARTPOLE, plan=plans.replicated(1), groups=4))
    assert train(trainer, 2)[-1]["env_steps"] == 2 * 16 * 8
    batch = batch_of(trainer)
    lasts = np.concatenate([group._last.observation for group in trainer.environments.groups])
    np.testing.assert_array_equal(batch.timesteps.observation[-1], lasts)


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
        trainer.learner.progress.check()
