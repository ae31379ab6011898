"""Seconds that workers report, of which some come late."""

import math

import pytest

from srl.loop.busy_time import BusyTime


def test_an_activity_longer_than_a_beat_was_never_idle():
    controller = BusyTime()
    for _ in range(2):  # beats within the activity, and the one at its end
        controller.add_reported({"idle": 1.0})
    controller.add_reported({"step": 3.0, "idle": -2.0})
    assert controller.take() == pytest.approx({"idle": 0.0, "step": 3.0})


def test_what_threads_spend_and_their_idle_time_are_all_of_their_time():
    busy = BusyTime()
    busy.begin(threads=2)
    busy.begin(threads=1)
    busy.add({"act": 5.0})
    seconds = busy.take()
    assert seconds["act"] == 5.0
    assert -5.0 < seconds["idle"] < 0.0
    busy.add({"idle": seconds["idle"]})  # counted later
    assert busy.take()["idle"] < 0.0


def test_nothing_is_given_before_a_worker_has_reported():
    busy = BusyTime()
    busy.add({"send wait": 1.0})
    assert busy.take() == {}
    busy.add_reported({"idle": 1.0})
    assert busy.take() == {"send wait": 1.0, "idle": 1.0}


@pytest.mark.parametrize(
    "seconds",
    [
        {"act": math.nan},
        {"act": math.inf},
        {"act": -1.0},
        {"act": 1e300},
        {"idle": math.nan},
        {"idle": -math.inf},
        {f"name {i}": 1.0 for i in range(1000)},
    ],
)
def test_seconds_that_cannot_be_true_are_left_out(seconds):
    busy = BusyTime()
    busy.add_reported(seconds)
    busy.add_reported({"idle": 1.0})
    assert busy.take() == {"idle": 1.0}
