"""The benchmark of pools, as its user calls it."""

import json
import time

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from srl import make_pool
from srl.api.cli import main
from srl.extras.bench.actions import STICKY_STEPS, random_actions
from srl.extras.bench.backends import BACKENDS, Case, Stepper, fastest
from srl.extras.bench.rounds import neighbouring_ratios


def lines(capsys, *words):
    """The JSON objects that `srl bench pool` prints for these words."""
    assert main(["bench", "pool", *words, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_it_prints_one_json_object_with_what_was_measured(capsys):
    words = ["--env", "native:HideAndSeek-v1", "--scenario", "full"]
    (line,) = lines(capsys, *words, "--num-envs", "2", "--threads", "1", "--seconds", "0.3")
    assert line["name"] == "pool"
    assert line["unit"] == "env_steps/s"
    assert line["config"]["backend"] == "native"
    assert line["config"]["scenario"] == "full"
    assert line["config"]["num_envs"] == 2
    assert line["value"] == line["per_thread"] > 0
    assert len(line["rounds"]) == 5
    assert "ratio" not in line


def test_the_file_of_an_experiment_gives_its_environment_with_options(capsys):
    words = ["--env", "experiments/hide_and_seek.py:shelter", "--num-envs", "2", "--hiders", "2"]
    (line,) = lines(capsys, *words, "--seconds", "0.05", "--rounds", "1")
    assert line["config"]["env"] == "HideAndSeek-v1"
    assert line["config"]["hiders"] == 2
    assert line["config"]["seekers"] == 1


def test_asynchronous_pools_and_gymnasium_are_measured_too(capsys):
    for words in (["--env", "native:CartPole-v1", "--batch-size", "2"], ["--env", "CartPole-v1"]):
        assert main(["bench", "pool", *words, "--num-envs", "4", "--seconds", "0.1"]) == 0
        assert "env steps/s" in capsys.readouterr().out


def test_lists_give_a_row_for_each_combination(capsys):
    words = ["--env", "native:CartPole-v1,CartPole-v1", "--num-envs", "1,4/2", "--threads", "1"]
    rows = lines(capsys, *words, "--vs", "native,serial", "--seconds", "0.02")
    configs = [line["config"] for line in rows]
    assert [(c["backend"], c["env"], c["num_envs"], c["batch_size"], c["vs"]) for c in configs] == [
        (backend, "CartPole-v1", *size, vs)
        for backend in ("native", "serial")
        for size in ((1, 1), (4, 2))
        for vs in ("native", "serial")
    ]
    assert main(["bench", "pool", *words, "--vs", "serial", "--seconds", "0.02"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 5
    assert len({len(line) for line in table}) == 1  # the columns stand below each other
    assert "ratio" in table[0]


@pytest.mark.parametrize("vs", ["serial", "gymnasium", "gymnasium-sync", "gymnasium-async"])
def test_a_peer_steps_in_turns_and_the_ratio_has_its_spread(capsys, vs):
    words = ["--env", "native:CartPole-v1", "--num-envs", "2", "--seconds", "0.1", "--vs", vs]
    (line,) = lines(capsys, *words)
    assert line["config"]["vs"] == vs
    assert len(line["rounds"]) == len(line["vs_rounds"]) == 5
    assert line["vs_value"] == np.median(line["vs_rounds"])
    assert line["ratio_min"] <= line["ratio"] <= line["ratio_max"]


@pytest.mark.parametrize(
    ("env", "size", "vs"),
    [
        ("envpool:Pendulum-v1", "4/2", "envpool"),
        ("native:CartPole-v1", "4/2", "srl-envpool"),
    ],
)
def test_envpool_is_measured_with_our_interface_and_without(capsys, env, size, vs):
    pytest.importorskip("envpool")
    words = ["--env", env, "--num-envs", size, "--seconds", "0.1", "--vs", vs]
    (line,) = lines(capsys, *words)
    assert line["ratio"] > 0


def test_envpool_is_measured_in_the_way_that_is_fastest(capsys):
    pytest.importorskip("envpool")
    words = ["--env", "native:CartPole-v1", "--num-envs", "4", "--seconds", "0.3", "--threads", "2"]
    (line,) = lines(capsys, *words, "--vs", "envpool")
    assert (line["vs_way"], line["vs_threads"], line["vs_batch_size"]) in [
        ("", 2, 4),
        ("1 thread", 1, 4),
        ("async", 2, 2),
    ]


def test_the_fastest_of_several_ways_is_kept_and_the_others_end():
    ended = []

    def way(name, seconds):
        return Stepper(
            lambda _: time.sleep(seconds), spaces.Discrete(2), lambda: ended.append(name), 1
        )

    ways = {"slow": way("slow", 0.02), "fast": way("fast", 0.002)}
    side = fastest(Case("CartPole-v1", 1, 1), ways)
    assert (side.way, ended) == ("fast", ["slow"])
    side.close()
    assert ended == ["slow", "fast"]


def test_worker_processes_are_measured(capsys):
    words = ["--env", "CartPole-v1", "--backend", "processes", "--workers", "1"]
    (line,) = lines(capsys, *words, "--num-envs", "2", "--seconds", "0.1", "--vs", "serial")
    assert line["config"]["threads"] == 1


def test_worker_processes_are_compared_with_a_bare_loop_over_the_environments(capsys):
    words = ["--env", "srl.extras.bench.busy:Busy", "--env.microseconds", "1000", "--workers", "1"]
    (line,) = lines(capsys, *words, "--num-envs", "2", "--seconds", "0.1", "--vs", "bare")
    assert line["config"]["microseconds"] == 1000
    assert 0 < line["vs_value"] <= 1000


@pytest.mark.parametrize("vs", ["gymnasium", "gymnasium-sync", "gymnasium-async", "bare"])
def test_peers_step_every_environment_that_the_serial_pool_steps(vs):
    case = Case("srl.extras.bench.busy:Busy", 2, 2, options={"microseconds": 5.0})
    side = BACKENDS[vs](case)
    side.load(random_actions(side.action_space, 2, 1, sticky=False))
    assert side.rate(0.01) > 0
    side.close()


def test_gymnasiums_own_vector_environment_is_taken_where_there_is_one():
    for env, expected in (
        ("CartPole-v1", "CartPoleVectorEnv"),
        ("vector:CartPole-v1", "CartPoleVectorEnv"),
        ("Acrobot-v1", "SyncVectorEnv"),
    ):
        side = BACKENDS["gymnasium"](Case(env, 2, 2))
        assert type(side.close.__self__).__name__ == expected
        side.close()


def test_ratios_are_of_neighbouring_rounds():
    # A machine that slows down fourfold from round to round slows both alike.
    assert neighbouring_ratios([64.0, 16.0, 4.0], [32.0, 8.0, 2.0]) == [2, 2, 2, 0.5, 0.5]


def test_sticky_actions_are_held():
    with make_pool("native:CartPole-v1", num_envs=50) as pool:
        actions = np.stack(random_actions(pool.specs.action, 50, 200, sticky=True))
    changes = (actions[1:] != actions[:-1]).mean()
    assert changes == pytest.approx(0.5 / STICKY_STEPS, rel=0.2)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["pool", "--env", "native:CartPole-v1", "--sead", "1"], "unknown option 'sead'"),
        (["pool", "--env", "native:CartPole-v1", "odd"], "not expected: odd"),
        (["pool"], "--env"),
        (["puddle"], "no benchmark 'puddle'"),
        (
            ["pool", "--env", "native:CartPole-v1", "--seconds", "0"],
            "'0'; expected a number from",
        ),
        (["pool", "--env", "native:CartPole-v1", "--rounds", "0"], "from 1 up"),
        (["pool", "--env", "CartPole-v1", "--vs", "brax"], "'brax'; expected one of native"),
        (["pool", "--env", "CartPole-v1", "--num-envs", "1,x"], "'x'; expected a whole number"),
        (["pool", "--env", "CartPole-v1", "--num-envs", "4/8"], "batches of 8 from 4"),
        (["pool", "--env", "native:CartPole-v1", "--vs", "physics"], "native:CartPole-v1"),
        (["pool", "--env", "CartPole-v1", "--backend", "physics"], "native:CartPole-v1"),
        (["pool", "--env", "native:HideAndSeek-v1", "--vs", "gymnasium"], "cannot make 'HideAnd"),
        (["pool", "--env", "vector:CartPole-v1", "--vs", "bare"], "compare with gymnasium"),
        (
            ["pool", "--env", "native:CartPole-v1", "--backend", "serial"],
            "--backend serial and --env native:CartPole-v1 name two backends",
        ),
    ],
)
def test_mistakes_are_reported_in_a_line(capsys, argv, message):
    assert main(["bench", *argv]) == 2
    text = capsys.readouterr().err
    assert message in text
    assert len(text.strip().splitlines()) == 1


def test_sides_whose_actions_differ_are_not_compared(capsys, monkeypatch):
    pytest.importorskip("envpool")
    monkeypatch.setitem(gymnasium.registry, "Catch-v0", gymnasium.spec("CartPole-v1"))
    words = ["pool", "--env", "envpool:Catch-v0", "--vs", "serial", "--num-envs", "1"]
    assert main(["bench", *words]) == 2
    message = "actions are Discrete(3, dtype=int32) with srl-envpool, Discrete(2) with serial"
    assert message in capsys.readouterr().err
