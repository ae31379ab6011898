"""One algorithm, eight plans: what they train is the same."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from plan_runs import PLAIN, assert_agree, assert_same_actions
from plan_runs import trained as train

import srl
from srl.dataflow.plans import PLANS, named
from srl.streams.transport.keys import VARIABLE, Keys

QUICK = {
    "bits by DQN with hindsight": ("central",),
    "cartpole": (*PLANS,),
    "cartpole with memory": ("serving",),
    "cartpole by APPO": ("threads", "fused", "inline"),
    "cartpole by C51": ("threads", "fused", "central"),
    "cartpole by DiscreteSAC": ("threads", "fused", "decoupled"),
    "cartpole by DiscreteSAC with memory": (),
    "cartpole by DQN": (),
    "cartpole by DQN from prior data": ("fused", "central"),
    "cartpole by IMPALA with memory": ("threads", "fused", "decoupled"),
    "cartpole by PQN with memory": ("threads", "fused", "serving"),
    "cartpole by R2D2": ("central",),
    "cartpole by REINFORCE": ("central",),
    "corridor in JAX": ("decoupled",),
    "game": (),
    "game by MAPPO": ("threads", "serving"),
    "game against the past": ("decoupled",),
    "game against a fixed policy": (),
    "pendulum by REDQ": ("threads", "fused", "central"),
    "pendulum by REPPO": ("fused", "central"),
    "pendulum by SAC": (),
    "pendulum by SAC with memory": ("threads", "fused", "central"),
    "pendulum by TD3": ("decoupled",),
    "pendulum by TD3 with memory": (),
    "tasks by PPO": ("decoupled",),
    "tasks by SAC": ("fused",),
    "team by DQN": ("fused",),
    "team by PQN": ("central",),
    "team by R2D2": (),
    "tic-tac-toe by AlphaZero": ("serving",),
    "trees of actions": ("central",),
}
"""Plans that do not wait for `make slow`: those that compile much do."""
SLOW = ("hide and seek",)


def cases(names, words, quick):
    """Every name with every word; slow but for those that are quick."""
    pairs = [(name, word) for name in names for word in words]
    return [pytest.param(*p, marks=() if quick(*p) else pytest.mark.slow) for p in pairs]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Trains an experiment by a plan, once."""
    return cache(
        lambda name, *options, **settings: train(
            tmp_path_factory.mktemp("plans"), name, *options, **settings
        )
    )


@pytest.mark.parametrize(
    ("name", "plan"), cases([*QUICK, *SLOW], PLANS, lambda name, plan: plan in QUICK.get(name, ()))
)
def test_every_plan_trains_as_the_plain_loop_does(trained, name, plan):
    """Those of other algorithms have one actor: a process less to start."""
    if "AlphaZero" in name:
        pytest.importorskip("mctx")
        pytest.importorskip("pgx")
    actors = ("--plan.actors.replicas", "1" if " by " in name else "2")
    actors = actors if "actors" in named(plan).fragments else ()
    assert_agree(trained(name, *PLAIN), trained(name, plan, *actors))


@pytest.mark.parametrize(
    "plan",
    [
        "fused",
        "decoupled",
        *(pytest.param(p, marks=pytest.mark.slow) for p in ("threads", "inline", "replicated")),
    ],
)
def test_lessons_of_a_curriculum_begin_at_the_same_update_under_every_plan(trained, plan):
    """The third and last lesson has episodes of 16 steps; all have begun new ones in it."""
    actors = ("--plan.actors.replicas", "1") if "actors" in named(plan).fragments else ()
    one = ("--plan.learners.replicas", "1") if plan == "replicated" else ()
    plain, other = trained("lessons", *PLAIN), trained("lessons", plan, *actors, *one)
    assert_agree(plain, other)
    assert plain.lesson == other.lesson == 2


