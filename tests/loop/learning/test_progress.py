"""What a run counts and reports, and the newest policies as threads of its process see them."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from tiny_parts import ENVS, SECONDS, SPECS, TINY, empty_batches

from srl import Lesson
from srl.core.errors import RunError
from srl.loop.acting.parameters import Published
from srl.loop.binding import bind_policy_set
from srl.loop.learning.curriculum import Curriculum
from srl.loop.learning.progress import Progress
from srl.loop.projection import Gathered
from srl.pools.timestep_arrays import empty_timestep
from srl.streams.transport.message import Refused

AGENTS = replace(SPECS, agents=("cat", "dog", "cow"))
MEMBERS = {"policy": (0,)}
LENGTH = 8


@pytest.fixture
def progress():
    return Progress(SPECS, MEMBERS)


@pytest.fixture(scope="module")
def policy_set():
    return bind_policy_set(TINY, SPECS)


def gathered(policy_set, acted, lag=0):
    """A batch whose two groups have acted with these versions."""
    (batch,) = empty_batches(TINY, policy_set)
    batch.version[..., 1] = acted
    made = Gathered(batch)
    made.lag = lag
    return made


def sums(**losses):
    return {"policy": {name: np.float32(x) for name, x in losses.items()}}


@pytest.mark.parametrize(("repeat", "replicas"), [(1, 1), (4, 1), (1, 2), (4, 3)])
def test_steps_are_those_of_all_replicas_and_of_each_repeated_action(repeat, replicas):
    progress = Progress(AGENTS, {"policy": (0, 1, 2)}, repeat)
    progress.replicas = replicas
    timesteps = empty_timestep(AGENTS, 4, (LENGTH,))
    for times in (1, 2):
        progress.count_steps(timesteps)
        assert progress.env_steps == times * LENGTH * 4 * repeat * replicas
        assert progress.agent_steps == 3 * progress.env_steps


def test_the_first_row_of_a_batch_was_counted_with_the_one_before(progress, policy_set):
    progress.count_batch(gathered(policy_set, acted=[0, 0]))
    assert progress.env_steps == LENGTH * TINY.num_envs


def test_episodes_of_unrolls_of_an_earlier_lesson_pass_no_later_one(progress, policy_set):
    """With `max_staleness`, unrolls begun before a lesson are learned from after its begin."""
    lessons = [Lesson({}, "episode_length >= 0", episodes=1)] * 3
    progress.curriculum = Curriculum(lessons, progress.episodes.report())
    for of_groups, lesson in (((0, 0), 1), ((0, 0), 1), ((0, 1), 2)):
        batch = gathered(policy_set, acted=[0, 0])
        batch.batch.timesteps.terminated[1] = True
        batch.batch.timesteps.episode_length[1] = 5 * (1 + np.repeat(of_groups, ENVS))
        batch.lessons = np.array(of_groups)
        progress.count_batch(batch)
        before = progress.episodes.report()
        progress.end_pass()
        assert progress.lesson == lesson
    assert (before["episodes"], before["episode_length"]) == (2 * ENVS + ENVS, 10)
    assert progress.env_steps == 3 * LENGTH * TINY.num_envs


def test_staleness_is_the_age_of_the_oldest_that_acted_but_for_the_loops_own_lag(
    progress, policy_set
):
    for _ in range(5):
        progress.count_update(sums(loss=0))
    progress.count_batch(gathered(policy_set, acted=[5, 3]))
    progress.count_batch(gathered(policy_set, acted=[4, 4], lag=1))
    report = progress.report()
    assert (report["staleness_mean"], report["staleness_max"]) == (1.0, 2)


def test_a_report_is_of_the_time_since_the_last_one(progress, policy_set):
    progress.begin_losses(sums(loss=0))
    progress.count_update(sums(loss=1))
    progress.count_update(sums(loss=6))  # the sum of both updates
    progress.count_batch(gathered(policy_set, acted=[1, 0]))
    first = progress.report()
    assert (first["updates"], first["loss/loss"], first["staleness_max"]) == (2, 3.0, 2)
    assert progress.losses["policy"]["loss"] == 0
    progress.count_update(sums(loss=5))
    progress.count_batch(gathered(policy_set, acted=[3, 3]))
    second = progress.report()
    assert (second["updates"], second["loss/loss"], second["staleness_max"]) == (3, 5.0, 0)
    assert second["env_steps"] == 2 * first["env_steps"]


def test_a_report_of_nothing_has_no_losses_and_no_staleness(progress):
    report = progress.report()
    assert report["env_steps"] == report["updates"] == report["staleness_max"] == 0
    assert report["fps"] == 0
    assert not [name for name in report if name.startswith("loss/")]


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("call", [Progress.check, Progress.report])
def test_a_loss_that_is_no_number_is_named_and_ends_the_run(progress, value, call):
    progress.count_update(sums(policy_loss=0.5, value_loss=value))
    with pytest.raises(RunError, match=f"loss/value_loss is {value} after update 1: .*diverged"):
        call(progress)


def test_of_several_policies_the_one_that_diverged_is_named(progress):
    losses = {"hiders": {"value_loss": np.float32(1)}, "seekers": {"value_loss": np.float32("nan")}}
    progress.count_update(losses)
    with pytest.raises(RunError, match="loss/seekers/value_loss is nan after update 1"):
        progress.report()


def version(n):
    return np.array((0, n), np.int32)


def test_threads_see_the_newest_policies_with_their_version_and_no_older_ones_after():
    published, last, wrong = Published({"policy": 0}, None), 2000, []
    published.publish(version(0), {"policy": 0})

    def look():
        seen = 0
        while seen < last:
            newest, policies = published.newest((0, 0))
            if newest[1] != policies["policy"] or newest[1] < seen:
                wrong.append((newest, policies))
                return
            seen = int(newest[1])

    looking = [threading.Thread(target=look) for _ in range(2)]
    for thread in looking:
        thread.start()
    for n in range(1, last + 1):
        published.publish(version(n), {"policy": n})
    for thread in looking:
        thread.join(SECONDS)
        assert not thread.is_alive()
    assert wrong == []
    published.close()


def test_a_version_that_was_never_published_is_refused():
    published = Published({"policy": 0}, None)
    with pytest.raises(Refused, match=r"\(0, 0\) is wanted, but \(-1, -1\) is the newest"):
        published.awaited((0, 0), since=0.0)
    published.publish(version(3), {"policy": 3})
    for there in ((0, 0), (0, 3)):
        assert published.awaited(there, since=0.0) is None
    for wanted in ((0, 4), (1, 0)):
        with pytest.raises(Refused, match=r"but \(0, 3\) is the newest"):
            published.awaited(wanted, since=0.0)
