"""What holds a run back, in words."""

from __future__ import annotations

from collections.abc import Mapping

Shares = Mapping[str, Mapping[str, float]]
"""Of each kind of worker: the share of its time that each activity takes."""

_TAKES = {
    "step": "stepping takes",
    "act": "acting takes",
    "learn": "learning takes",
    "update": "the compiled loop takes",
    "idle": "other work takes",
}


def bottleneck(shares: Shares) -> str:
    """Says who the others wait for, or where one worker does everything, what takes longest.

    Where some make unrolls and another learns from them, the one that waits less for the other is
    what a faster run needs more of; that holds whether they take turns or work side by side.
    """
    learner = _first_with("batch wait", shares)
    actors = _first_with("step", shares)
    if not learner or not actors:
        return _longest(shares)
    tickets, actions = actors.get("send wait", 0.0), actors.get("inference wait", 0.0)
    batches = learner["batch wait"]
    if tickets >= batches:
        return f"learner-bound: actors wait {_percent(tickets)} of the time"
    if actions > actors["step"] + actors.get("act", 0.0):
        return f"inference-bound: actors wait {_percent(actions)} of the time for actions"
    return f"actor-bound: the learner waits {_percent(batches)} of the time"


def _first_with(activity: str, shares: Shares) -> Mapping[str, float]:
    return next((own for own in shares.values() if activity in own), {})


def _longest(shares: Shares) -> str:
    """The longest activity of the first kind of worker."""
    own = next(iter(shares.values()), {})
    if not own:
        return ""
    name = max(own, key=lambda activity: own[activity])
    return f"{_TAKES.get(name, f'{name} takes')} {_percent(own[name])} of the time"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
