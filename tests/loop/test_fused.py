"""The plan `fused` against the plain loop, on real pools."""

import itertools
from dataclasses import replace

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache
from small_runs import CARTPOLE, GAME, RECURRENT, assert_same, train

from srl import UserError
from srl.algorithms import DQN, PPO
from srl.core.errors import PlanError
from srl.loop.fused import Fused
from srl.loop.training import local_training
from srl.networks import MLP
from srl.streams.group_state import unpack

STACKED = replace(RECURRENT, algorithm=replace(RECURRENT.algorithm, frame_stack=3, rewards="sign"))
EXPERIMENTS = {"cartpole": CARTPOLE, "recurrent": RECURRENT, "game": GAME, "stacked": STACKED}


def parameters(trainer):
    states = trainer.state()["learners"]
    leaves = jax.tree.leaves({name: state["params"] for name, state in states.items()})
    return np.concatenate([np.ravel(leaf) for leaf in leaves])


def environments(trainer):
    """What every group goes on from, but for the pool's own bytes, which tell how it is stepped."""
    states = unpack(trainer.state()["environments"], 1 << 30)
    return {group: {**state, "pool": ()} for group, state in states.items()}


def assert_close(a, b):
    """Equal but for the order of sums."""
    a, b = parameters(a), parameters(b)
    assert np.linalg.norm(a - b) / np.linalg.norm(b) < 1e-5


@pytest.mark.parametrize(
    "name",
    [
        "stacked",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("cartpole", "recurrent", "game")),
    ],
)
def test_it_trains_as_the_plain_loop_does(start, name):
    fused, plain = start(EXPERIMENTS[name], Fused), start(EXPERIMENTS[name], local_training)
    for ours, theirs in zip(train(fused, 3), train(plain, 3), strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            expected = theirs[name]
            assert value == (expected and pytest.approx(expected, rel=1e-3, abs=1e-5)), name
    # The same actions led all environments to the very same place.
    assert_same(environments(fused), environments(plain))
    assert_close(fused, plain)


@pytest.mark.parametrize(("first", "second"), [(Fused, local_training), (local_training, Fused)])
def test_a_run_goes_on_under_the_other_plan(start, first, second):
    whole, stopped, resumed = (start(CARTPOLE, kind) for kind in (first, first, second))
    train(whole, 4)
    train(stopped, 2)
    resumed.restore(stopped.state())
    train(resumed, 2)
    assert resumed.learner.progress.env_steps == whole.learner.progress.env_steps
    assert_close(whole, resumed)


def test_what_acts_after_an_update_has_the_newest_parameters_and_share_of_random_actions(start):
    algorithm = DQN(network=MLP(width=4), warm_up=0, replay=1_000)
    trainer = start(replace(CARTPOLE, algorithm=algorithm), Fused)
    train(trainer, 3)
    learner = trainer.learner
    policy_set = learner.policy_set
    expected = policy_set.acting(policy_set.policies(learner.states), learner.past)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), learner.policies, expected
    )


def test_episodes_are_counted_whole(start):
    trainer = start(GAME, Fused)
    train(trainer, 5)  # 40 steps: episodes of 20, and the reset step after each
    report = trainer.report()
    assert report["episodes"] == 4
    assert report["episode_length"] == 20


def test_an_environment_that_no_program_can_step_is_refused(start):
    with pytest.raises(UserError, match=r"the plan fused: .*native.*choose another"):
        start(replace(CARTPOLE, env="CartPole-v1"), Fused)


class Shortened(PPO):
    """A loop whose third pass has a shorter unroll: the two before it are traced."""

    passes = itertools.count()

    def loop(self, run):
        length = 8 if next(self.passes) < 2 else 4
        replace(PPO(), unroll_length=length).loop(run)


def test_a_loop_that_is_compiled_is_the_one_that_was_traced(start):
    experiment = replace(CARTPOLE, algorithm=Shortened(network=MLP(width=4), minibatches=2))
    assert experiment.graph.unrolls[0].length == 8
    with pytest.raises(PlanError, match=r"had unrolls of 8 steps of act.* and has unrolls of 4"):
        start(experiment, Fused)


@pytest.fixture
def nothing_compiled(tmp_path):
    """An empty folder of compiled programs, for a while."""
    folder = jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "compiled"))
    compilation_cache.reset_cache()
    yield
    jax.config.update("jax_compilation_cache_dir", folder)
    compilation_cache.reset_cache()


@pytest.mark.usefixtures("nothing_compiled")
def test_runs_of_all_seeds_and_lengths_share_one_compiled_program(start):
    compiled = []

    def listen(event, **_):
        if event == "/jax/compilation_cache/cache_misses":
            compiled.append(event)

    jax.monitoring.register_event_listener(listen)
    try:
        start(CARTPOLE, Fused)
        assert compiled
        compiled.clear()
        start(replace(CARTPOLE, seed=CARTPOLE.seed + 1, updates=7), Fused)
        assert not compiled
    finally:
        jax.monitoring.unregister_event_listener(listen)
