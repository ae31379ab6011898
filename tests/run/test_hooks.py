"""Hooks see a run as it goes, and change it alike under every plan."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import srl
from srl.algorithms import ALGORITHMS
from srl.api.cli import main
from srl.core.errors import UserError
from srl.core.types import Unroll
from srl.loop.fused import Fused
from srl.loop.learning.learner import Learner
from srl.loop.training import local_training
from srl.networks import MLP
from srl.pools import make_pool
from srl.pools.timestep_arrays import empty_timestep
from srl.record.checkpoint import Checkpoints
from srl.run.hooks import Event
from tests.small_runs import CARTPOLE, assert_same

SMALL = replace(CARTPOLE, updates=6, report_every=1, groups=2)
ONE = srl.plans.replicated(1)


def learners(run, version=None):
    """The states that a checkpoint holds, and its settings."""
    checkpoints = Checkpoints(run.path / "checkpoints")
    try:
        return checkpoints.learners(version)[0], checkpoints.metadata(version).get("settings", {})
    finally:
        checkpoints.close()


def halve(event):
    """Halves the learning rate at each report, and stops at the fourth."""
    event.change(learning_rate=event.settings["learning_rate"] / 2, entropy_cost=0.01)
    if event.metrics["updates"] == 4:
        event.stop()


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The run of the plain loop, which all others are to agree with."""
    run_dir = tmp_path_factory.mktemp("plain") / "run"
    return srl.train(SMALL, run_dir=run_dir, plan=ONE, on_report=halve, quiet=True)


# ---- every plan ----


@pytest.mark.parametrize(
    "plan", ["fused", "threads", pytest.param("inline", marks=pytest.mark.slow), "replicated"]
)
def test_a_change_comes_at_the_same_update_under_every_plan(plan, plain, tmp_path):
    seen = []
    experiment = replace(SMALL, groups=0) if plan == "fused" else SMALL
    run = srl.train(
        experiment,
        run_dir=tmp_path / "run",
        plan=plan,
        on_report=halve,
        on_checkpoint=lambda event: seen.append((event.kind, event.metrics["updates"])),
        quiet=True,
    )
    names = "updates", "loss/learning_rate", "settings/learning_rate", "settings/entropy_cost"
    rows, wanted = ([[row.get(n, 0) for n in names] for row in r.metrics] for r in (run, plain))
    np.testing.assert_allclose(rows, wanted, rtol=1e-6)
    assert [row[0] for row in rows] == [1, 2, 3, 4]
    assert rows[-1][2] == CARTPOLE.algorithm.learning_rate / 8
    assert seen[0][0] == "checkpoint"
    assert seen[-1] == ("checkpoint", 4)
    (found, settings), (ours, same) = learners(run), learners(plain)
    assert settings == same == {"learning_rate": rows[-1][2] / 2, "entropy_cost": 0.01}
    params = (jax.tree.leaves(states["policy"]["params"]) for states in (found, ours))
    for a, b in zip(*params, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_a_stopped_run_goes_on_with_what_was_changed(plain, tmp_path):
    whole = srl.train(
        replace(SMALL, on_report=lambda e: halve(e) if e.metrics["updates"] < 4 else None),
        run_dir=tmp_path / "whole",
        plan=ONE,
        quiet=True,
    )
    stopped = srl.train(
        replace(SMALL, on_report=lambda e: halve(e) if e.metrics["updates"] < 4 else e.stop()),
        run_dir=tmp_path / "stopped",
        plan=ONE,
        quiet=True,
    )
    assert (stopped.last["updates"], whole.last["updates"]) == (4, 6)
    experiment = replace(SMALL, plan=ONE)  # and without hooks
    resumed = srl.train(experiment, run_dir=stopped.path, resume=True, quiet=True)
    assert learners(resumed)[1] == learners(whole)[1] != {}
    assert_same(learners(resumed)[0], learners(whole)[0])


# ---- settings ----


@pytest.mark.parametrize("kind", ALGORITHMS, ids=lambda kind: kind.__name__)
def test_what_an_algorithm_calls_adjustable_can_be_traced(kind):
    env = "native:Pendulum-v1" if kind.__name__ in ("REPPO", "SAC", "TD3") else "native:CartPole-v1"
    network = MLP(width=8, memory=8) if kind.__name__ == "R2D2" else MLP(width=8)
    algorithm = replace(kind(network=network), privileged=()).settled(8)
    experiment = replace(CARTPOLE, env=env, algorithm=algorithm)
    with make_pool(env, 8) as pool:
        learner = Learner(experiment, pool.specs)
    assert learner.settings.now.keys() >= {"learning_rate"}

    def learn(settings):
        policy_set, n = learner.policy_set.adjusted(settings), experiment.algorithm.unroll_length
        steps = empty_timestep(pool.specs, 8, (n + 1,))
        key = jax.random.key(0)
        memory = policy_set.initial_memory(8)
        policies = policy_set.policies(learner.states)
        row = jax.tree.map(lambda x: x[0], steps)
        decision = policy_set.act(
            policies, row.observation, row.terminated, memory, key, np.uint32(0), np.arange(8)
        )
        rows = jax.tree.map(
            lambda x: np.zeros((n, *x.shape), x.dtype), decision._replace(memory=())
        )
        chunks = n // policy_set.chunk_of(n)
        memories = jax.tree.map(lambda x: np.zeros((chunks, *x.shape), x.dtype), decision.memory)
        unroll = Unroll(
            *(steps.observation, steps.reward, steps.terminated, steps.truncated),
            *(rows.action, rows.log_prob, memories, np.zeros((n, 1, 2), np.int32)),
            slot=np.arange(8, dtype=np.int32),
        )
        unroll = jax.tree.map(jnp.asarray, unroll)
        states, *_ = policy_set.learn(learner.states, policy_set.empty_replays(unroll), unroll)
        return states

    states = jax.eval_shape(learn, learner.setting_operands)
    # Else the second update would compile its program again.
    types = jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), (states, learner.states))
    assert types[0] == types[1]


