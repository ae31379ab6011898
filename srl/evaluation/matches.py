"""Cross-play: what the combinations of two sides' teams show about either."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from srl.pools.config import Contest
from srl.workers.evaluator import Estimate

OURS, OTHER = "ours", "other"


def lineups(kinds: Sequence[str]) -> list[dict[str, str]]:
    """Every way in which two sides can play the kinds of agents: the side of each."""
    sides = itertools.product((OURS, OTHER), repeat=len(kinds))
    return [dict(zip(kinds, lineup, strict=True)) for lineup in sides]


class Match(NamedTuple):
    """Episodes of one combination."""

    lineup: Mapping[str, str]
    """The side that played each kind of agents."""
    results: Mapping[str, Estimate]


@dataclass(frozen=True)
class Comparison:
    """Whether our agents of one kind do better than the other side's in the same place."""

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
    """Compares both sides' agents of each kind, the other side playing all other kinds.

    Args:
        matches: All combinations.
        contest: The statistic that decides; without one, returns do.
        label: Names the other side in a sentence: untrained.
    """
    kinds = list(matches[0].lineup)
    return [_compare(matches, kind, contest, label) for kind in kinds]


def _compare(
    matches: Sequence[Match], kind: str, contest: Contest | None, label: str
) -> Comparison:
    kinds = list(matches[0].lineup)
    statistic, sign = _statistic(kind, kinds, contest)
    theirs = dict.fromkeys(kinds, OTHER)
    ours = _result(matches, {**theirs, kind: OURS}, statistic)
    other = _result(matches, theirs, statistic)
    difference, error = ours.mean - other.mean, None
    if ours.error is not None and other.error is not None:
        error = math.hypot(ours.error, other.error)
    better = sign * difference > 0
    beyond = error is not None and abs(difference) > 2 * error
    degree = ("better" if better else "worse") if beyond else "no better or worse"
    opponents = " and ".join(f"{label} {k}s" for k in kinds if k != kind)
    if contest and sign and statistic == f"env/{contest.statistic}":
        verb = contest.raising if kind == contest.raised_by else contest.lowering
        deed = f"{verb} {opponents} {degree}"
    else:
        deed = f"do {degree} against {opponents}" if opponents else f"do {degree}"
    sentence = (
        f"Our {kind}s {deed} than {label} {kind}s do: {statistic.removeprefix('env/')} "
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
    """The deciding statistic and the returns, as lines: a table each for two kinds, else one.

    Args:
        matches: All combinations.
        contest: The statistic that decides.
        other: Names the other side.
    """
    kinds, shown = list(matches[0].lineup), {OURS: OURS, OTHER: other}
    if len(kinds) != 2:
        return _list(matches, shown)
    rows, columns = kinds
    lines = []
    statistics = [f"episode_return/{kind}" for kind in kinds]
    if contest:
        statistics.insert(0, f"env/{contest.statistic}")
    for statistic in statistics:
        meaning = f": {contest.meaning}" if contest and statistic.startswith("env/") else ""
        lines += [statistic.removeprefix("env/") + meaning]
        heads = [f"{columns}s: {name}" for name in shown.values()]
        lines += [_row("", heads)]
        for side in (OURS, OTHER):
            lineups = [{rows: side, columns: column} for column in (OURS, OTHER)]
            cells = [str(_result(matches, lineup, statistic)) for lineup in lineups]
            lines += [_row(f"{rows}s: {shown[side]}", cells)]
        lines += [""]
    return lines


def _list(matches: Sequence[Match], shown: Mapping[str, str]) -> list[str]:
    """A column for each combination."""
    single = len(matches[0].lineup) == 1
    heads = [
        ", ".join(
            shown[side] if single else f"{kind}s: {shown[side]}"
            for kind, side in match.lineup.items()
        )
        for match in matches
    ]
    lines = [_row("", heads)]
    # Returns of policies are there only where one side plays all agents.
    for name in (n for n in matches[0].results if all(n in match.results for match in matches)):
        lines += [_row(name, [str(match.results[name]) for match in matches])]
    return [*lines, ""]


def _row(head: str, cells: Sequence[str]) -> str:
    return "  ".join([f"{head:<24}", *(f"{cell:>20}" for cell in cells)]).rstrip()
