"""Tickets bound staleness, never deadlock, and account for every unroll."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from srl.streams.tickets import StalenessLimiter, Ticket

ONE = ((0,), 1)
PASSES = st.sampled_from([ONE, ((0, 0), 1), ((0, 1), 2), ((0, 0, 1), 2), ((0,), 3), ((0, 2), 5)])
"""Passes of a loop: the calls of learn before each unroll, and all calls of learn."""
BOUNDS = st.sampled_from([0, 1, 4, None])


class Learner:
    """Runs the learning half of the loop as far as there are batches."""

    def __init__(self, groups, bound, unrolls, learns, version=0, *, fixed=False):
        self.limiter = StalenessLimiter(groups, bound, unrolls=unrolls, learns=learns, fixed=fixed)
        self.limiter.begin(version)
        self.unrolls, self.learns, self.done = unrolls, learns, 0

    @property
    def may_learn(self):
        """Whether all batches are there whose unrolls the loop has begun by now."""
        last = self.done == self.learns - 1
        begun = [k for k, learns in enumerate(self.unrolls) if last or learns <= self.done]
        return all(self.limiter.complete(self.limiter.batch_of(k)) for k in begun)

    def learn(self):
        self.limiter.learned()
        self.done = (self.done + 1) % self.learns


class Groups(RuleBasedStateMachine):
    """Groups that take, deliver and die at any moment, and a learner of any speed."""

    @initialize(
        groups=st.integers(1, 5),
        bound=BOUNDS,
        parts=PASSES,
        version=st.integers(0, 9),
        fixed=st.booleans(),
    )
    def begin(self, groups, bound, parts, version, fixed) -> None:
        self.groups, self.bound, self.first = groups, bound, version
        self.fixed = fixed or bound == 0
        self.learner = Learner(groups, bound, *parts, version, fixed=fixed)
        self.limiter = self.learner.limiter
        self.held: dict[int, tuple[Ticket, int]] = {}
        self.batches: dict[int, dict[int, int]] = {}
        self.taken: dict[int, list[int]] = {}
        self.filled: dict[int, list[tuple[int, int]]] = {}
        self.used: set[int] = set()
        self.died = self.granted = self.learned = 0

    @rule(group=st.integers(0, 4))
    def take(self, group: int) -> None:
        if group >= self.groups or group in self.held:
            return
        ticket = self.limiter.take(group)
        if ticket is not None:
            acts_with = self.limiter.oldest_version(ticket)  # the worst that it may
            assert acts_with <= self.limiter.version
            self.held[group] = ticket, acts_with
            self.granted += 1

    @rule(group=st.integers(0, 4))
    def deliver(self, group: int) -> None:
        if group in self.held:
            ticket, version = self.held.pop(group)
            assert self.limiter.deliver(group, ticket)
            batch = self.batches.setdefault(ticket.batch, {})
            assert ticket.position not in batch
            batch[ticket.position] = version
            self.filled.setdefault(ticket.position, []).append((ticket.batch, group))
            self.taken.setdefault(group, []).append(self.limiter.unroll_of(ticket.batch))

    @rule(group=st.integers(0, 4))
    def die(self, group: int) -> None:
        if group in self.held:
            ticket, _ = self.held.pop(group)
            assert self.limiter.expire(group) == ticket
            assert not self.limiter.deliver(group, ticket)  # a late arrival
            self.died += 1

    @rule(unroll=st.integers(0, 2))
    def learn_from(self, unroll: int) -> None:
        batch = self.limiter.batch_of(unroll)
        if unroll < len(self.learner.unrolls) and self.limiter.complete(batch):
            self.limiter.learn_from(batch)
            self.use(batch)

    def use(self, batch: int) -> None:
        self.learned += self.groups * (batch not in self.used)
        self.used.add(batch)

    @precondition(lambda self: self.learner.may_learn)
    @rule()
    def learn(self) -> None:
        unrolls = self.learner.unrolls
        batches = [self.limiter.batch_of(k) for k in range(len(unrolls))]
        begun = self.limiter.version - self.learner.done
        self.learner.learn()
        if self.learner.done:
            return
        for number, learns in zip(batches, unrolls, strict=True):
            self.use(number)
            batch = self.batches.pop(number)
            assert sorted(batch) == list(range(self.groups))
            if self.bound is not None:
                assert begun + learns - min(batch.values()) <= self.bound

    @invariant()
    def every_unroll_is_accounted_for(self) -> None:
        counts = self.limiter.counts
        unused = [batch for number, batch in self.batches.items() if number not in self.used]
        in_flight = len(self.held) + sum(map(len, unused))
        assert counts == (self.granted, self.learned, in_flight, self.died)
        assert counts.granted == counts.learned + counts.in_flight + counts.lost

    @invariant()
    def memory_is_bounded(self) -> None:
        used = {number % self.limiter.batches for number in self.batches}
        assert len(used) == len(self.batches) <= self.limiter.batches

    @invariant()
    def a_group_takes_the_unrolls_of_a_pass_in_turn(self) -> None:
        for taken in self.taken.values():
            assert taken == [k % len(self.learner.unrolls) for k in range(len(taken))]

    @invariant()
    def a_fixed_position_has_every_unroll_of_its_group_in_order(self) -> None:
        for position, filled in self.filled.items() if self.fixed else ():
            batches = [batch for batch, _ in filled]
            assert batches == sorted(batches)
            assert {group for _, group in filled} == {position}


TestGroups = Groups.TestCase


@given(st.integers(1, 8), BOUNDS, PASSES, st.integers(0, 2**32), st.booleans())
def test_whatever_the_order_every_update_is_reached(groups, bound, parts, seed, fixed):
    random = Random(seed)
    learner = Learner(groups, bound, *parts, fixed=fixed)
    limiter = learner.limiter
    held: dict[int, Ticket] = {}
    while limiter.version < 10:
        order = random.sample(range(groups), groups)
        for group in order:
            if group in held and random.random() < 0.1:
                limiter.expire(group)
                del held[group]
            elif group in held and random.random() < 0.7:
                assert limiter.deliver(group, held.pop(group))
            elif group not in held and (ticket := limiter.take(group)):
                held[group] = ticket
        if learner.may_learn:
            learner.learn()


def test_without_staleness_each_group_fills_its_own_columns():
    limiter = StalenessLimiter(3)
    assert [limiter.take(group) for group in (2, 0, 1)] == [(0, 2), (0, 0), (0, 1)]
    assert limiter.deliver(1, Ticket(0, 1))
    assert limiter.take(1) is None  # until the others have delivered, and update 0 is done


def test_with_staleness_a_fast_group_fills_the_place_of_a_slow_one():
    limiter = StalenessLimiter(2, 1)
    assert limiter.take(0) == (0, 0)
    assert limiter.deliver(0, Ticket(0, 0))
    assert limiter.take(0) == (0, 1)
