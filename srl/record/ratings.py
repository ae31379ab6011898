"""Ratings of the versions in the pool, from the matches that were played between them.

Bradley and Terry's model (1952), on Elo's scale: the odds that one side beats the other grow
tenfold with each 400 points between their ratings. Every version has a rating for each side that it
can play, as a game need not be the same from both.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from srl.record.files import read_object, write_atomically
from srl.record.json_shape import COUNT, fits
from srl.record.opponent_pool import FOLDER

FILE = "ratings.json"
"""The file's name in the pool's folder."""

_POINTS = 400 / np.log(10)  # for odds that are e times as high
_PRIOR_POINTS = 1000.0  # standard deviation of ratings before any match


class Match(NamedTuple):
    """A pairing: one version plays a side, another one all other sides."""

    side: str
    version: int
    others: int


class Rating(NamedTuple):
    """Points, and their standard error."""

    points: float
    error: float


class Payoff:
    """The results of all matches so far: (games, points), where a draw is half a point."""

    def __init__(self) -> None:
        self.results: dict[Match, tuple[int, float]] = defaultdict(lambda: (0, 0.0))

    def add(self, match: Match, scores: np.ndarray) -> None:
        """Takes in episodes' scores for the side: 1, 0.5 or 0."""
        games, points = self.results[match]
        self.results[match] = games + len(scores), points + float(scores.sum())

    def keep(self, versions: Collection[int]) -> None:
        """Forgets matches with other versions than these."""
        for match in list(self.results):
            if match.version not in versions or match.others not in versions:
                del self.results[match]

    def next(self, sides: Sequence[str], versions: Collection[int]) -> list[Match]:
        """The pair that has played least, in all pairings; none where there is but one version.

        Of such the one with the newest version, against the oldest.
        """
        pairs = combinations(sorted(versions), 2)
        least = min(pairs, key=lambda p: (self.games(p), -p[1], p[0]), default=None)
        return [] if least is None else _pairings(sides, *least)

    def games(self, pair: tuple[int, int]) -> int:
        """Counts the games of two versions."""
        both = [m for m in self.results if set(m[1:]) == set(pair)]
        return sum(self.results[match][0] for match in both)


def _pairings(sides: Sequence[str], one: int, other: int) -> list[Match]:
    """All that two versions can play; between two sides, one side's view is enough."""
    views = sides[:1] if len(sides) == 2 else sides
    return [Match(side, *pair) for side in views for pair in ((one, other), (other, one))]


def elo(payoff: Payoff, sides: Sequence[str]) -> dict[int, dict[str, Rating]]:
    """Ratings by version and side, of those that have played; the oldest's are 0.

    They maximise the likelihood of the results: a side's rating, less the mean of its opponents',
    plus what the side is worth between equals. Before any match ratings are taken for normally
    distributed (a deviation of 1000 points), or a version that always won would have no bound.
    """
    order = sorted({version for match in payoff.results for version in match[1:]})
    free = {(side, v): i for i, (side, v) in enumerate((s, v) for v in order[1:] for s in sides)}
    width = len(free) + len(sides)
    rows, games, points = [], [], []
    for match, (played, won) in payoff.results.items():
        row = np.zeros(width)
        row[len(free) + sides.index(match.side)] = 1
        rivals = [side for side in sides if side != match.side]
        for key, weight in [
            ((match.side, match.version), 1.0),
            *(((side, match.others), -1 / len(rivals)) for side in rivals),
        ]:
            if key in free:
                row[free[key]] += weight
        rows.append(row)
        games.append(played)
        points.append(won)
    found = _most_likely(np.array(rows).reshape(-1, width), np.array(games), np.array(points))
    each = [Rating(*(round(_POINTS * float(part), 1) for part in pair)) for pair in found]
    anchor = Rating(0.0, 0.0)
    return {
        v: {side: each[free[side, v]] if (side, v) in free else anchor for side in sides}
        for v in order
    }


