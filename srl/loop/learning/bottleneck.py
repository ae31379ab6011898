"""The bottleneck of a run, in words."""

from __future__ import annotations

from collections.abc import Mapping

Shares = Mapping[str, Mapping[str, float]]
"""The share of time that each activity takes, by kind of worker."""

LEAST = 0.1
"""The least share of time that a wait takes where it is called a bottleneck."""

_TAKES = {
    "step": "stepping",
    "act": "acting",
    "teach": "teaching",
    "unroll": "stepping and acting",
    "learn": "learning",
    "update": "the compiled loop",
    "batch wait": "waiting for unrolls",
    "idle": "other work",
}


def bottleneck(shares: Shares) -> str:
    """Names the kind of worker that the others wait for; in a single worker, the longest activity.

    Where some make unrolls and another learns from them, the one that waits less for the other is
    what a faster run needs more of; that holds whether they take turns or work side by side. Waits
    of less than LEAST name no bottleneck.
    """
    actors = _first_with("step", shares)
    learner = _first_with("batch wait", shares)
    if actors and learner:
        return _between(learner["batch wait"], actors)
    return _longest(next(iter(shares.values()), {}))


def _between(waits: float, actors: Mapping[str, float]) -> str:
    """Compares the learner's wait for actors with theirs for it."""
    actors_wait = actors.get("send wait", 0.0)
    if max(actors_wait, waits) < LEAST:
        return f"no bottleneck: the learner and actors wait less than {_percent(LEAST)} of the time"
    if actors_wait >= waits:
        return f"learner-bound: actors wait {_percent(actors_wait)} of the time"
    actions = actors.get("inference wait", 0.0)
    works = sum(actors.get(activity, 0.0) for activity in ("step", "skew", "act", "teach"))
    if actions >= LEAST and actions > works:
        return f"inference-bound: actors wait {_percent(actions)} of the time for actions"
    return f"actor-bound: the learner waits {_percent(waits)} of the time{_slowest(actors)}"


def _longest(own: Mapping[str, float]) -> str:
    if not own:
        return ""
    takes = {activity: share for activity, share in own.items() if activity != "skew"}
    if "step" in takes:
        takes["step"] += own.get("skew", 0.0)
    name = max(takes, key=lambda activity: takes[activity])
    slowest = _slowest(own) if name == "step" else ""
    return f"{_TAKES.get(name, name)} takes {_percent(takes[name])} of the time{slowest}"


def _slowest(own: Mapping[str, float]) -> str:
    """The share of time that a pool's processes wait for the slowest of them, if it is large."""
    skew = own.get("skew", 0.0)
    return f", the slowest environments take {_percent(skew)}" if skew >= LEAST else ""


def _first_with(activity: str, shares: Shares) -> Mapping[str, float]:
    return next((own for own in shares.values() if activity in own), {})


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
