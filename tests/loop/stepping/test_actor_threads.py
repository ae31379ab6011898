"""Actor threads: what becomes of a group that fails, hangs, or is told that the run is over."""

import itertools
import threading
from dataclasses import replace

import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from tiny_parts import ENVS, SECONDS, SPECS, TINY, Ends, by_threads, with_program
from waiting import wait_until

from srl import Lesson, make_pool
from srl.core.errors import RunError
from srl.loop.learning.learner import Learner
from srl.loop.stepping import actors
from srl.loop.stepping.actors import ActorThreads
from srl.loop.stepping.threads import ThreadEnvironments
from srl.pools.lessons import LessonPool


class Falls(CartPoleEnv):
    """Cannot take its third step."""

    def reset(self, **arguments):
        self.steps = 0
        return super().reset(**arguments)

    def step(self, action):
        self.steps += 1
        if self.steps == 3:
            raise KeyError("joint_3")
        return super().step(action)


class Waits(CartPoleEnv):
    """Its steps wait for a gate to open."""

    def __init__(self, gate):
        super().__init__()
        self.gate = gate

    def step(self, action):
        assert self.gate.wait(SECONDS)
        return super().step(action)


@pytest.fixture
def ends(learner, act):
    """The learner's end, which takes unrolls in from the beginning."""
    made = Ends(TINY, learner, act)
    made.environments.latest()
    yield made
    made.close()


@pytest.fixture
def gate():
    opened = threading.Event()
    yield opened
    opened.set()  # threads that wait at it hold their pools


@pytest.fixture
def threads(ends):
    """Actor threads of one worker, given the environments of each of its two groups."""
    made = []

    def start(*envs):
        pools = [make_pool(env, ENVS) for env in envs]
        endpoints, newest = ends.endpoints("actors", 0), ends.published.newest
        made.append(ActorThreads(endpoints, pools, ends.learner.policy_set, newest))
        made[-1].start()
        return made[-1]

    yield start
    ends.stopping.set()
    for each in made:
        each.close()


def test_what_a_group_raises_is_raised_where_the_worker_waits(threads):
    actors = threads(TINY.env, Falls)
    with pytest.raises(RunError, match="joint_3"):
        actors.wait(lambda: None)
    with pytest.raises(RunError, match="joint_3"):
        actors.check()


def test_after_an_error_groups_that_hang_are_left(threads, gate, monkeypatch):
    """Their pools are too, as a thread still steps them."""
    monkeypatch.setattr(actors, "_LAST_SECONDS", 0.1)
    worker = threads(lambda: Waits(gate), Falls)
    with pytest.raises(RunError, match="joint_3"):
        worker.wait(lambda: None)
    worker.close()  # which returns though the gate is shut
    assert worker.failed
    assert not gate.is_set()


def test_what_the_last_group_raised_is_raised_also_if_nobody_waited_yet(threads):
    actors = threads(Falls, Falls)
    actors.close()  # once they have ended
    with pytest.raises(RunError, match="joint_3"):
        actors.wait(lambda: None)


def test_a_group_that_hangs_is_known_and_no_progress_is_shown_whatever_others_do(threads, gate):
    actors = threads(TINY.env, lambda: Waits(gate))
    wait_until(lambda: actors.all_progressed() and actors.stepping)
    wait_until(lambda: actors.quiet == {1})  # the other one shows that it waits for a ticket
    assert not actors.all_progressed()
    gate.set()
    wait_until(actors.all_progressed)
    actors.check()


