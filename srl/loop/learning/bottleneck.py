"""What holds a run back, in words."""

from __future__ import annotations

from collections.abc import Mapping

Shares = Mapping[str, Mapping[str, float]]
"""The share of time that each activity takes, by kind of worker."""

_WAITS = (("learner", "batch wait", "send wait"), ("server", "sums wait", "server wait"))
"""The kind of worker that updates, its wait for actors, and the actors' wait for it."""
_TAKES = {
    "step": "stepping",
    "act": "acting",
    "unroll": "stepping and acting",
    "learn": "learning",
    "update": "the compiled loop",
    "batch wait": "waiting for unrolls",
    "sums wait": "waiting for gradients",
    "idle": "other work",
}


def bottleneck(shares: Shares) -> str:
    """Names the kind of worker that the others wait for; in a single worker, the longest activity.

    Where some make unrolls and another learns from them, the one that waits less for the other is
    what a faster run needs more of; that holds whether they take turns or work side by side.
    """
    actors = _first_with("step", shares)
    for kind, wait, actors_wait in _WAITS:
        learner = _first_with(wait, shares)
        if actors and learner:
            return _between(kind, learner[wait], actors, actors.get(actors_wait, 0.0))
    return _longest(next(iter(shares.values()), {}))


def _between(kind: str, waits: float, actors: Mapping[str, float], actors_wait: float) -> str:
    if actors_wait >= waits:
        return f"{kind}-bound: actors wait {_percent(actors_wait)} of the time"
    actions = actors.get("inference wait", 0.0)
    if actions > actors["step"] + actors.get("act", 0.0):
        return f"inference-bound: actors wait {_percent(actions)} of the time for actions"
    return f"actor-bound: the {kind} waits {_percent(waits)} of the time"


def _longest(own: Mapping[str, float]) -> str:
    if not own:
        return ""
    name = max(own, key=lambda activity: own[activity])
    return f"{_TAKES.get(name, name)} takes {_percent(own[name])} of the time"


def _first_with(activity: str, shares: Shares) -> Mapping[str, float]:
    return next((own for own in shares.values() if activity in own), {})


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
