"""One pass of a loop in one worker: what its calls do, and in which order the parts are called."""

import itertools
from contextlib import closing
from dataclasses import replace

import jax
import numpy as np
import pytest
from drawn import Drawn
from tiny_parts import ENVS, SPECS, TINY, empty_batches, run_pass, with_program

from srl.core.errors import PlanError
from srl.dataflow import plans
from srl.loop.acting.local_acting import LocalActing, compiled_act
from srl.loop.acting.parameters import Published
from srl.loop.learning.learner import Learner
from srl.loop.projection import Projection
from srl.loop.stepping.environments import make_group
from srl.loop.stepping.group import Group
from srl.loop.stepping.local import LocalEnvironments
from srl.loop.stepping.unrolls import OwnUnrolls
from srl.networks import MLP

PLAIN = replace(TINY, plan=plans.replicated(1))
ONE_POLICY, TWO_POLICIES, TWICE = "4,8:1", "4:1 8:1", "8:2"


class NotedLearner(Learner):
    """Notes what it learns from."""

    def learn(self, batch):
        self.calls.append(f"learn from {len(batch.batch.log_prob)}")
        self.noted.append((len(batch.batch.log_prob), batch.begun, batch.lag, batch.learned))
        super().learn(batch)


class NotedEnvironments(LocalEnvironments):
    """Notes what the loop asks of it."""

    def latest(self):
        self.calls.append("latest")
        super().latest()

    def gather(self, unroll):
        self.calls.append(f"gather {unroll}")
        return super().gather(unroll)

    def learned(self, batch):
        self.calls.append(f"learned {batch.learned}")
        super().learned(batch)


@pytest.fixture(scope="module")
def learner():
    """A learner that is compiled for unrolls of both lengths."""
    experiment = with_program(PLAIN, ONE_POLICY)
    learner = NotedLearner(experiment, SPECS)
    learner.compile(empty_batches(experiment, learner.policy_set))
    return learner


@pytest.fixture
def whole(learner):
    """Whole loops in one worker; each with a learner that has learned nothing since its report."""
    made = []
    state = jax.tree.map(np.array, learner.state())  # a copy: learning donates the arrays

    def make(program):
        experiment = with_program(PLAIN, program)
        learner.restore(state)
        learner.progress.report()
        environments = NotedEnvironments(experiment)
        learner.calls = environments.calls = []
        learner.noted = []
        made.append(environments)
        environments.make()
        environments.prepare(learner, lambda: environments.calls.append("step"))
        environments.begin()
        return environments, Projection(experiment, environments, learner)

    yield make
    for environments in made:
        environments.close()
    learner.restore(state)


def without_repeats(calls):
    """Calls in order; one for those that follow each other and are the same."""
    return [call for call, before in zip(calls, [None, *calls], strict=False) if call != before]


@pytest.mark.parametrize(
    ("program", "order"),
    [
        (
            ONE_POLICY,
            "latest, step, gather 1, gather 0, learn from 8, learned 1, learn from 4, learned 1",
        ),
        (
            TWO_POLICIES,
            "latest, step, gather 0, learn from 4, learned 1, "
            "latest, step, gather 1, learn from 8, learned 1",
        ),
        (TWICE, "latest, step, gather 0, learn from 8, learned 1, learn from 8, learned 2"),
    ],
)
def test_a_pass_calls_the_parts_in_the_order_of_the_loop(whole, program, order):
    environments, projection = whole(program)
    for _ in range(2):
        environments.calls.clear()
        projection.run()
        assert without_repeats(environments.calls) == order.split(", ")
        steps = environments.calls.count("step")
        assert steps == 2 * environments.experiment.graph.steps  # of each group


