"""`python -m tools.bench skew`: slow simulators in lock step, and as they get ready."""

import json

import pytest

from tools.bench.__main__ import main


@pytest.mark.slow
def test_uneven_simulators_are_trained_on_in_both_ways(capsys):
    words = ["skew", "--num-envs", "2", "--microseconds", "500", "--seconds", "2", "--rounds", "1"]
    assert main([*words, "--json"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert line["config"]["vs"] == "in lock step"
    assert line["value"] > 0
    assert line["ratio"] == line["value"] / line["vs_value"]
