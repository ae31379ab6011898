"""A group of environments and what acts for it, in one thread: rows, versions, memory, state."""

import itertools
from dataclasses import replace

import jax
import numpy as np
import pytest
from small_runs import assert_same
from tiny_parts import ENVS, SPECS, TINY, empty_batches, run_pass, with_program

from srl.core.errors import RunError
from srl.core.tree import map_tree
from srl.extras.bench.alone import first_timestep
from srl.loop.acting.local_acting import LocalActing
from srl.loop.acting.parameters import Published
from srl.loop.binding import run_key
from srl.loop.learning.learner import Learner
from srl.loop.stepping.compiled import CompiledGroup, UnrollPrograms
from srl.loop.stepping.environments import make_group
from srl.loop.stepping.group import Group
from srl.loop.stepping.unrolls import OwnUnrolls
from srl.networks import MLP

LENGTH, CHUNK = 8, 4
EXPERIMENT = replace(
    TINY, algorithm=replace(TINY.algorithm, network=MLP(width=8, memory=4), chunk=CHUNK)
)


@pytest.fixture(scope="module")
def learner():
    return Learner(EXPERIMENT, SPECS)


@pytest.fixture(scope="module")
def versions(learner):
    """Policies of three versions, each of which acts in another way."""
    return [jax.tree.map(lambda x, n=n: (1 + n) * x, learner.policies) for n in range(3)]


class Alone:
    """A group, its unrolls, and the policies that act in them."""

    def __init__(
        self, learner, act, versions, program="8:1", swaps=False, compiled=False, programs=None
    ):
        self.experiment = with_program(EXPERIMENT, program)
        self.versions, self.published = versions, Published(versions[0], None)
        self.pool = make_group(self.experiment, ENVS)
        self.batches = empty_batches(self.experiment, learner.policy_set, 1)
        acting = LocalActing(
            self.experiment,
            learner.policy_set,
            act,
            self.published.newest,
            range(ENVS),
            swaps=swaps,
        )
        unrolls = OwnUnrolls(self.pool, self.batches, 0, 1)
        parts = self.pool, acting, unrolls, learner.policy_set, self.before_step
        self.group = Group(*parts)
        if compiled:
            self.group = CompiledGroup(self.experiment, *parts, programs or UnrollPrograms())
        self.steps, self.publish_at = 0, {}
        self.publish(0)
        self.group.reset(seed=3)

    def publish(self, n):
        self.published.publish(np.array((0, n), np.int32), self.versions[n])

    def before_step(self):
        if self.steps in self.publish_at:
            self.publish(self.publish_at[self.steps])
        self.steps += 1

    def run_pass(self):
        """Copies of the pass' unrolls."""
        run_pass(self.experiment, self.group)
        return [map_tree(np.array, batch) for batch in self.batches]

    def close(self):
        self.pool.close()


