"""The benchmark of pools, as its user calls it."""

import json

import numpy as np
import pytest

from srl import make_pool
from srl.bench.pool import STICKY_STEPS, random_actions
from srl.cli import main


def test_it_prints_one_json_object_with_what_was_measured(capsys):
    words = ["bench", "pool", "--env", "native:HideAndSeek-v1", "--scenario", "full"]
    words += ["--num-envs", "2", "--threads", "1", "--seconds", "0.3", "--json"]
    assert main(words) == 0
    line = json.loads(capsys.readouterr().out)
    assert line["name"] == "pool"
    assert line["unit"] == "env_steps/s"
    assert line["config"]["scenario"] == "full"
    assert line["config"]["num_envs"] == 2
    assert line["value"] == line["per_thread"] > 0


def test_asynchronous_pools_and_gymnasium_are_measured_too(capsys):
    for words in (["--env", "native:CartPole-v1", "--batch-size", "2"], ["--env", "CartPole-v1"]):
        assert main(["bench", "pool", *words, "--num-envs", "4", "--seconds", "0.1"]) == 0
        assert "env steps/s" in capsys.readouterr().out


def test_sticky_actions_are_held():
    with make_pool("native:CartPole-v1", num_envs=50) as pool:
        actions = np.stack(random_actions(pool, 200, sticky=True))
    changes = (actions[1:] != actions[:-1]).mean()
    assert changes == pytest.approx(0.5 / STICKY_STEPS, rel=0.2)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["pool", "--env", "native:CartPole-v1", "--sead", "1"], "unknown option 'sead'"),
        (["pool", "--env", "native:CartPole-v1", "odd"], "not made of pairs"),
        (["pool"], "--env"),
        (["puddle"], "no benchmark 'puddle'"),
        (["pool", "--env", "native:CartPole-v1", "--seconds", "0"], "expected more than 0"),
    ],
)
def test_mistakes_are_told_in_a_line(capsys, words, told):
    assert main(["bench", *words]) == 2
    text = capsys.readouterr().err
    assert told in text
    assert len(text.strip().splitlines()) == 1
