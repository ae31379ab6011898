"""The learner by itself, on batches of real environments: counts, sums, lost rows, its state."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from small_runs import GAME, assert_same
from tiny_parts import SPECS, TINY, empty_batches

from srl.core.tree import map_tree
from srl.dataflow import plans
from srl.extras.bench.alone import first_timestep
from srl.loop.learning.learner import Learner
from srl.loop.projection import Gathered, Projection
from srl.loop.stepping.local import LocalEnvironments

PLAIN = replace(TINY, plan=plans.replicated(1))


@pytest.fixture(scope="module")
def made():
    """A learner, its state at the beginning, and two batches that its policies have made."""
    learner, environments = Learner(PLAIN, SPECS), LocalEnvironments(PLAIN)
    environments.make()
    learner.compile(environments.prepare(learner, lambda: None))
    environments.begin()
    acting = Projection(PLAIN, environments)  # learns nothing
    batches = []
    for _ in range(2):
        acting.run()
        batches.append(map_tree(np.array, environments.gather(0).batch))
    environments.close()
    return learner, jax.tree.map(np.array, learner.state()), batches


@pytest.fixture
def learner(made):
    """It has learned nothing, nor counted anything since its last report."""
    learner, state, _ = made
    learner.restore(state)
    learner.progress.report()
    learner.progress.episodes_lost = 0
    return learner


@pytest.fixture
def batches(made):
    """Copies, which a test may change."""
    return [map_tree(np.array, batch) for batch in made[2]]


def learn(learner, batch, times=1):
    """As the projection of a loop does that calls `learn` so often."""
    gathered = Gathered(batch)
    for _ in range(times):
        learner.learn(gathered)
        gathered.learned += 1


def losses(learner):
    """The sums since the last report."""
    return jax.tree.map(np.array, learner.progress.losses)


def test_learning_twice_from_a_batch_makes_two_versions_and_counts_its_steps_once(learner, batches):
    epoch, _ = learner.progress.version
    before = jax.tree.map(np.array, learner.policies)
    learn(learner, batches[0], times=2)
    assert learner.progress.version.tolist() == [epoch, 2]
    assert learner.progress.env_steps == 8 * TINY.num_envs
    assert (learner.states["policy"].n == 2).all()
    moved = zip(jax.tree.leaves(before), jax.tree.leaves(learner.policies), strict=True)
    assert any((x != y).any() for x, y in moved)


def test_metrics_add_up_and_are_reported_as_means(learner, made, batches):
    parts = []
    for batch in batches:
        learn(learner, batch)
        parts.append(losses(learner)["policy"])
        learner.progress.report()
    learner.restore(made[1])
    for batch in batches:
        learn(learner, batch)
    both, report = losses(learner)["policy"], learner.progress.report()
    for name, total in both.items():
        added = parts[0][name] + parts[1][name]
        assert total == pytest.approx(added, rel=1e-5)  # but for how a compiler rounds
        assert report[f"loss/{name}"] == pytest.approx(added / 2, rel=1e-5)
    assert not any(x.any() for x in jax.tree.leaves(losses(learner)))


LOST = 4
"""The row of a batch's second environment that is no result, as the environment has died."""


def with_lost_row(batch):
    """As a pool gives it: the row repeats the last observation, and is truncated."""
    steps = batch.timesteps
    for flags in (steps.terminated, steps.truncated):
        flags[:, 1] = False
    steps.lost[LOST, 1] = steps.truncated[LOST, 1] = True
    steps.reward[LOST, 1] = 0
    steps.observation[LOST, 1] = steps.observation[LOST - 1, 1]
    return batch


def test_a_lost_row_ends_the_episode_in_the_row_before_it_to_the_loss_alone(learner, batches):
    batch = with_lost_row(batches[0])
    unroll = learner.unroll(batch)
    assert np.flatnonzero(unroll.truncated[:, 1]).tolist() == [LOST - 1, LOST]
    assert np.flatnonzero(batch.timesteps.truncated[:, 1]).tolist() == [LOST]
    np.testing.assert_array_equal(unroll.truncated[:, 0], batch.timesteps.truncated[:, 0])


def test_all_agents_of_a_lost_environment_end_their_episode():
    specs, _ = first_timestep(GAME, 1)
    learner, agents = Learner(GAME, specs), len(specs.agents)
    batch = empty_batches(GAME, learner.policy_set, 1)[0]
    batch.timesteps.lost[2, 1] = True
    batch.timesteps.truncated[2, agents:] = True
    truncated = learner.unroll(batch).truncated
    lost = agents * [False] + agents * [True]
    assert truncated[1:3].tolist() == [lost, lost]
    assert not np.delete(truncated, [1, 2], axis=0).any()


def test_neither_a_lost_row_nor_the_action_that_led_to_it_enters_the_loss(learner, made, batches):
    batch, other = with_lost_row(batches[0]), map_tree(np.array, batches[0])
    other.timesteps.reward[LOST, 1] = 1e3
    for row in (LOST - 1, LOST):  # of both rows the actions were ignored
        other.action[row, 1] = 1 - other.action[row, 1]
        other.log_prob[row, 1] -= 1
    learn(learner, batch)
    states = jax.tree.map(np.array, learner.states)
    learner.restore(made[1])
    learn(learner, other)
    assert_same(learner.states, states)


def test_statistics_see_no_end_of_a_lost_episode_but_count_it(learner, batches):
    batch = with_lost_row(batches[0])
    ended = batch.timesteps.terminated | batch.timesteps.truncated
    learn(learner, batch)
    report = learner.progress.report()
    assert report["episodes"] == np.delete(ended, 1, axis=1)[1:].sum()
    assert report["episodes_lost"] == 1


def test_a_learner_makes_the_same_update_from_a_saved_state(learner, batches):
    learn(learner, batches[0])
    state = jax.tree.map(np.array, learner.state())
    epoch, _ = learner.progress.version
    learn(learner, batches[1])
    after = jax.tree.map(np.array, (learner.states, learner.policies, learner.progress.losses))
    learner.restore(state)
    assert learner.progress.version.tolist() == [epoch + 1, 1]
    assert learner.progress.env_steps == 8 * TINY.num_envs
    learn(learner, batches[1])
    again = learner.states, learner.policies, learner.progress.losses
    assert_same(again, after)
