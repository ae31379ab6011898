import math

import pytest

from srl.config.experiment import Experiment
from srl.core.console.number_text import number_text
from srl.evaluation.episodes import Estimate
from srl.run.display import Display


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.00012345, "0.000123"),
        (0.000012345, "1.23e-05"),
        (1.0, "1"),
        (12.345, "12.3"),
        (-99.96, "-100"),
        (999.4, "999"),
        (999.6, "1,000"),
        (-999.9999, "-1,000"),
        (1000.0, "1,000"),
        (1234567.8, "1,234,568"),
        (1e18, "1e+18"),
        (math.inf, "inf"),
        (math.nan, "-"),
    ],
)
def test_a_number_is_written_as_a_person_writes_it(value, text):
    assert number_text(value) == text


def test_no_number_of_common_size_has_an_exponent():
    for digits in (2, 3, 6):
        for exponent in range(-3, 12):
            for factor in (1.0, 1.2345, 9.5, 9.96, 9.9996, 9.9999999):
                assert "e" not in number_text(factor * 10.0**exponent, digits)


def test_a_speed_just_below_a_thousand_is_shown_without_an_exponent():
    report = {"fps": 999.7, "episode_return": 9999.6, "episode_length": 0.5}
    shown = Display(Experiment("e", "CartPole-v1")).summary(report)
    assert shown == "fps 1,000  return 10,000  length 0.5"


def test_a_mean_and_its_error_show_what_they_are_at_every_size():
    assert str(Estimate(1234567.891, 0.5)) == "1,234,567.891 ± 0.500"
    assert str(Estimate(0.00012, None)) == "0.00012"
    assert str(Estimate(0.0, 0.0)) == "0.000 ± 0.000"