@pytest.mark.parametrize(
    ("name", "plan"),
    cases(
        ["cartpole", "game"],
        ["inline", "central", "decoupled"],
        lambda *_: False,  # by memory and network at once below
    ),
)
def test_plans_train_the_same_over_the_network(trained, name, plan):
    actors = ("--plan.actors.replicas", "2")
    assert_agree(trained(name, *PLAIN), trained(name, plan, *actors, transport="network"))


@pytest.mark.parametrize(
    ("name", "plan"),
    cases(
        ["cartpole"],
        ["inline", "central", "decoupled", "env_servers"],
        lambda _, plan: plan == "decoupled",
    ),
)
def test_plans_train_the_same_by_memory_and_network_at_once(
    trained, tmp_path, monkeypatch, name, plan
):
    monkeypatch.setenv(VARIABLE, Keys.new().to_text())
    actors = ("--plan.actors.replicas", "2")
    run = train(tmp_path, name, plan, *actors, transport="cluster", role="apart_role:apart")
    assert_agree(trained(name, *PLAIN), run)
    used = {path.name for path in (tmp_path / "run").glob("actors-*")}
    assert used == {"actors-0-memory", "actors-1-network"}


@pytest.mark.parametrize(
    ("name", "plan"),
    cases(
        [*QUICK, *SLOW],
        ["threads", "inline", "replicated"],
        lambda *both: (
            both
            in [
                ("cartpole with memory", "inline"),
                ("corridor in JAX", "threads"),
            ]
        ),
    ),
)
def test_unrolls_that_are_compiled_are_those_of_the_plain_loop(trained, name, plan):
    stepping = named(plan).home("step")
    assert_agree(trained(name, *PLAIN), trained(name, plan, f"--plan.{stepping}.compiled", "true"))


@pytest.mark.slow
def test_learners_with_two_devices_each_train_as_one_device_does(trained, tmp_path, monkeypatch):
    plain = trained("cartpole by DQN", *PLAIN)
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")  # of new processes
    several = train(tmp_path, "cartpole by DQN", "replicated", "--plan.learners.replicas", "2")
    assert_agree(plain, several)
    replays = (tmp_path / "run" / "checkpoints" / "replay").iterdir()
    assert {path.name.split(".")[1] for path in replays} == {"0of4", "1of4", "2of4", "3of4"}


@pytest.mark.parametrize("folder", ["dataflow", "launch", "streams", "workers"])
def test_nothing_that_runs_an_algorithm_knows_its_name(folder):
    algorithms = "ppo|appo|ippo|mappo|impala|reppo|pqn|dqn|r2d2|sac|td3|reinforce"
    known = re.compile(f"(?<![a-z])({algorithms})(?![a-z])", re.IGNORECASE)
    for path in (Path(srl.__file__).parent / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [getattr(node, field, "") for field in ("id", "attr", "name", "module", "arg")]
            assert not any(known.search(name or "") for name in names), (path, names)


@pytest.mark.parametrize("plan", ["threads", pytest.param("central", marks=pytest.mark.slow)])
def test_parameters_are_the_same_bits_however_many_actors_share_the_groups(trained, plan):
    assert_same_bits(trained, "cartpole", plan, 1, 4)


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["threads", "inline", "central", "decoupled"])
@pytest.mark.parametrize("name", ["cartpole", "hide and seek"])
def test_parameters_are_the_same_bits_for_one_two_and_four_actors(trained, name, plan):
    assert_same_bits(trained, name, plan, 1, 2, 4)


def assert_same_bits(trained, name, plan, *actors):
    runs = [
        trained(name, plan, "--plan.actors.replicas", str(number), "--updates", "20")
        for number in actors
    ]
    for run in runs[1:]:
        assert_same_actions(runs[0], run)
        assert np.array_equal(runs[0].parameters, run.parameters)


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["replicated", "env_servers"])
def test_replicas_train_the_same_bits_again(tmp_path, plan):
    one, other = (train(tmp_path / word, "cartpole", plan, "--updates", "20") for word in "ab")
    assert_same_actions(one, other)
    assert np.array_equal(one.parameters, other.parameters)
