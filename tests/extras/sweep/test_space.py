"""What a sweep searches: lists and ranges, how they are read, drawn and perturbed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srl import UserError
from srl.config.experiment import load_experiment
from srl.extras.sweep.space import Listed, Range, searched_setting, split_searched
from srl.extras.sweep.sweep import drawn

EXPERIMENT = load_experiment("native:CartPole-v1").experiment
RATE = "--algorithm.learning-rate"


def setting(flag, text):
    return searched_setting(flag, text, EXPERIMENT)


def test_arguments_are_searched_where_they_have_several_values():
    words = ["--num-envs", "8", RATE, "1e-4..1e-2:log", "--algorithm.no-anneal", "--groups=1,2"]
    fixed, searched = split_searched([*words, "--name", "../x"])
    assert fixed == ["--num-envs", "8", "--algorithm.no-anneal", "--name", "../x"]
    assert searched == {RATE: "1e-4..1e-2:log", "--groups": "1,2"}


@pytest.mark.parametrize(
    ("flag", "text", "found"),
    [
        (RATE, "1e-4..1e-2:log", Range(RATE, 1e-4, 1e-2, True, False, True)),
        (RATE, "0..1", Range(RATE, 0, 1, False, False, True)),
        ("--num-envs", "8..64", Range("--num-envs", 8, 64, False, True, True)),
        ("--max-staleness", "0,none", Listed("--max-staleness", ("0", "none"), True)),
        ("--env.size", "2..4", Range("--env.size", 2, 4, False, True, False)),
    ],
)
def test_a_range_has_whole_numbers_where_the_setting_has(flag, text, found):
    assert setting(flag, text) == found


@pytest.mark.parametrize(
    ("flag", "text", "error"),
    [
        (RATE, "1e-2..1e-4", "give the lower end first"),
        (RATE, "0..1:log", "the lower end must be above 0"),
        (RATE, "1e-3,fast", "has 'fast' in its list; expected a number"),
        (RATE, "0.1,0.1", "has '0.1' twice"),
        (RATE, "0.1,", "has '' in its list"),
        ("--num-envs", "1.5..8", "give whole ends"),
        ("--algorithm.anneal", "0..1", "the setting is no number"),
    ],
)
def test_what_a_setting_does_not_take_is_refused(flag, text, error):
    with pytest.raises(UserError, match=error):
        setting(flag, text)


ends = (
    st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)).map(sorted).filter(lambda e: e[0] < e[1])
)


@given(ends, st.booleans(), st.booleans(), st.integers(0, 2**32 - 1))
def test_drawn_and_perturbed_numbers_stay_in_the_range(ends, log, whole, seed):
    low, high = (int(ends[0]) + 1, int(ends[1]) + 2) if whole else ends
    searched, rng = Range(RATE, low, high, log, whole, True), np.random.default_rng(seed)
    one = drawn([searched], seed)[RATE]
    for text in (one, searched.perturbed(one, rng)):
        assert low <= float(text) <= high
        assert not whole or text.isdigit()


def test_a_number_is_perturbed_by_a_fifth_and_a_listed_value_to_its_neighbour():
    rng = np.random.default_rng(0)
    searched = setting(RATE, "1e-5..1:log")
    assert {searched.perturbed("0.01", rng) for _ in range(20)} == {"0.008", "0.012"}
    listed = setting(RATE, "0.1,0.2,0.3,0.4")
    assert {listed.perturbed("0.2", rng) for _ in range(20)} == {"0.1", "0.3"}
    assert {listed.perturbed("0.4", rng) for _ in range(20)} == {"0.3", "0.4"}


def test_a_logarithmic_range_is_drawn_evenly_over_its_decades():
    searched = setting(RATE, "1e-4..1e-2:log")
    below = sum(float(drawn([searched], seed)[RATE]) < 1e-3 for seed in range(200))
    assert 75 < below < 125
