"""First parameters from another run: what fits, what does not, and what is shown of it."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from gymnasium import spaces
from small_runs import CARTPOLE, assert_same, resolved, save

import srl
from srl import Fixed, UserError
from srl.algorithms import DQN, PPO
from srl.core.types import Specs
from srl.loop.learning.beginning import begun_from
from srl.loop.policy_set import PolicySet
from srl.networks import MLP
from srl.record.checkpoint import Checkpoints

PPO_ = PPO(network=MLP(width=8), unroll_length=8, epochs=1, minibatches=1)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A run with a checkpoint, 7, that has not trained."""
    experiment = replace(CARTPOLE, algorithm=PPO_, seed=4)
    return save(resolved(experiment), tmp_path_factory.mktemp("source") / "run").path


def drawn(algorithm, width=4, actions=2):
    """First states for an environment with so many numbers in observations, and actions."""
    observation = spaces.Box(-10, 10, (width,), np.float32)
    specs = Specs(observation, spaces.Discrete(actions), ("agent",))
    states = PolicySet.of(algorithm, {"*": "other"}, specs, 1).init(jax.random.key(9))
    return jax.device_get(states)


def begun(source, states):
    return begun_from(Fixed(source).pinned("init_from"), states)


def parameters_of(source):
    return Checkpoints(source / "checkpoints").learners()[0]["policy"]["params"]


def test_all_of_a_like_network_is_taken(source):
    learners, report = begun(source, drawn(PPO_))
    assert_same(learners["other"]["params"], parameters_of(source))
    (line,) = report
    assert line.startswith("init_from: other: ")
    assert "numbers fit: observations/" in line


def test_layers_of_another_width_and_head_are_drawn_and_reported(source):
    states = drawn(PPO_, width=6, actions=3)
    learners, report = begun(source, states)
    params, theirs = learners["other"]["params"], parameters_of(source)
    text = "\n".join(report)
    changed = [line for line in report if "drawn anew" in line]
    for layer in ("observations", "params/policy/network"):
        assert any(f": {layer}" in line for line in changed), text
    assert "float32[4, 8] there" in text
    assert "float32[6, 8] here" in text
    same = [x.shape == y.shape and (x == y).all() for x, y in pairs(params, theirs)]
    mine = [x.shape == y.shape and (x == y).all() for x, y in pairs(params, states["other"].params)]
    assert all(a or b for a, b in zip(same, mine, strict=True)), "neither drawn nor taken"
    assert any(same)
    assert any(mine)


def pairs(one, other):
    return zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)


def test_new_layers_and_those_that_are_left_are_reported(source):
    deeper = replace(PPO_, network=MLP(width=8, depth=3), normalize_observations=False)
    _, report = begun(source, drawn(deeper))
    assert any("new here: " in line and "params/policy/network" in line for line in report)
    assert any("left there: " in line and "observations" in line for line in report)


def test_a_run_of_which_nothing_fits_is_refused(source):
    with pytest.raises(UserError, match=r"no layer of .* has the name and shape of one here"):
        begun(source, drawn(DQN()))
    wider = replace(PPO_, network=MLP(width=9, memory=PPO_.network.memory))
    with pytest.raises(UserError, match=r"has .*float32\[.* there and .*float32\[.* here; choose"):
        begun(source, drawn(wider))


def test_a_run_shows_the_report_and_learns_the_value_alone_in_its_first_updates(
    source, tmp_path, capsys
):
    algorithm = replace(PPO_, value_warm_up=2, weight_decay=0.1)
    experiment = replace(CARTPOLE, algorithm=algorithm, init_from=source, updates=3)
    experiment = replace(experiment, plan="threads", keep_checkpoints=10)
    run = srl.train(experiment, run_dir=tmp_path / "run")
    shown = capsys.readouterr().out
    assert "init_from    version 7 of" in shown
    assert "init_from: policy: " in shown
    theirs, checkpoints = parameters_of(source), Checkpoints(run.path / "checkpoints")
    after = {n: checkpoints.learners(n)[0]["policy"]["params"] for n in checkpoints.versions()}
    assert_same(after[1]["policy"], theirs["policy"])
    assert not np.array_equal(*(jax.tree.leaves(x["value"])[0] for x in (after[1], theirs)))
    assert not np.array_equal(*(jax.tree.leaves(x["policy"])[-1] for x in (after[3], theirs)))
