"""The benchmark of many light actors, with a handful of them."""

import json

import pytest

from srl import RunError
from tools.bench.__main__ import main
from tools.bench.actors import _found
from tools.bench.watched import CONTROLLER, Report, Snapshot

SMALL = ["--num-actors", "3", "--policies", "1", "--seconds", "1", "--algorithm.unroll-length", "8"]


@pytest.mark.slow
def test_a_handful_of_actors_is_measured_role_by_role(capsys):
    assert main(["actors", *SMALL, "--algorithm.epochs", "1", "--json"]) == 0
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert line["name"] == "actors"
    assert line["unit"] == "env_steps/s"
    assert line["config"]["num_envs"] == 12
    assert line["value"] > 0
    assert line["spread"]["min"] <= 1 <= line["spread"]["max"]
    assert line["requests_per_second"] > 0
    assert {name: role["processes"] for name, role in line["roles"].items()} == {
        "actors": 3,
        "policies": 1,
        "learner": 1,
        CONTROLLER: 1,
    }
    assert all(role["memory_mb"] > 1 for role in line["roles"].values())
    assert all(role["cores"] > 0 for name, role in line["roles"].items() if name != CONTROLLER)
    assert line["limit"]


def test_slots_that_make_no_whole_environments_are_refused(capsys):
    words = ["actors", "native:HideAndSeek-v1", "--slots", "3"]
    assert main(words) == 2
    assert "--slots 3: an environment has 4 slots" in capsys.readouterr().err


def snapshot(time, steps, *, cpu=0.0, busy=0.0, pid=7):
    """Of two actors that have done so many steps; the first word of each came half a second ago."""
    names = ["actors-0", "actors-1"]
    return Snapshot(
        time=time,
        pids=dict.fromkeys([*names, CONTROLLER], pid),
        cpu={names[0]: cpu, names[1]: cpu, CONTROLLER: cpu / 4},
        memory=dict.fromkeys([*names, CONTROLLER], int(1e6 * time)),
        reports={
            name: Report(time - 0.5, {"env_steps": n}) for name, n in zip(names, steps, strict=True)
        },
        messages=round(4 * time),
        machine=(busy, 2 * time),
    )


def test_rates_costs_and_growth_are_those_between_two_looks():
    line = _found(snapshot(10, (50, 50)), snapshot(20, (450, 850), cpu=6.0, busy=13.0), "words")
    assert line["value"] == pytest.approx(40 + 80)
    assert line["spread"] == pytest.approx({"min": 40 / 60, "max": 80 / 60})
    assert line["controller_messages_per_second"] == 4
    actors = line["roles"]["actors"]
    assert actors["cores"] == pytest.approx(1.2)
    assert actors["us_per_env_step"] == pytest.approx(1.2e6 / 120)
    assert actors["growth_mb"] == pytest.approx(10)
    assert line["own_share"] == pytest.approx((1.2 + 0.15) / 2)
    assert line["limit"] == "words"


def test_busy_cores_are_named_as_the_limit():
    line = _found(snapshot(10, (0, 0)), snapshot(20, (9, 9), cpu=9.0, busy=19.0), "words")
    assert line["limit"].startswith("this machine's cores: actors take 89%")


def test_a_worker_that_died_spoils_the_measurement():
    with pytest.raises(RunError, match="actors-0, actors-1, controller died"):
        _found(snapshot(10, (0, 0)), snapshot(20, (9, 9), pid=8), "words")
