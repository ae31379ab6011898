"""Cross-play: what the combinations of two sides' teams show about either."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from srl.evaluation.episodes import Estimate
from srl.pools.config import Contest

OURS, OTHER, FIXED = "ours", "other", "fixed"
"""Players of a team: either side, or in all combinations the fixed policy of another run."""


def lineups(kinds: Sequence[str], fixed: Collection[str] = ()) -> list[dict[str, str]]:
    """Each way in which two sides can play the kinds of agents, but for those that are fixed."""
    choices = [(FIXED,) if kind in fixed else (OURS, OTHER) for kind in kinds]
    return [dict(zip(kinds, sides, strict=True)) for sides in itertools.product(*choices)]


def plural(kind: str) -> str:
    """Several agents of a kind, in English."""
    if re.search(r"[^aeiou]y$", kind):
        return f"{kind[:-1]}ies"
    return f"{kind}es" if re.search(r"(s|x|z|ch|sh)$", kind) else f"{kind}s"


class Match(NamedTuple):
    """Episodes of one combination."""

    lineup: Mapping[str, str]
    """The side that played each kind of agents."""
    results: Mapping[str, Estimate]


@dataclass(frozen=True)
class Comparison:
    """A comparison of our agents of one kind with the other side's in the same place."""

    kind: str
    statistic: str
    ours: float
    other: float
    difference: float
    standard_error: float | None
    better: bool
    """The difference is in our favour."""
    beyond_twice_standard_error: bool
    sentence: str

    def json(self) -> dict[str, object]:
        """All but the sentence."""
        return {name: value for name, value in asdict(self).items() if name != "sentence"}


def compare(matches: Sequence[Match], contest: Contest | None, label: str) -> list[Comparison]:
    """Compares both sides' agents of each kind, the other side playing all others but fixed ones.

    Args:
        matches: All combinations.
        contest: The statistic that decides; without one, returns do.
        label: Names the other side in a sentence: untrained.
    """
    kinds = _varied(matches)
    return [_compare(matches, kind, contest, label) for kind in kinds]


def _varied(matches: Sequence[Match]) -> list[str]:
    """The kinds of agents that either side plays."""
    return [kind for kind, side in matches[0].lineup.items() if side != FIXED]


def _compare(
    matches: Sequence[Match], kind: str, contest: Contest | None, label: str
) -> Comparison:
    theirs = {k: side if side == FIXED else OTHER for k, side in matches[0].lineup.items()}
    statistic, sign = _statistic(kind, list(theirs), contest)
    ours = _result(matches, {**theirs, kind: OURS}, statistic)
    other = _result(matches, theirs, statistic)
    difference, error = ours.mean - other.mean, None
    if ours.error is not None and other.error is not None:
        error = math.hypot(ours.error, other.error)
    better = sign * difference > 0
    beyond = error is not None and abs(difference) > 2 * error
    degree = ("better" if better else "worse") if beyond else "no better or worse"
    opponents = " and ".join(
        f"fixed {plural(k.removeprefix('fixed_'))}" if side == FIXED else f"{label} {plural(k)}"
        for k, side in theirs.items()
        if k != kind
    )
    if contest and sign and statistic == f"env/{contest.statistic}":
        verb = contest.raising if kind == contest.raised_by else contest.lowering
        deed = f"{verb} {opponents} {degree}"
    else:
        deed = f"do {degree} against {opponents}" if opponents else f"do {degree}"
    sentence = (
        f"Our {plural(kind)} {deed} than {label} {plural(kind)} do: "
        f"{statistic.removeprefix('env/')} "
        f"{Estimate(ours.mean, None)} against {Estimate(other.mean, None)}, difference "
        f"{Estimate(difference, error)}; beyond twice its standard error: "
        f"{'yes' if beyond else 'no'}."
    )
    return Comparison(
        kind, statistic, ours.mean, other.mean, difference, error, better, beyond, sentence
    )


def _statistic(kind: str, kinds: list[str], contest: Contest | None) -> tuple[str, int]:
    """The statistic that measures a kind's success, and whether high (1) or low (-1) is better."""
    if contest and kind == contest.raised_by:
        return f"env/{contest.statistic}", 1
    if contest and kind == contest.lowered_by:
        return f"env/{contest.statistic}", -1
    return f"episode_return/{kind}" if len(kinds) > 1 else "episode_return", 1


def _result(matches: Sequence[Match], lineup: Mapping[str, str], statistic: str) -> Estimate:
    return next(match.results[statistic] for match in matches if match.lineup == lineup)


def tables(matches: Sequence[Match], contest: Contest | None, other: str = OTHER) -> list[str]:
    """The deciding statistic and the returns, as lines: a table each for two teams, else one."""
    kinds, shown = _varied(matches), {OURS: OURS, OTHER: other, FIXED: FIXED}
    if not len(kinds) == len(matches[0].lineup) == 2:
        return _list(matches, shown)
    rows, columns = kinds
    lines = []
    statistics = [f"episode_return/{kind}" for kind in kinds]
    if contest:
        statistics.insert(0, f"env/{contest.statistic}")
    for statistic in statistics:
        meaning = f": {contest.meaning}" if contest and statistic.startswith("env/") else ""
        lines += [statistic.removeprefix("env/") + meaning]
        heads = [f"{plural(columns)}: {shown[side]}" for side in (OURS, OTHER)]
        lines += [_row("", heads)]
        for side in (OURS, OTHER):
            lineups = [{rows: side, columns: column} for column in (OURS, OTHER)]
            cells = [str(_result(matches, lineup, statistic)) for lineup in lineups]
            lines += [_row(f"{plural(rows)}: {shown[side]}", cells)]
        lines += [""]
    return lines


def _list(matches: Sequence[Match], shown: Mapping[str, str]) -> list[str]:
    """A column for each combination."""
    single = len(matches[0].lineup) == 1
    heads = [
        ", ".join(
            shown[match.lineup[kind]] if single else f"{plural(kind)}: {shown[match.lineup[kind]]}"
            for kind in _varied(matches)
        )
        for match in matches
    ]
    # Returns of policies are there only where one side plays all agents.
    names = [n for n in matches[0].results if all(n in match.results for match in matches)]
    width = max(map(len, names))
    rows = [_row(n, [str(match.results[n]) for match in matches], width) for n in names]
    return [_row("", heads, width), *rows, ""]


def _row(head: str, cells: Sequence[str], width: int = 0) -> str:
    """A line of a table whose first column is at least so wide."""
    return "  ".join([f"{head:<{max(width, 24)}}", *(f"{cell:>26}" for cell in cells)]).rstrip()
