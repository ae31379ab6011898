"""Short gates, each under another plan (two under `fused`); some with a part of their budget."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from tools.gates import table
from tools.gates.__main__ import main
from tools.gates.table import gates_named


@pytest.fixture
def learned(tmp_path, capfd, monkeypatch):
    """Expects that a gate is passed under a plan, with seed 0."""

    def expect(gate, plan):
        monkeypatch.setattr(table, "GATES", (gate,))
        words = ["--seeds", "0", "--plan", plan, "--runs", str(tmp_path), "--json"]
        code = main([gate.name, *words])
        row = json.loads(capfd.readouterr().out)
        assert (code, row["passed"]) == (0, True), row

    return expect


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        pytest.param("ppo-cartpole", "threads", marks=pytest.mark.slow),
        pytest.param("ppo-pendulum", "decoupled", marks=pytest.mark.slow),
        pytest.param("pqn-cartpole", "central", marks=pytest.mark.slow),
        pytest.param("pqn-acrobot", "inline", marks=pytest.mark.slow),
        pytest.param("sac-pendulum", "fused", marks=pytest.mark.slow),
        pytest.param("vdn-two_step", "replicated", marks=pytest.mark.slow),
        pytest.param("qmix-two_step", "env_servers", marks=pytest.mark.slow),
    ],
)
def test_what_a_gate_asks_for_is_learned(name, plan, learned):
    learned(gates_named([name])[0], plan)


# With their whole budgets, these would take minutes together on one core. What is asked of the
# part is far above what a policy that does not learn gets: some 22 on CartPole, and on Acrobot
# -500, which is an episode's whole length.
@pytest.mark.parametrize(
    ("name", "plan", "env_steps", "threshold"),
    [
        pytest.param(
            *("appo-cartpole:staleness_4", "env_servers", 64_000, 100), marks=pytest.mark.slow
        ),
        pytest.param(
            *("impala-cartpole:staleness_0", "replicated", 80_000, 100), marks=pytest.mark.slow
        ),
        ("dqn-acrobot", "fused", 150_000, -200),
    ],
)
def test_much_of_what_a_gate_asks_for_is_learned_in_a_part_of_its_budget(
    name, plan, env_steps, threshold, learned
):
    (gate,) = gates_named([name])
    command = re.sub(r"--env-steps \d+", f"--env-steps {env_steps}", gate.command)
    command = re.sub(r" --plan \w+", "", command)
    learned(replace(gate, command=command, threshold=threshold), plan)