def test_groups_may_take_as_long_to_begin_a_lesson_as_a_worker_to_start(
    learner, act, gate, monkeypatch
):
    lesson, begun = Lesson({}, "updates > 1"), []

    def make(num_envs):
        if num_envs > 1:  # one is made to check the lesson
            begun.append(num_envs)
            assert gate.wait(SECONDS)
        return make_pool(TINY.env, num_envs)

    ends = Ends(replace(TINY, curriculum=(lesson,)), learner, act)
    ends.environments.latest()
    ends.sink.lesson = 1
    pools = [LessonPool([lambda n: make_pool(TINY.env, n), make], ENVS) for _ in range(2)]
    endpoints, newest = ends.endpoints("actors", 0), ends.published.newest
    threads = ActorThreads(endpoints, pools, learner.policy_set, newest)
    threads.start()
    try:
        wait_until(lambda: len(begun) == 2)
        assert [threads.all_progressed() for _ in range(3)] == [True] * 3
        monkeypatch.setattr(actors, "BEGIN_SECONDS", 0.0)
        assert not threads.all_progressed()
        gate.set()
        wait_until(threads.all_progressed)
        threads.check()
    finally:
        gate.set()
        ends.stopping.set()
        threads.close()
        ends.close()


def test_the_environments_that_hang_are_named(learner, gate):
    numbers = itertools.count()

    def make():
        return Waits(gate) if next(numbers) >= ENVS else CartPoleEnv()

    environments = ThreadEnvironments(replace(TINY, env=make))
    assert environments.awaited == ""
    try:
        environments.make()
        environments.prepare(learner, lambda: None)
        environments.latest()
        gathering = threading.Thread(target=environments.gather, args=(0,), daemon=True)
        gathering.start()
        wait_until(lambda: environments.awaited == "environments 2 to 3 to step")
        assert gathering.is_alive()
        gate.set()
        gathering.join(SECONDS)
        assert not gathering.is_alive()
    finally:
        gate.set()
        environments.close()


def test_a_compiled_group_shows_progress_within_an_unroll(learner, act):
    experiment = replace(
        with_program(TINY, "80000:1"), plan=by_threads(compiled=True), num_envs=4, groups=2
    )
    ends = Ends(experiment, Learner(experiment, SPECS), act)
    try:
        endpoints, newest = ends.endpoints("actors", 0), ends.published.newest
        pools = [ends.pool() for _ in range(2)]
        actors = ActorThreads(endpoints, pools, ends.learner.policy_set, newest)
        ends.environments.latest()
        actors.start()
        wait_until(lambda: actors.stepping)
        for _ in range(3):
            wait_until(actors.all_progressed)
            assert actors.env_steps == 0
    finally:
        ends.stopping.set()
        actors.close()
        ends.close()


def test_all_groups_are_seen_to_step_before_any_pass_is_over(threads, gate):
    actors = threads(lambda: Waits(gate), lambda: Waits(gate))
    wait_until(lambda: actors.stepping)
    assert actors.env_steps == 0


def test_stepping_is_seen_also_if_a_group_hangs_before_the_last_one_begins(threads, gate):
    hangs, may_begin, stepping = (threading.Event() for _ in range(3))

    class Hangs(Waits):
        def step(self, action):
            hangs.set()
            return super().step(action)

    class BeginsLate(CartPoleEnv):
        def reset(self, **arguments):
            assert may_begin.wait(SECONDS)
            return super().reset(**arguments)

    actors = threads(lambda: Hangs(gate), BeginsLate)
    waiting = threading.Thread(
        target=actors.wait, args=(lambda: None, stepping.set), name="waits", daemon=True
    )
    waiting.start()
    assert hangs.wait(SECONDS)
    actors._show(1)  # as one that waits for its ticket or an action does
    wait_until(lambda: actors.quiet == {0, 1})
    assert not stepping.is_set()
    may_begin.set()
    assert stepping.wait(SECONDS)


def test_groups_end_quietly_once_their_worker_is_to_end(threads, ends):
    actors = threads(TINY.env, TINY.env)
    assert ends.environments.gather(0) is not None
    ends.stopping.set()
    actors.wait(lambda: None)
    assert actors.env_steps == TINY.num_envs * TINY.graph.steps  # each has done one unroll
    assert actors.all_progressed()  # who has ended holds nobody up