@pytest.fixture
def alone(learner, act, versions):
    made = []

    def make(**settings):
        made.append(Alone(learner, act, versions, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


def replayed(act, policies, unroll, memory, clock):
    """The decision at each row of an unroll, and the memory before it and after the last."""
    decisions, memories, slots = [], [memory], np.arange(ENVS, dtype=np.int32)
    for t in range(len(unroll.log_prob)):
        row = map_tree(lambda x, t=t: x[t], unroll.timesteps)
        ends, keys = (row.terminated, row.truncated), (run_key(EXPERIMENT), np.uint32(clock + t))
        decision, _ = act(policies[t], row.observation, ends, memories[-1], *keys, slots)
        decisions.append(decision)
        memories.append(decision.memory)
    return decisions, memories


COMPILED = pytest.mark.parametrize("compiled", [False, True], ids=["by steps", "compiled"])


@COMPILED
def test_the_last_row_of_an_unroll_is_the_first_row_of_the_next(alone, compiled):
    group = alone(program="8,4:1", compiled=compiled)
    unrolls = [unroll for _ in range(3) for unroll in group.run_pass()]
    for one, following in itertools.pairwise(unrolls):
        last = map_tree(lambda x: x[-1], one.timesteps)
        assert_same(last, map_tree(lambda x: x[0], following.timesteps))
    lengths = [len(unroll.timesteps.reward) for unroll in unrolls]
    assert lengths == 3 * [9, 5]


def test_each_row_holds_the_version_that_acted_and_its_decision(alone, act, learner, versions):
    group = alone(swaps=True)
    group.publish_at = {2: 1, 5: 2}  # before these steps: it is the next row that they act at
    (unroll,) = group.run_pass()
    acted = [0, 0, 0, 1, 1, 1, 2, 2]
    assert unroll.version[:, 0].tolist() == [[0, n] for n in acted]
    memory = learner.policy_set.initial_memory(ENVS)
    decisions, _ = replayed(act, [versions[n] for n in acted], unroll, memory, clock=0)
    np.testing.assert_array_equal(unroll.action, [d.action for d in decisions])
    np.testing.assert_array_equal(unroll.log_prob, [d.log_prob for d in decisions])


def test_where_nothing_is_swapped_newer_parameters_act_from_the_next_unroll_on(alone):
    group = alone(swaps=False)
    group.publish_at = {2: 1}
    first, second = group.run_pass()[0], group.run_pass()[0]
    assert (first.version[..., 1] == 0).all()
    assert (second.version[..., 1] == 1).all()


def test_memory_is_kept_from_the_start_of_each_chunk_through_all_unrolls(
    alone, act, learner, versions
):
    group = alone()
    memory, kept = learner.policy_set.initial_memory(ENVS), []
    for clock in (0, LENGTH):
        (unroll,) = group.run_pass()
        _, memories = replayed(act, LENGTH * [versions[0]], unroll, memory, clock)
        for k in range(LENGTH // CHUNK):
            kept.append(map_tree(lambda x, k=k: x[k], unroll.memory))
            assert_same(kept[-1], memories[k * CHUNK])
        memory = memories[-1]
    ways = {leaf.tobytes() for part in kept for leaf in jax.tree.leaves(part)}
    assert len(ways) >= len(kept)  # it changes from chunk to chunk


@COMPILED
def test_a_group_goes_on_from_a_saved_state_as_if_it_had_never_stopped(alone, compiled):
    group, other = (alone(program="8,4:1", compiled=compiled) for _ in range(2))
    group.run_pass()
    state = group.group.state()
    other.run_pass()
    other.run_pass()  # it has been elsewhere
    other.group.restore(state)
    assert_same(other.group.state(), state)
    for _ in range(3):
        assert_same(group.run_pass(), other.run_pass())
    assert_same(group.group.state(), other.group.state())


def test_unrolls_are_the_same_bits_by_steps_and_compiled(alone):
    one, other = alone(program="8,4:1"), alone(program="8,4:1", compiled=True)
    for n in (0, 1, 2):
        for each in (one, other):
            each.publish(n)
        assert_same(one.run_pass(), other.run_pass())
    assert_same(one.group.state(), other.group.state())


def test_a_compiled_group_goes_on_by_steps_and_back(alone):
    never, one, other = (alone(compiled=compiled) for compiled in (False, True, False))
    for _ in range(2):
        for group, following in ((one, other), (other, one)):
            assert_same(never.run_pass(), group.run_pass())
            following.group.restore(group.group.state())


def test_only_the_first_unroll_of_a_workers_groups_compiles(alone, caplog):
    programs = UnrollPrograms()
    one, other = (alone(compiled=True, programs=programs) for _ in range(2))
    with jax.log_compiles(), caplog.at_level("WARNING"):
        one.run_pass()
        assert "jit(take)" in caplog.text
        caplog.clear()
        for group in (one, other, one):
            group.run_pass()
        assert "jit(take)" not in caplog.text


def test_new_episodes_of_a_compiled_group_are_those_of_any_other(alone):
    one, other = alone(), alone(compiled=True)
    for each in (one, other):
        each.run_pass()
        each.group.reset(seed=8)
    assert_same(one.run_pass(), other.run_pass())


def test_what_environments_raise_in_a_program_names_them(alone):
    group = alone(compiled=True)
    group.run_pass()
    group.pool.close()
    with pytest.raises(RunError, match=r"^native:CartPole-v1: the pool is closed"):
        group.run_pass()


def actings(learner, act, divisions):
    """What acts for each of these ranges of environments."""
    published = Published(learner.policies, None)
    parts = EXPERIMENT, learner.policy_set, act, published.newest
    made = [LocalActing(*parts, envs, swaps=False) for envs in divisions]
    for acting in made:
        acting.begin((0, 0))
    return made


@pytest.mark.parametrize("ways", [2, 4])
def test_a_slot_is_decided_for_alike_in_whatever_group_it_is(learner, act, ways):
    count = 8
    _, timestep = first_timestep(EXPERIMENT, count)
    width = count // ways
    ranges = [range(k * width, (k + 1) * width) for k in range(ways)]
    (whole,), parts = actings(learner, act, [range(count)]), actings(learner, act, ranges)
    memory, memories = whole.initial_memory(), [acting.initial_memory() for acting in parts]
    taken = []
    for clock in range(4):
        decision, _ = whole.decide(timestep, memory, clock)
        split = []
        for k, (acting, envs) in enumerate(zip(parts, ranges, strict=True)):
            own = map_tree(lambda x, envs=envs: x[envs.start : envs.stop], timestep)
            split.append(acting.decide(own, memories[k], clock)[0])
            memories[k] = split[-1].memory
        memory = decision.memory
        np.testing.assert_array_equal(decision.action, np.concatenate([d.action for d in split]))
        log_probs = np.concatenate([d.log_prob for d in split])
        np.testing.assert_allclose(decision.log_prob, log_probs, rtol=1e-5)
        taken.append(decision.action.tolist())
    assert len(set(map(tuple, taken))) > 1  # the clock enters the keys


def test_a_clock_that_jumps_is_followed(learner, act):
    _, timestep = first_timestep(EXPERIMENT, ENVS)
    one, other = actings(learner, act, 2 * [range(ENVS)])
    memory = one.initial_memory()
    in_turn = [one.decide(timestep, memory, clock)[0] for clock in range(6)]
    for clock in (5, 2, 3, 0):  # as of a group that is restored
        assert_same(other.decide(timestep, memory, clock)[0], in_turn[clock])
