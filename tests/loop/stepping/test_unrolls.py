"""Where a group's unrolls go: into batches here, or through a sample stream, ticket by ticket."""

import itertools

import jax
import numpy as np
import pytest
from small_runs import assert_same
from tiny_parts import (
    ENVS,
    SECONDS,
    TINY,
    empty_batches,
    in_time,
    run_pass,
    with_program,
)
from waiting import wait_until

from srl.loop.acting.local_acting import LocalActing
from srl.loop.acting.parameters import Published
from srl.loop.binding import batch_specs
from srl.loop.stepping.environments import make_group
from srl.loop.stepping.group import Group
from srl.loop.stepping.unrolls import OwnUnrolls, SentUnrolls
from srl.streams.group_state import STATE_BYTES, Stopped
from srl.streams.sample_sink import SampleSink
from srl.streams.tickets import StalenessLimiter
from srl.streams.transport import connect, listen
from srl.streams.transport.message import Identity

RUN = 7
TWO = with_program(TINY, "4,8:1")
"""Two unrolls of one policy."""


class Side:
    """The learner's side: policies, and the ends of sample streams one after the other."""

    def __init__(self, learner, act):
        self.learner, self.act = learner, act
        self.published = Published(learner.policies, None)
        self.publish(0)
        self.sinks, self.pools = [], []
        self.alive = in_time()

    def publish(self, n):
        self.published.publish(np.array((0, n), np.int32), self.learner.policies)

    def begin(self, experiment=TWO, **limits):
        """Begins to take unrolls of one group in, at a new address."""
        unrolls = [unrolled.learns for unrolled in experiment.graph.unrolls]
        limits = {"unrolls": unrolls, "learns": experiment.graph.learns, **limits}
        listener = listen("thread", Identity(RUN, 0, 0), limit_bytes=STATE_BYTES)
        forms = batch_specs(experiment, self.learner.policy_set, ENVS)
        self.sinks.append(SampleSink(listener, StalenessLimiter(1, **limits), forms))
        self.sinks[-1].start()
        return self.sinks[-1]

    def connect(self):
        address = self.sinks[-1].listener.address
        return connect(address, Identity(RUN, 0, 0), limit_bytes=STATE_BYTES)

    def group(self, unrolls_of=None, before_step=lambda: None):
        """A group, whose unrolls are sent unless others are given."""
        pool = make_group(TINY, ENVS)
        self.pools.append(pool)
        parts = TINY, self.learner.policy_set, self.act, self.published.newest, range(ENVS)
        unrolls = (
            unrolls_of(pool) if unrolls_of else SentUnrolls(self.connect, lambda: self.alive())
        )
        acting = LocalActing(*parts, swaps=False)
        group = Group(pool, acting, unrolls, self.learner.policy_set, before_step)
        group.reset(seed=5)
        return group, unrolls

    def close(self):
        for sink in self.sinks:
            sink.close()
        for pool in self.pools:
            pool.close()


@pytest.fixture
def side(learner, act):
    made = Side(learner, act)
    yield made
    made.close()


def interacting(group):
    """One step, as a loop writes it."""

    def interact(timestep, memory):
        decision = group.act(timestep, memory)
        following = group.step(decision.action)
        return following, decision.memory, group.collect(timestep, decision)

    return interact


def test_own_unrolls_fill_the_groups_columns_of_each_batch_of_the_pass_in_turn(side, learner):
    batches = empty_batches(TWO, learner.policy_set)
    group, _ = side.group(lambda pool: OwnUnrolls(pool, batches, 1, 2))
    starts = []
    for _ in range(2):
        run_pass(TWO, group)
        parts = [batch.columns(1, 2) for batch in batches]
        starts += [part.timesteps.observation[0].copy() for part in parts]
        assert all((part.log_prob < 0).all() for part in parts)
        for batch in batches:
            others = jax.tree.leaves(batch.columns(0, 2))
            assert not any(leaf.any() for leaf in others)
    assert [len(batch.log_prob) for batch in batches] == [4, 8]
    assert all((a != b).any() for a, b in itertools.combinations(starts, 2))


def test_a_sent_unroll_is_the_one_that_is_made_beside_the_learner(side, learner):
    batches = empty_batches(TWO, learner.policy_set, 1)
    own, _ = side.group(lambda pool: OwnUnrolls(pool, batches, 0, 1))
    sink = side.begin()
    sent, _ = side.group()
    for first in (0, 2):
        for group in (own, sent):
            run_pass(TWO, group)
        assert_same([sink.gather(first + k, SECONDS) for k in range(2)], batches)
        for _ in range(TWO.graph.learns):
            sink.learned()


def test_an_unroll_whose_learner_goes_is_lost_and_the_group_goes_on_with_the_next(side):
    first, steps = side.begin(), itertools.count()

    def before_step():
        if next(steps) == 2:
            first.close()
            side.begin()

    group, unrolls = side.group(before_step=before_step)
    group.latest()
    group.unroll(interacting(group), 4, 0)
    lost = group.state()["timestep"]
    assert first.limiter.counts.granted == 1
    run_pass(TWO, group)
    gathered = side.sinks[-1].gather(0, SECONDS)
    assert_same(gathered.timesteps.observation[0], lost["observation"])
    assert unrolls.start.restarts == 0
    assert int(group.state()["clock"]) == 4 + 4 + 8


def test_who_waits_for_a_ticket_can_be_ended(side):
    side.begin()
    group, _ = side.group()
    run_pass(TWO, group)

    def ended():
        raise Stopped

    side.alive = ended
    with pytest.raises(Stopped):
        run_pass(TWO, group)


def test_a_group_that_joins_in_the_midst_of_a_pass_passes_over_the_unrolls_before_its_own(side):
    sink = side.begin()
    first, unrolls = side.group()
    first.latest()
    first.unroll(interacting(first), 4, 0)
    assert sink.gather(0, SECONDS) is not None
    unrolls.source.close()  # it dies; the batch's second unroll is still to be made
    wait_until(lambda: not sink.whole)
    second, _ = side.group()
    run_pass(TWO, second)
    assert int(second.state()["clock"]) == 8
    assert len(sink.gather(1, SECONDS).log_prob) == 8


LATER = with_program(TINY, "4:1 4:1")
"""The second unroll acts with what was learned from the first; here by a policy of the pass."""


@pytest.mark.parametrize("bound", [0, 1])
def test_a_policy_acts_in_all_unrolls_of_its_pass_unless_a_ticket_wants_a_newer_one(side, bound):
    sink = side.begin(LATER, max_staleness=bound)
    group, _ = side.group()
    group.latest()
    group.unroll(interacting(group), 4, 0)
    sink.gather(0, SECONDS)
    side.publish(1)
    sink.learned()
    group.unroll(interacting(group), 4, 1)  # without asking for the latest policy again
    versions = [sink.gather(k, SECONDS).version[:, 0].tolist() for k in range(2)]
    assert versions == [4 * [[0, 0]], 4 * [[0, 1 - bound]]]
