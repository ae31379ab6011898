"""The benchmarks of learning and of a replay, as their user calls them."""

import json

from tools.bench.__main__ import main

SMALL = ["--num-envs", "4", "--algorithm.unroll-length", "8", "--algorithm.epochs", "1"]
SMALL += ["--seconds", "0.1", "--rounds", "1"]


def test_learn_is_measured_in_samples_of_all_slots(capsys):
    words = ["learn", "native:CartPole-v1", *SMALL]
    assert main([*words, "--json"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert line["name"] == "learn"
    assert line["unit"] == "samples/s"
    assert line["samples"] == 4 * 8
    assert line["value"] > 0
    assert main(words) == 0
    assert "32 samples" in capsys.readouterr().out


def test_a_replay_is_saved_and_read_again(capsys, tmp_path):
    words = ["replay", "--frames", "64", "--num-slots", "2", "--unroll-length", "4", "--new", "3"]
    assert main([*words, "--folder", str(tmp_path), "--json"]) == 0
    lines = {line["name"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())}
    memory, first, following, resumed = lines.values()
    assert memory["config"]["frames"] == 64
    rows = 8 * 2 * 5
    assert memory["replay_bytes"] == rows * (84 * 84 + 6) + 64 * 4 + 8 * 2 * 4
    assert following["bytes"] < first["bytes"] / 2
    assert resumed["unit"] == "s"
    assert not list(tmp_path.iterdir())
