"""Environments that step as they get ready: their unrolls, their staleness, holds and deaths."""

import os
from dataclasses import replace

import numpy as np
import pytest
from tiny_parts import SECONDS, TINY, Ends
from waiting import wait_until

from srl.core.tree import leaves_of, map_tree
from srl.extras.bench.alone import first_timestep
from srl.loop.acting.local_acting import compiled_act
from srl.loop.learning.learner import Learner
from srl.loop.stepping.actors import ActorThreads
from srl.loop.stepping.environments import make_pools
from srl.networks import MLP
from srl.pools.config import NamedEnv

LENGTH, STALENESS, UPDATES, ENVS = 8, 2, 6, 4
COUNTING = "pettingzoo:counting_pairs:Counting"
IN_TURN = replace(
    TINY,
    env=COUNTING,
    num_envs=ENVS,
    groups=ENVS,
    max_staleness=STALENESS,
    algorithm=replace(TINY.algorithm, network=MLP(width=8, memory=4, shared=True), chunk=4),
)
"""Each environment is a group that a thread steps."""
AS_READY = replace(IN_TURN, groups=0, workers=ENVS)


@pytest.fixture(scope="module")
def parts():
    specs, _ = first_timestep(IN_TURN, 1)
    learner = Learner(IN_TURN, specs)
    return learner, compiled_act(learner.policy_set)


@pytest.fixture
def run(parts):
    """Starts the actors of an experiment, and gives the learner's end."""
    learner, act = parts
    made = []

    def start(experiment, **options):
        if options:
            experiment = replace(experiment, env=NamedEnv(COUNTING, options))
        ends = Ends(experiment, learner, act)
        endpoints = ends.endpoints("actors", 0)
        pools, newest = make_pools(endpoints), ends.published.newest
        actors = ActorThreads(endpoints, pools, learner.policy_set, newest)
        made.append((ends, actors))
        ends.environments.latest()
        actors.start()
        return ends

    yield start
    for ends, actors in made:
        ends.stopping.set()
        actors.close()
        actors.check()
        ends.close()


def learned(ends, updates=UPDATES):
    """The batches of updates, after each of which there is another version."""
    batches, (_, policies) = [], ends.published.newest((0, 0))
    for n in range(updates):
        batch = ends.sink.gather(n, SECONDS)
        assert batch is not None
        batches.append(map_tree(np.array, batch))
        ends.sink.learn_from(n)
        ends.published.publish(np.array((0, n + 1), np.int32), policies)
        ends.sink.learned()
    return batches


def unrolls_of(batches):
    """The unrolls of each environment by its seed, in the order of its steps."""
    found = {}
    for batch in batches:
        for position in range(ENVS):
            unroll = batch.columns(position, ENVS)
            observation = unroll.timesteps.observation  # [T + 1, 2, 5]
            assert len(np.unique(observation[..., 0])) == 1
            np.testing.assert_array_equal(observation[..., 1], [[0, 1]] * (LENGTH + 1))
            found.setdefault(int(observation[0, 0, 0]), []).append(unroll)
    for unrolls in found.values():
        unrolls.sort(key=lambda unroll: unroll.timesteps.observation[0, 0, 2])
    return found


def test_the_unrolls_of_each_environment_are_those_that_it_makes_alone(run):
    batches = learned(run(AS_READY))
    ready, alone = unrolls_of(batches), unrolls_of(learned(run(IN_TURN)))
    assert ready.keys() == alone.keys()
    assert sum(map(len, ready.values())) == UPDATES * ENVS  # none is lost or there twice
    for seed, unrolls in ready.items():
        steps = np.concatenate([u.timesteps.observation[:-1, 0, 2] for u in unrolls])
        np.testing.assert_array_equal(steps, np.arange(len(steps)))
        for own, other in zip(unrolls, alone[seed], strict=False):
            own, other = (
                u._replace(version=(), timesteps=u.timesteps._replace(env_id=(), statistics=()))
                for u in (own, other)
            )
            for a, b in zip(leaves_of(own), leaves_of(other), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    for n, batch in enumerate(batches):
        assert n - STALENESS <= batch.version[..., 1].min() <= batch.version[..., 1].max() <= n


def let_go(gate):
    """Lets the environment at the gate go on, if it is there."""
    try:
        end = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # nobody reads
        return False
    os.close(end)
    return True


def test_nobody_waits_for_an_environment_that_is_held(run, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    ends = run(AS_READY, gate=str(gate))
    limiter = ends.sink.limiter
    wait_until(lambda: all(limiter.complete(n) for n in range(1, 1 + STALENESS)))
    assert not limiter.complete(0)
    wait_until(lambda: let_go(gate))
    counts = [len(unrolls) for unrolls in unrolls_of(learned(ends, 1 + STALENESS)).values()]
    assert (min(counts), sum(counts)) == (1, ENVS * (1 + STALENESS))


def test_an_environment_that_dies_goes_on_in_its_unroll(run, tmp_path):
    marker = tmp_path / "died"
    batches = learned(run(AS_READY, marker=str(marker)))
    assert marker.exists()
    assert sum(batch.timesteps.lost[1:].sum() for batch in batches) == 1


def test_learners_get_the_state_of_each_environment(run):
    ends = run(AS_READY)
    learned(ends, 1)
    ends.sink.ask_states()
    states = ends.sink.states(lambda: None)
    assert list(states) == list(range(ENVS))