@pytest.mark.parametrize("make", [local_training, Fused])
def test_a_change_acts_at_the_next_update_and_compiles_nothing(make):
    trainer = make(replace(CARTPOLE, updates=10))
    trainer.start()
    try:
        trainer.update()
        trainer.learner.settings.change({"learning_rate": 0.0})
        before = jax.device_get(trainer.learner.states["policy"].params)
        trainer.update()
        assert_same(before, trainer.learner.states["policy"].params)
        trainer.learner.settings.change({"learning_rate": 1e-3})
        trainer.update()
        after = jax.tree.leaves(trainer.learner.states["policy"].params)
        assert not np.array_equal(jax.tree.leaves(before)[0], after[0])
        if make is local_training:  # the other's is one compiled program, which takes no others
            assert trainer.learner._learn._cache_size() == 1
    finally:
        trainer.close()


def test_a_change_that_cannot_be_is_refused_by_name(tmp_path):
    limits = CARTPOLE.algorithm.limits
    event = Event("report", tmp_path, {"updates": 1}, {"learning_rate": 1e-3, "clip": 0.2}, limits)
    with pytest.raises(UserError, match=r"cannot change .* did you mean learning_rate\?"):
        event.change(learning_rat=1.0)
    with pytest.raises(UserError, match=r"unroll_length cannot .* there are learning_rate, clip"):
        event.change(unroll_length=1)
    for value in (-1.0, float("nan"), "fast"):
        with pytest.raises(UserError, match="learning_rate is"):
            event.change(learning_rate=value)
    event.change(clip=0)
    assert event.answer == (False, {"clip": 0.0})


# ---- from a file, and failures ----

_FILE = """
import json
from dataclasses import replace
from tests.small_runs import CARTPOLE

def note(event):
    with open(event.path / "noted.jsonl", "a") as file:
        file.write(json.dumps([event.kind, event.metrics["updates"]]) + "\\n")

experiment = replace(CARTPOLE, updates=2, report_every=1, on_report=note, on_checkpoint=note)
"""


def test_hooks_of_a_file_are_called_by_the_command_and_in_one_process_alone(tmp_path):
    file, run_dir = tmp_path / "noting.py", tmp_path / "run"
    file.write_text(_FILE)
    words = ["--plan", "inline", "--plan.actors.replicas", "1", "--run-dir", str(run_dir)]
    assert main(["run", str(file), *words]) == 0
    noted = [json.loads(line) for line in (run_dir / "noted.jsonl").read_text().splitlines()]
    assert [event for event in noted if event[0] == "report"] == [["report", 1], ["report", 2]]
    assert noted[-1] == ["checkpoint", 2]


@pytest.mark.parametrize("plan", [ONE, srl.plans.inline(1)], ids=lambda plan: plan.name)
def test_a_hook_that_raises_ends_the_run_after_a_checkpoint(plan, tmp_path):
    def broken(event):
        if event.metrics["updates"] == 2:
            raise ValueError("no such thing")

    with pytest.raises(
        srl.RunError, match="the hook on_report raised ValueError: no such"
    ) as error:
        srl.train(
            replace(SMALL, groups=0),
            run_dir=tmp_path / "run",
            plan=plan,
            on_report=broken,
            quiet=True,
        )
    assert "in broken" in str(error.value)
    assert Checkpoints(tmp_path / "run" / "checkpoints").latest() == 2


def test_a_hook_sees_evaluations_and_may_end_the_run(tmp_path):
    seen = []

    def enough(event):
        seen.append(event.metrics)
        event.stop()

    run = srl.train(
        replace(SMALL, updates=100_000, evaluation=srl.Evaluation(episodes=2, every=1, share=1.0)),
        run_dir=tmp_path / "run",
        plan="inline",
        on_evaluation=enough,
        quiet=True,
    )
    assert run.last["updates"] < 100_000
    assert seen[0]["eval/return"] >= 8  # CartPole falls no sooner
