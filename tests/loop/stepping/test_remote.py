"""The learner's end of the streams, and groups that deliver to it: batches, states, deaths."""

import itertools
import threading
from dataclasses import replace

import jax
import numpy as np
import pytest
from small_runs import assert_same
from tiny_parts import SECONDS, SPECS, TINY, Ends, run_pass, with_program
from waiting import wait_until

from srl.core.errors import RunError
from srl.core.tree import map_tree
from srl.loop.acting.local_acting import compiled_act
from srl.loop.learning.learner import Learner
from srl.loop.projection import Projection
from srl.loop.stepping.local import LocalEnvironments
from srl.streams.group_state import Stopped

BACKWARD = with_program(TINY, "4,4:1")
"""Two unrolls of a policy, of which the second is learned from first."""
FORWARD = with_program(TINY, "4:1 4:1")
"""An unroll and a learn, twice."""


class Slow(Learner):
    """Its device takes so long that the following batch is there before it is done."""

    def learn(self, batch):
        super().learn(batch)
        looks = iter([False, True])
        self.meanwhile(lambda: next(looks))


@pytest.fixture(scope="module")
def compiled():
    """A learner, its state at the beginning, and its compiled `act`."""
    learner = Slow(FORWARD, SPECS)
    local = LocalEnvironments(FORWARD)
    local.make()
    learner.compile(local.prepare(learner, lambda: None))
    local.close()
    # A copy: learning donates the arrays.
    state = jax.tree.map(np.array, learner.state())
    return learner, state, compiled_act(learner.policy_set)


@pytest.fixture
def ends(compiled):
    made = []

    def begin(experiment=BACKWARD, restored=None, **settings):
        """The learner's end, which has begun."""
        learner, state, act = compiled
        learner.restore(state)
        learner.progress.report()  # what other tests have left
        made.append(Ends(replace(experiment, **settings), learner, act))
        if restored is not None:
            made[-1].environments.restore(restored)
        made[-1].environments.latest()
        return made[-1]

    yield begin
    for each in made:
        each.close()


class Noted(Projection):
    """Keeps what the calls of the loop gave."""

    def __init__(self, *halves):
        super().__init__(*halves)
        self.gathered = []

    def gather(self, unroll):
        batch = super().gather(unroll)
        self.gathered.append((unroll, batch, batch.unroll is not None))
        return batch


def learning(end):
    return Noted(end.experiment, end.environments, end.learner)


class Running(threading.Thread):
    """Runs passes of a group until it is stopped; waits before a step at which it is held."""

    def __init__(self, end, number, held_at=None):
        super().__init__(daemon=True)
        self.held, self.go = threading.Event(), threading.Event()
        self.steps, self.held_at, self.error = itertools.count(), held_at, None
        self.experiment, self.group = end.experiment, end.group(number, self.before_step)
        self.start()

    def before_step(self):
        if next(self.steps) == self.held_at:
            self.held.set()
            assert self.go.wait(SECONDS)

    def run(self):
        try:
            while True:
                run_pass(self.experiment, self.group)
        except BaseException as error:
            self.error = error

    def ended(self):
        """Waits for the end, and gives why it came."""
        self.join(SECONDS)
        assert not self.is_alive()
        return type(self.error)


def forget_ticket(limiter):
    del limiter._holders[0]


def forget_unroll(limiter):
    limiter._batches[0].missing += 1


def lose_nothing(limiter):
    limiter._lost += 1


def learn_twice(limiter):
    limiter._learned += 1


@pytest.mark.parametrize("miscount", [forget_ticket, forget_unroll, lose_nothing, learn_twice])
def test_a_count_of_unrolls_that_is_off_by_one_fails_the_next_report(ends, miscount):
    end = ends()
    end.sink.join(0)
    end.sink.join(1)
    end.sink.take(0)
    end.sink.deliver(1, end.sink.take(1).ticket)
    assert end.environments.report()["unrolls/in_flight"] == 2
    miscount(end.sink.limiter)
    end.sink.learn_from(7)  # anything that counts
    with pytest.raises(RunError, match="unrolls of learner 0 does not add up: 2 produced, but"):
        end.environments.report()


def account(end):
    counts = end.ledger.account()
    return {"granted": counts.produced, "learned": counts.learned, "lost": counts.lost}


@pytest.mark.parametrize("experiment", [FORWARD, BACKWARD], ids=["forward", "backward"])
def test_each_gather_gives_the_batch_of_its_unroll_also_where_another_was_prefetched(
    ends, experiment
):
    passes = 4
    end = ends(experiment, max_staleness=3)
    groups = [end.group(number) for number in range(2)]
    learner, batches = learning(end), end.sink.batches
    made = []  # the first rows of unrolls, as the batches of a pass hold them

    def act():
        for group in groups:
            run_pass(experiment, group)
        first = 2 * len(made)
        pair = [batches[(first + k) % len(batches)] for k in range(2)]
        made.append(pair)

    act()
    for number in range(passes):
        act()  # a pass ahead of the learner
        before = [map_tree(np.array, batch) for batch in made[number]]
        learner.run()
        end.environments.latest()
        for unroll, gathered, _ in learner.gathered[-2:]:
            assert gathered.batch is made[number][unroll]
            assert_same(gathered.batch, before[unroll])
            assert_same(gathered.unroll, end.learner.unroll(gathered.batch))
            assert gathered.learned == 1
    prefetched = [there for _, _, there in learner.gathered]
    assert any(prefetched) or experiment is BACKWARD  # what follows is learned from before
    assert account(end)["learned"] == 4 * passes
    assert end.learner.progress.env_steps == passes * 2 * 4 * TINY.num_envs


