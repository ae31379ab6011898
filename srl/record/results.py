"""Results of matches: their scores, and how often each past version is beaten."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

_UNKNOWN = 0.5
_LATEST = 0.05  # the weight of one match against all that were before it


def scores_of(returns: np.ndarray, members: Sequence[int]) -> np.ndarray:
    """Scores episodes: the side whose agents have the higher mean return wins.

    Args:
        returns: [N, A], of episodes.
        members: The agents of one side.

    Returns:
        float64 [N]: 1 where that side won, 0.5 for a draw, 0.
    """
    own = returns[:, list(members)].mean(1)
    others = np.delete(returns, list(members), axis=1).mean(1)
    return (np.sign(own - others) + 1) / 2


class WinRates:
    """Averages the scores against each version; the latest count most."""

    def __init__(self, most: int) -> None:
        """Takes the most versions that there are between two calls of `keep`."""
        self._most = most
        self._rates: dict[int, float] = {}

    def add(self, version: int, score: float) -> None:
        """Takes in a match: 1 where it was won against the version, 0.5 for a draw, 0."""
        before = self._rates.get(version, _UNKNOWN)
        self._rates[version] = before + _LATEST * (score - before)

    def keep(self, versions: Collection[int]) -> None:
        """Forgets all versions but these."""
        self._rates = {v: rate for v, rate in self._rates.items() if v in versions}

    def known(self) -> Mapping[int, float]:
        """Gives the averages of the versions that were met."""
        return self._rates

    def state(self) -> np.ndarray:
        """Gives what `restore` needs: float64 [most, 2], rows of versions and averages."""
        rows = np.full((self._most, 2), -1.0)
        if self._rates:
            rows[: len(self._rates)] = sorted(self._rates.items())
        return rows

    def restore(self, rows: np.ndarray) -> None:
        """Goes on from a saved state."""
        self._rates = {int(version): float(rate) for version, rate in rows if rate >= 0}