def _most_likely(rows: np.ndarray, games: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Newton's method for a logistic regression with a normal prior.

    Returns:
        [width, 2]: the mode, and the standard errors by the curvature there.
    """
    precision = np.eye(rows.shape[1]) * (_POINTS / _PRIOR_POINTS) ** 2
    x, curve = np.zeros(rows.shape[1]), precision
    for _ in range(50):
        expected = 1 / (1 + np.exp(-rows @ x))
        slope = rows.T @ (points - games * expected) - precision @ x
        curve = rows.T @ ((games * expected * (1 - expected))[:, None] * rows) + precision
        step = np.linalg.solve(curve, slope)
        x += step * min(1.0, 2.0 / max(np.abs(step).max(), 1e-9))
        if np.abs(step).max() < 1e-6:
            break
    return np.stack([x, np.sqrt(np.diag(np.linalg.inv(curve)))], axis=1)


# ---- the file ----


def write_ratings(
    run: Path, payoff: Payoff, sides: Sequence[str], identities: Mapping[int, str]
) -> None:
    """Writes ratings, and the matches that they come from, at once.

    With the versions' identities, which distinguish them from others of the same numbers.
    """
    matches = [
        {**match._asdict(), "games": games, "points": points}
        for match, (games, points) in sorted(payoff.results.items())
    ]
    body = {
        "elo": {
            str(version): {side: rating._asdict() for side, rating in own.items()}
            for version, own in elo(payoff, sides).items()
        },
        "games": sum(match["games"] for match in matches),
        "versions": {str(version): identity for version, identity in identities.items()},
        "matches": matches,
    }
    write_atomically(run / FOLDER / FILE, (json.dumps(body, indent=1) + "\n").encode())


def read_matches(run: Path, identities: Mapping[int, str]) -> Payoff:
    """The matches that were written, between versions that still are what they were."""
    payoff = read_payoff(run)
    written = _read(run).get("versions", {})
    payoff.keep({v for v, identity in identities.items() if written.get(str(v)) == identity})
    return payoff


def read_payoff(run: Path) -> Payoff:
    """All matches that were written; none where there is no file, or none that can be read."""
    payoff = Payoff()
    for match in _read(run).get("matches", []):
        key = Match(match["side"], match["version"], match["others"])
        payoff.results[key] = match["games"], match["points"]
    return payoff


def newest_ratings(run: Path) -> dict[str, float]:
    """Metrics of the newest version that was rated; none before the first match."""
    body = _read(run)
    if not body.get("elo"):
        return {}
    version = max(body["elo"], key=int)
    own = body["elo"][version]
    return {
        **{f"elo/{side}": rating["points"] for side, rating in own.items()},
        **{f"elo_error/{side}": rating["error"] for side, rating in own.items()},
        "elo/version": int(version),
        "elo/games": body["games"],
    }


def ratings_line(metrics: Mapping[str, Any]) -> str:
    """Describes what `newest_ratings` gives, in a sentence."""
    prefix = "elo_error/"
    sides = [name.removeprefix(prefix) for name in metrics if name.startswith(prefix)]
    ratings = [f"{s} {metrics[f'elo/{s}']:+.0f} ± {metrics[prefix + s]:.0f}" for s in sides]
    return (
        f"Elo of version {metrics['elo/version']}, against the first one's 0: {', '.join(ratings)} "
        f"({metrics['elo/games']} games)."
    )


_SHAPE = {
    "elo": {str: {str: {"points": float, "error": float}}},
    "games": COUNT,
    "versions": {str: str},
    "matches": [{"side": str, "version": COUNT, "others": COUNT, "games": COUNT, "points": float}],
}


def _read(run: Path) -> dict[str, Any]:
    """Reads the file; gives nothing if it is absent or unreadable."""
    body = read_object(run / FOLDER / FILE)
    good = fits(body, _SHAPE) and all(name.isascii() and name.isdecimal() for name in body["elo"])
    return body if good else {}
