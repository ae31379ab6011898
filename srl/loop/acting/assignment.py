"""The assignment of environment groups to policy workers, also when some workers are absent."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache


@lru_cache(maxsize=16)
def assignment(num_groups: int, replicas: int, there: tuple[int, ...]) -> tuple[int, ...]:
    """The replica that acts for each group.

    Neighbouring groups belong to one replica, and each replica to as many groups as any other, or
    to one more. A group whose own replica is there is with it. The groups of those that are away
    are dealt out in turn, first to the replica with fewest: so none has more than `num_groups`
    divided by the replicas that are there, rounded up.

    Args:
        num_groups: In the run.
        replicas: That the plan has.
        there: Those that are there now, at least one, in order.
    """
    own = [group * replicas // num_groups for group in range(num_groups)]
    present, load = set(there), Counter(own)
    fewest_first = sorted(there, key=load.__getitem__)
    away = [group for group, replica in enumerate(own) if replica not in present]
    for turn, group in enumerate(away):
        own[group] = fewest_first[turn % len(fewest_first)]
    return tuple(own)
