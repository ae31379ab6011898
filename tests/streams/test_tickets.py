"""Tickets bound staleness, never deadlock, and account for every unroll."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from srl.streams.tickets import StalenessLimiter, Ticket


class Groups(RuleBasedStateMachine):
    """Groups that take, deliver and die at any moment, and a learner of any speed."""

    @initialize(groups=st.integers(1, 5), bound=st.sampled_from([0, 1, 4, None]))
    def begin(self, groups: int, bound: int | None) -> None:
        self.groups, self.bound = groups, bound
        self.limiter = StalenessLimiter(groups, bound)
        self.held: dict[int, tuple[Ticket, int]] = {}
        self.batches: dict[int, dict[int, int]] = {}
        self.died = 0

    @rule(group=st.integers(0, 4))
    def take(self, group: int) -> None:
        if group >= self.groups or group in self.held:
            return
        ticket = self.limiter.take(group)
        if ticket is not None:
            acts_with = self.limiter.oldest_version(ticket)  # the worst that it may
            assert acts_with <= self.limiter.version
            self.held[group] = ticket, acts_with

    @rule(group=st.integers(0, 4))
    def deliver(self, group: int) -> None:
        if group in self.held:
            ticket, version = self.held.pop(group)
            assert self.limiter.deliver(group, ticket)
            batch = self.batches.setdefault(ticket.batch, {})
            assert ticket.position not in batch
            batch[ticket.position] = version

    @rule(group=st.integers(0, 4))
    def die(self, group: int) -> None:
        if group in self.held:
            ticket, _ = self.held.pop(group)
            assert self.limiter.expire(group) == ticket
            assert not self.limiter.deliver(group, ticket)  # a late arrival
            self.died += 1

    @precondition(lambda self: self.limiter.complete(self.limiter.batch_of(0)))
    @rule()
    def learn(self) -> None:
        batch = self.batches.pop(self.limiter.version)
        assert sorted(batch) == list(range(self.groups))
        if self.bound is not None:
            assert self.limiter.version - min(batch.values()) <= self.bound
        self.limiter.learned()

    @invariant()
    def every_unroll_is_accounted_for(self) -> None:
        counts = self.limiter.counts
        waiting = sum(len(batch) for batch in self.batches.values())
        assert counts.lost == self.died
        assert counts.in_flight == len(self.held) + waiting

    @invariant()
    def memory_is_bounded(self) -> None:
        assert len(self.batches) <= self.limiter.batches


TestGroups = Groups.TestCase


@given(st.integers(1, 8), st.sampled_from([0, 1, 4, None]), st.randoms(use_true_random=False))
def test_whatever_the_order_every_update_is_reached(groups, bound, random):
    limiter = StalenessLimiter(groups, bound)
    held: dict[int, Ticket] = {}
    while limiter.version < 5:
        order = random.sample(range(groups), groups)
        for group in order:
            if group in held and random.random() < 0.7:
                assert limiter.deliver(group, held.pop(group))
            elif group not in held and (ticket := limiter.take(group)):
                held[group] = ticket
        if limiter.complete(limiter.batch_of(0)):
            limiter.learned()


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