def test_a_batch_comes_with_the_lessons_of_its_unrolls(ends):
    end = ends(FORWARD, max_staleness=1)
    for lesson in (0, 1):
        end.sink.lesson = lesson
        for group in end.sink.groups:
            end.sink.deliver(group, end.sink.take(group).ticket)
    assert end.environments.gather(0).lessons.tolist() == [0, 0]
    end.environments._prefetch(lambda: False)
    assert end.environments._prefetched.lessons.tolist() == [1, 1]


def test_states_asked_for_in_the_midst_of_an_unroll_are_those_at_its_end(ends):
    end = ends()
    groups = [Running(end, number, held_at=2) for number in range(2)]
    for group in groups:
        assert group.held.wait(SECONDS)
    states = {}
    asking = threading.Thread(target=lambda: states.update(end.environments.states()))
    asking.start()
    wait_until(lambda: all(map(end.sink.wants_state, range(2))))
    for group in groups:
        group.go.set()
    asking.join(SECONDS)
    assert [int(states[number]["clock"]) for number in range(2)] == [4, 4]  # of 8 in a pass
    following = end.sink.gather(1, SECONDS)
    for number, state in states.items():
        own = following.columns(number, 2).timesteps
        assert_same(state["timestep"], map_tree(lambda x: x[0], own)._asdict())
    end.stopping.set()
    assert [group.ended() for group in groups] == [Stopped, Stopped]


def test_groups_go_on_from_states_of_all_and_begin_anew_from_those_of_some(ends):
    end = ends()
    for number in range(2):
        run_pass(BACKWARD, end.group(number))
    states = {number: end.group(number).state() for number in range(2)}
    again = ends(restored=states)
    assert again.environments.resumes_exactly
    assert_same([again.group(number).state() for number in range(2)], list(states.values()))
    fewer = ends(restored={0: states[0]})
    assert not fewer.environments.resumes_exactly
    assert fewer.sink.saved == {}


def test_groups_of_a_worker_that_is_to_end_finish_the_unrolls_that_they_had_begun(ends):
    end = ends()
    groups = [Running(end, number, held_at=2) for number in range(2)]
    for group in groups:
        assert group.held.wait(SECONDS)
    end.stopping.set()
    for group in groups:
        group.go.set()
    assert [group.ended() for group in groups] == [Stopped, Stopped]
    assert end.sink.gather(0, SECONDS) is not None
    assert account(end) == {"granted": 2, "learned": 0, "lost": 0}
    assert end.ledger.account().in_flight == 2


@pytest.mark.parametrize("experiment", [FORWARD, BACKWARD], ids=["forward", "backward"])
def test_an_unroll_that_comes_too_late_is_lost_and_its_group_makes_another(ends, experiment):
    end, steps = ends(experiment, max_staleness=1), itertools.count()

    def before_step():
        if next(steps) == 2:
            end.sink.leave(0)  # as when its lease has ended

    late = end.group(0, before_step)
    run_pass(experiment, late)  # of the first unroll; it passes over what is not its turn
    assert int(late.state()["clock"]) == 4
    after = late.state()["timestep"]
    for group in (late, end.group(1)):
        run_pass(experiment, group)
    learner = learning(end)
    learner.run()
    first = next(gathered.batch for unroll, gathered, _ in learner.gathered if unroll == 0)
    assert_same(first.columns(0, 2).timesteps.observation[0], after["observation"])
    assert account(end) == {"granted": 5, "learned": 4, "lost": 1}
    assert end.ledger.account().in_flight == 0


def test_the_unrolls_of_a_group_that_dies_are_made_by_the_next_start_of_it(ends):
    end, steps = ends(), itertools.count()

    def before_step():
        if next(steps) == 6:  # in its second unroll
            raise OSError("it dies")

    first = end.group(0, before_step)
    with pytest.raises(OSError, match="it dies"):
        run_pass(BACKWARD, first)
    first._unrolls.source.close()
    wait_until(lambda: end.ledger.account().lost == 1)
    for group in (end.group(0), end.group(1)):
        run_pass(BACKWARD, group)
    learning(end).run()
    assert account(end) == {"granted": 5, "learned": 4, "lost": 1}
    assert end.ledger.account().in_flight == 0


def test_each_pass_acts_with_what_the_one_before_has_learned(ends):
    end = ends()
    groups = [Running(end, number) for number in range(2)]
    learner = learning(end)
    for passes in range(3):
        learner.run()
        for _, gathered, _ in learner.gathered[-2:]:
            assert (gathered.batch.version[..., 1] == 2 * passes).all()
    assert end.learner.progress.report()["staleness_max"] == 0
    end.stopping.set()
    assert [group.ended() for group in groups] == [Stopped, Stopped]


def test_a_learner_that_is_to_end_does_not_wait_for_a_group_that_is_not_there(ends):
    end = ends()
    run_pass(BACKWARD, end.group(0))
    end.stopping.set()
    with pytest.raises(Stopped):
        learning(end).run()


def test_policies_are_published_as_they_were_learned(ends):
    end = ends()
    groups = [end.group(number) for number in range(2)]
    for group in groups:
        run_pass(BACKWARD, group)
    learning(end).run()
    assert end.published.newest((0, 0))[0].tolist()[1] == 0  # not before the next pass
    end.environments.latest()
    version, policies = end.published.newest((0, 0))
    assert version.tolist() == end.learner.progress.version.tolist()
    assert_same(policies, end.learner.policies)
