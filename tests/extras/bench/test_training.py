"""The benchmarks of act and train, as their user calls them."""

import json
import time

import pytest

from srl import RunError
from srl.api.cli import main
from srl.extras.bench.rounds import Interrupted, in_turns, repeated
from srl.extras.bench.train import OutOfTime, PlanSide

QUICK = ["--seconds", "0.1", "--rounds", "1"]
SMALL = [
    *("--num-envs", "8", "--algorithm.unroll-length", "16", "--algorithm.epochs", "2"),
    *("--algorithm.network.mlp.width", "16"),
]


def lines(capsys, *words):
    """The JSON objects that `srl bench` prints for these words."""
    assert main(["bench", *words, *QUICK, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_act_is_measured_for_each_number_of_slots(capsys):
    small, large = lines(capsys, "act", "--num-slots", "2,64")
    assert small["name"] == "act"
    assert small["unit"] == "slots/s"
    assert [line["config"]["num_slots"] for line in (small, large)] == [2, 64]
    assert small["latency_us"] == pytest.approx(2e6 / small["value"])
    assert large["value"] > 0
    assert len(small["rounds"]) == 1


def test_plans_train_in_turns_and_are_held_against_the_loop_alone(capsys):
    (line,) = lines(capsys, "train", "native:CartPole-v1", "--plan", "fused", *SMALL)
    assert line["config"]["plan"] == "fused"
    assert line["unit"] == "env_steps/s"
    assert line["value"] > 0
    assert line["ratio_min"] <= line["ratio"] <= line["ratio_max"]
    assert line["ratio"] == pytest.approx(line["value"] / line["vs_value"])  # of one round


def test_a_run_that_ends_by_itself_is_reported_with_its_own_error():
    with pytest.raises(RunError, match=r"the run ended with 2: .*NoSuch-v1"):
        PlanSide("native:NoSuch-v1", [])(0.1)


def test_a_run_without_a_report_at_its_deadline_is_ended_with_the_stage_that_it_is_in():
    side = PlanSide("native:CartPole-v1", SMALL, deadline=time.monotonic())
    with pytest.raises(OutOfTime, match="the run needs longer: after 0 s it is starting"):
        side(0.1)


def test_act_is_one_group_through_streams_whatever_the_plan(capsys):
    words = ["--plan", "threads", "--through", "thread,host", "--num-slots", "2"]
    found = [
        each["config"]["through"] for each in lines(capsys, "act", "native:CartPole-v1", *words)
    ]
    assert found == ["compiled call", "in process", "thread", "host"]


def test_a_table_has_a_line_for_each_size(capsys):
    assert main(["bench", "act", "--num-slots", "2,4", *QUICK]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_an_interrupted_measurement_keeps_its_whole_rounds():
    calls = []

    def side(seconds):
        calls.append(seconds)
        if len(calls) == 8:  # in the third round that counts
            raise KeyboardInterrupt
        return float(len(calls))

    with pytest.raises(Interrupted) as stopped:
        in_turns({"a": side, "b": side}, 1.0, 5)
    assert stopped.value.rates == {"a": [3.0, 5.0], "b": [4.0, 6.0]}


def test_sides_run_in_turns_after_a_round_that_does_not_count():
    order = []
    sides = {name: lambda seconds, name=name: order.append(name) or seconds for name in "ab"}
    assert in_turns(sides, 3.0, 2) == {"a": [1.0, 1.0], "b": [1.0, 1.0]}
    assert order == list("ababab")


def test_a_call_longer_than_its_time_is_made_once():
    calls = []
    assert repeated(lambda: calls.append(1), 5)(1e-9) > 0
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["act", "--num-slots", "x"], "--num-slots: 'x'; expected a whole number from 1 up"),
        (["act", "native:HideAndSeek-v1", "--num-slots", "6"], "an environment has 4 slots"),
        (["act", "--seconds", "0"], "--seconds: '0'; expected a number from 0.001 up"),
        (["train", "--json"], "srl bench train needs an experiment file or an environment id"),
        (["train", "native:CartPole-v1", "--plan", "fusd"], "did you mean fused"),
        (["nothing"], "there is no benchmark 'nothing'; did you mean train?"),
    ],
)
def test_what_cannot_be_measured_is_reported_in_a_line(capsys, argv, message):
    assert main(["bench", *argv]) == 2
    assert message in capsys.readouterr().err