@pytest.mark.parametrize(
    ("program", "acted", "noted"),
    [
        # The batch that is learned from second has been overtaken by one version, as written.
        (ONE_POLICY, [0, 0], [(8, 0, 0, 0), (4, 0, 1, 0)]),
        (TWO_POLICIES, [0, 1], [(4, 0, 0, 0), (8, 1, 0, 0)]),
        (TWICE, [0], [(8, 0, 0, 0), (8, 0, 0, 1)]),
    ],
)
def test_versions_lags_and_counts_are_those_of_the_loop(whole, learner, program, acted, noted):
    environments, projection = whole(program)
    for passes in range(2):
        first = learner.progress.updates
        learner.noted.clear()
        projection.run()
        assert learner.noted == noted
        assert learner.progress.updates == first + 2
        for unroll, version in enumerate(acted):
            batch = environments.gather(unroll).batch
            assert (batch.version == (learner.progress.epoch, first + version)).all(), passes
    assert learner.progress.report()["staleness_max"] == 0  # the lag is no staleness


def test_each_group_makes_its_unrolls_in_its_own_columns(whole):
    environments, projection = whole(ONE_POLICY)
    projection.run()
    last = environments.gather(1).batch.timesteps.observation[-1]
    states = environments.states()
    for number, state in states.items():
        own = last[number * ENVS : (number + 1) * ENVS]
        np.testing.assert_array_equal(own, state["timestep"]["observation"])
    assert [int(state["clock"]) for state in states.values()] == [12, 12]


def test_where_another_worker_learns_a_pass_only_makes_unrolls(learner):
    experiment = with_program(TINY, TWO_POLICIES)
    published = Published(learner.policies, None)
    pool, batches = make_group(experiment, ENVS), empty_batches(experiment, learner.policy_set, 1)
    parts = (
        experiment,
        learner.policy_set,
        compiled_act(learner.policy_set),
        published.newest,
        range(ENVS),
    )
    acting = LocalActing(*parts, swaps=False)
    before = learner.progress.updates
    with closing(pool):
        group = Group(pool, acting, OwnUnrolls(pool, batches, 0, 1), learner.policy_set)
        group.reset(seed=1)
        for n in range(3):
            published.publish(np.array((0, n), np.int32), learner.policies)
            run_pass(experiment, group)  # its `gather` gives None, and so `learn` is given it
            assert all((batch.version == (0, n)).all() for batch in batches)

    assert learner.progress.updates == before


class Changing(Drawn):
    """A loop that is not the same any more once `changed` says so."""

    changed = ""

    def loop(self, run):
        policy = run.latest()
        steps = itertools.count()

        def interact(timestep, memory):
            if Changing.changed == "order" and next(steps) == 3:
                decision = run.act(policy, timestep, memory)
                row = run.collect(timestep, decision)
                return run.step(decision.action), decision.memory, row
            decision = run.act(policy, timestep, memory)
            following = run.step(decision.action)
            return following, decision.memory, run.collect(timestep, decision)

        batch = run.gather(run.unroll(interact, 4 if Changing.changed == "length" else 8))
        for _ in range(2 if Changing.changed == "learns" else 1):
            run.learn(batch)


@pytest.mark.parametrize(
    ("changed", "how"),
    [
        ("order", "steps called act, step, collect, and this one act, collect, step"),
        ("length", "passes had 8 steps, and this one has an unroll of 4 steps"),
        ("learns", "passes had 1 unrolls and 1 calls of learn, and this one had 1 and 2"),
    ],
)
def test_a_loop_that_changes_while_the_run_goes_is_refused(
    whole, learner, monkeypatch, changed, how
):
    environments, _ = whole("8:1")
    algorithm = Changing(network=MLP(width=8), epochs=1, minibatches=2)
    projection = Projection(replace(PLAIN, algorithm=algorithm), environments, learner)
    projection.run()
    monkeypatch.setattr(Changing, "changed", changed)
    with pytest.raises(PlanError, match=how):
        projection.run()


def test_what_is_known_elsewhere_is_there_and_cannot_be_looked_into(whole):
    _, projection = whole("8:1")
    policy = projection.latest()
    assert policy is not None
    with pytest.raises(PlanError, match="looks into `policy`"):
        bool(policy)
