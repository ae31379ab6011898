"""Closes environments, of which some may raise or hang when they are closed."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from srl.core.errors import described
from srl.system.started import StartedHere

CLOSE_SECONDS = 5.0
"""The longest that closing all environments of a pool may take."""
_WAKE_SECONDS = 0.5  # for a call that waits for what it has started, once that is killed
_WAKE = signal.SIGRTMIN + 9  # interrupts a call that sleeps; unlikely to be used by a simulator

logger = logging.getLogger(__name__)


class _Late(BaseException):
    """Raised in a call that does not return."""

    def __str__(self) -> str:
        return f"it had not returned within {CLOSE_SECONDS:g} s"


def close_each(name: str, closes: Sequence[Callable[[], Any]]) -> str:
    """Closes environments one after the other, also after one that raises; warns of each.

    Args:
        name: Messages call the pool so.
        closes: The environments' methods.

    Returns:
        The first failure; empty where there was none.
    """
    failures: list[str] = []
    for close in closes:
        try:
            close()
        except (Exception, SystemExit) as error:
            failures.append(f"close() raised {described(error)}")
        except _Late as error:
            failures.append(f"close() hangs: {error}")
    for failure in failures:
        logger.warning("%s: %s", name, failure)
    return failures[0] if failures else ""


def close_here(name: str, closes: Sequence[Callable[[], Any]], started: StartedHere) -> str:
    """Closes environments of this process; where that fails, kills all that they have started.

    One that hangs is interrupted if this is the main thread.

    Args:
        name: Messages call the pool so.
        closes: The environments' methods.
        started: What the environments have started.

    Returns:
        The first failure; empty where there was none.
    """
    with _limited(started) as limit, started:
        failure = close_each(name, [lambda close=close: limit(close) for close in closes])
    if failure:
        started.end()
    return failure


@contextmanager
def _limited(started: StartedHere) -> Iterator[Callable[[Callable[[], Any]], None]]:
    """Gives what calls a function, in which an error is raised once all have taken too long."""
    caller, done, within = threading.current_thread(), threading.Event(), False
    interruptible = caller is threading.main_thread()

    def call(close: Callable[[], Any]) -> None:
        nonlocal within
        within = True
        try:
            close()
        finally:
            within = False

    def interrupt(*_: object) -> None:
        if within:
            raise _Late

    def watch() -> None:
        if done.wait(CLOSE_SECONDS):
            return
        started.end()  # which may be all that it waits for
        while interruptible and not done.wait(_WAKE_SECONDS):
            assert caller.ident is not None
            signal.pthread_kill(caller.ident, _WAKE)

    before = signal.signal(_WAKE, interrupt) if interruptible else None
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield call
    finally:
        done.set()
        watcher.join()
        if interruptible:
            signal.signal(_WAKE, before)
