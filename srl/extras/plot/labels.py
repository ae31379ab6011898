"""Labels of metrics and axes, with their units, and which metrics are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from srl.core.episodes import WINDOW
from srl.extras.plot.curves import Axis

AXES: Mapping[Axis, str] = {
    "env_steps": "environment steps",
    "updates": "updates (calls of learn)",
    "hours": "hours of training (pauses left out)",
}

_OVER_EPISODES = f"mean of the last {WINDOW} episodes"
_MEANINGS = {
    "fps": "environment steps per second",
    "episodes": "episodes that have ended",
    "episode_return": f"return (sum of rewards), {_OVER_EPISODES}",
    "episode_length": f"length in steps, {_OVER_EPISODES}",
    "agent_steps": "steps of all agents",
    "elo/version": "newest version that is rated (updates)",
    "elo/games": "games that the ratings come from",
    "staleness_mean": "mean age of the policies that acted, in updates",
    "staleness_max": "greatest age of a policy that acted, in updates",
}


def label(key: str, statistics: Mapping[str, str]) -> str:
    """Gives the label of a metric.

    Args:
        key: Its name in `metrics.jsonl`.
        statistics: Descriptions of the environment's statistics, by name; they label `env/NAME`.
    """
    if key in _MEANINGS:
        return _MEANINGS[key]
    first, _, rest = key.partition("/")
    plain = (rest or first).replace("_", " ")
    if first == "env":
        return f"{statistics.get(rest, plain)}, {_OVER_EPISODES}"
    if first == "episode_return":
        return f"return of {rest} (sum of rewards), {_OVER_EPISODES}"
    if first == "eval":
        return _evaluated(rest, statistics)
    if first == "elo":
        return f"Elo rating of {rest}, the first version's being 0"
    if first == "past" and "/" in rest:
        side, _, own = rest.partition("/")
        return f"{label(own, statistics)}, where a past version plays {side}"
    if first == "time":
        return f"share of time: {rest.replace('/', ', ')}"
    if first == "loss":
        return f"{plain}, mean of the updates since the last report"
    return plain if not rest else f"{first}: {plain}"


def _evaluated(name: str, statistics: Mapping[str, str]) -> str:
    """Gives the label of `eval/NAME`."""
    first, _, rest = name.partition("/")
    if first == "sampled":
        return f"{_evaluated(rest, statistics)}, with drawn actions"
    if first == "env":
        return f"{statistics.get(rest, rest.replace('_', ' '))}, mean of evaluated episodes"
    whose = f" of {rest}" if rest else ""
    return f"{first.replace('_', ' ')}{whose}, mean of evaluated episodes"


_USUAL = ("episode_return*", "past/*/episode_return*", "elo/*", "eval/*", "env/*", "fps")
_NO_RESULTS = ("elo/version", "elo/games", "eval/episodes")


def usual(keys: list[str]) -> list[str]:
    """The metrics that are drawn unless others are asked for, in the order to draw them in.

    Where there are returns for several policies or kinds of agents, the mean over all of them is
    left out: between teams that play each other it means nothing.
    """
    chosen = [key for key in fitting(keys, _USUAL) if key not in _NO_RESULTS]
    chosen = [key for key in chosen if not key.endswith(("/return_error", "/return_std"))]
    several = {key.rpartition("/")[0] for key in chosen if "return/" in key}
    return [key for key in chosen if key not in several]


def fitting(keys: list[str], patterns: Sequence[str]) -> list[str]:
    """The metrics that fit the first pattern, then those that fit the second, and so on."""
    found = [key for pattern in patterns for key in keys if fnmatchcase(key, pattern)]
    return list(dict.fromkeys(found))
