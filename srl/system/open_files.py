"""The limit on the files, sockets and pieces of shared memory that a process has open at a time."""

from __future__ import annotations

import resource
from contextlib import suppress

from srl.core.errors import UserError

_MOST = 1 << 20
"""More than any process of srl's opens; some programs close every number up to the limit."""
_BASE = 40  # of any process, loading included


def raise_limit() -> None:
    """Raises the soft limit of this process, and of those that it starts, to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # a sandbox may refuse it
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def expect_room(who: str, count: int, cure: str) -> None:
    """Raises UserError where a process would have more open than it may.

    Args:
        who: The process, with a verb, as in "the learner would".
        count: Of files, sockets and shared memory that come with the size of the run.
        cure: What else to do than to raise the limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = _BASE + count
    if soft != resource.RLIM_INFINITY and need > soft:
        raise UserError(
            f"{who} have about {need:,} files and sockets open, and a process may have "
            f"{soft:,} here (`ulimit -Hn` is {hard:,}): have an administrator "
            f"raise that limit, or {cure}"
        )
