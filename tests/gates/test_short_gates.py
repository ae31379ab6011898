"""Some of the gates that take less than a minute, each under another plan."""

import json

import pytest

from srl.cli import main


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("ppo-cartpole", "threads"),
        ("ppo-pendulum", "decoupled"),
        ("pqn-cartpole", "central"),
        ("pqn-acrobot", "inline"),
        ("sac-pendulum", "fused"),
    ],
)
def test_what_a_gate_asks_for_is_learned(name, plan, tmp_path, capfd):
    words = ["--seeds", "0", "--plan", plan, "--runs", str(tmp_path), "--json"]
    code = main(["gates", name, *words])
    row = json.loads(capfd.readouterr().out)
    assert (code, row["passed"]) == (0, True), row
