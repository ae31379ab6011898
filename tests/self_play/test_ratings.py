"""Ratings say what the results of matches make most likely."""

import json

import numpy as np
import pytest

from srl.record.ratings import (
    Match,
    Payoff,
    elo,
    newest_ratings,
    read_matches,
    write_ratings,
)
from srl.record.results import scores_of

SIDES = ["hider", "seeker"]
IDENTITIES = {0: "a", 20: "b", 40: "c"}


def chance(points):
    return 1 / (1 + 10 ** (-points / 400))


def points(ratings):
    return {side: rating.points for side, rating in ratings.items()}


def played(true, advantage, games, sides=SIDES):
    """The expected results of all matches."""
    payoff = Payoff()
    for own in true:
        for other in true:
            for side in sides[:1] if len(sides) == 2 else sides:
                rivals = np.mean([true[other][s] for s in sides if s != side])
                points = games * chance(true[own][side] - rivals + advantage)
                payoff.results[Match(side, own, other)] = (games, points)
    return payoff


def test_true_ratings_are_found_for_each_side():
    true = {
        0: {"hider": 0, "seeker": 0},
        20: {"hider": 150, "seeker": -60},
        40: {"hider": 220, "seeker": 300},
    }
    found = elo(played(true, 80, 100_000), SIDES)
    for version, own in true.items():
        assert points(found[version]) == pytest.approx(own, abs=2)


def test_errors_are_those_that_estimates_have():
    true = {0: {"hider": 0, "seeker": 0}, 20: {"hider": 100, "seeker": 50}}
    random, errors = np.random.default_rng(0), []
    for _ in range(200):
        payoff = played(true, 30, 60)
        for match, (games, won) in payoff.results.items():
            payoff.results[match] = games, random.binomial(games, won / games)
        found = elo(payoff, SIDES)[20]
        errors += [(found[side].points - true[20][side]) / found[side].error for side in SIDES]
    assert np.std(errors) == pytest.approx(1, abs=0.15)


def test_more_sides_than_two_play_against_the_mean_of_the_others():
    sides = ["a", "b", "c"]
    true = {0: dict.fromkeys(sides, 0), 5: {"a": 100, "b": -200, "c": 50}}
    found = elo(played(true, 0, 100_000, sides), sides)
    assert points(found[5]) == pytest.approx(true[5], abs=2)


def test_who_always_wins_has_a_bound():
    payoff = Payoff()
    payoff.add(Match("hider", 20, 0), np.ones(1000))
    found = elo(payoff, SIDES)
    assert 400 < found[20]["hider"].points < 5000
    assert found[20]["seeker"] == (0, pytest.approx(1000, abs=1))
    assert elo(Payoff(), SIDES) == {}


def test_a_win_is_a_higher_mean_return():
    returns = np.array([[1.0, 1.0, -3.0], [0, 0, 0], [-1, 1, 0.5]])
    assert scores_of(returns, [0, 1]).tolist() == [1, 0.5, 0]


def test_who_was_played_least_comes_next_and_the_newest_first():
    payoff, seen = Payoff(), []
    assert payoff.next(SIDES, [0]) == []
    for _ in range(4):
        seen.append(payoff.next(SIDES, [0, 20, 40]))
        for match in seen[-1]:
            payoff.add(match, np.ones(8))
    pairs = [[match[1:] for match in pairings] for pairings in seen]
    assert pairs[:3] == [[(0, 40), (40, 0)], [(20, 40), (40, 20)], [(0, 20), (20, 0)]]
    assert seen[3] == seen[0]
    assert payoff.games((40, 0)) == 32
    assert len(payoff.next(["a", "b", "c"], [0, 60])) == 6


def test_results_are_kept_for_versions_that_are_what_they_were(tmp_path):
    (tmp_path / "opponents").mkdir()
    assert newest_ratings(tmp_path) == {}
    payoff = Payoff()
    payoff.add(Match("hider", 20, 0), np.array([1, 0.5, 0, 0]))
    payoff.add(Match("hider", 40, 0), np.array([1, 1, 1, 0.5]))
    payoff.add(Match("hider", 0, 40), np.array([0, 0.5, 0, 0]))
    write_ratings(tmp_path, payoff, SIDES, IDENTITIES)
    assert read_matches(tmp_path, IDENTITIES).results == payoff.results
    other = read_matches(tmp_path, {**IDENTITIES, 40: "made again"}).results
    assert list(other) == [Match("hider", 20, 0)]
    metrics = newest_ratings(tmp_path)
    assert metrics["elo/version"] == 40
    assert metrics["elo/games"] == 12
    assert metrics["elo/hider"] > 100
    assert metrics["elo/seeker"] > 100

    path = tmp_path / "opponents" / "ratings.json"
    path.write_text(json.dumps(json.loads(path.read_text()))[:-9])  # torn
    assert newest_ratings(tmp_path) == {}
    assert not read_matches(tmp_path, IDENTITIES).results


@pytest.mark.parametrize(
    "content",
    ["", "7", "{}", "[" * 100_000, '{"elo": {"x": {}}}', '{"elo": 7, "matches": 7, "versions": 7}'],
)
def test_a_damaged_file_of_ratings_counts_as_none(tmp_path, content):
    (tmp_path / "opponents").mkdir()
    (tmp_path / "opponents" / "ratings.json").write_text(content)
    assert newest_ratings(tmp_path) == {}
    assert not read_matches(tmp_path, IDENTITIES).results
