"""The cores for the threads of a process, and the core on which a thread waits."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from srl.system.background.cpu_limit import whole_cores_granted

SHARE = "SRL_CORES"
"""Environment variable: the cores that a worker's threads are to fill, where others like it share
the machine. The threads run on any core."""
_libc = ctypes.CDLL(None)


def cores_to_fill() -> int:
    """The number of cores for threads of this process: its share, or all that it may use."""
    return int(os.environ.get(SHARE, 0)) or whole_cores_granted()


def current_core() -> int:
    """The core that the calling thread runs on."""
    return _libc.sched_getcpu()


def own_core(number: int, count: int) -> int | None:
    """The core for one of `count` processes, where there are as many cores; else None.

    Which cores are free where there are more, and how to share fewer, is left to Linux. Several
    pools with as many workers as cores share them: the first worker of each has the first core.
    """
    cores = sorted(os.sched_getaffinity(0))
    return cores[number] if len(cores) == count else None


class WaitingCore:
    """The core that a thread waits on, so that it wakes there.

    Linux may wake a thread on the core of the thread that wakes it, which goes on running there;
    and it may leave two threads that never sleep for long on one core, beside an idle one. Neither
    lasts if each thread comes back to its own core whenever it waits. Its work may be done on any
    core, also by threads and processes that it starts.
    """

    def __init__(self, core: int | None) -> None:
        """Takes the core; with None nothing is ever done."""
        self._core = core
        self._left_until = 0.0

    def leave(self, seconds: float) -> None:
        """Has nothing done for so long, as when something else keeps the core busy."""
        self._left_until = time.monotonic() + seconds

    @property
    def is_here(self) -> bool:
        """True if the calling thread runs on the core."""
        return self._core == current_core()

    def come_back(self) -> None:
        """Moves the calling thread to the core, where it stays unless Linux moves it away."""
        if not self.is_here:
            with self.held():
                pass

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keeps the calling thread on the core meanwhile."""
        allowed = self._take()
        try:
            yield
        finally:
            # Else others have chosen cores meanwhile.
            if allowed and os.sched_getaffinity(0) == {self._core}:
                self._bind(allowed)

    def _take(self) -> set[int]:
        """Binds the calling thread; gives the cores that it had, none if it stays unbound."""
        if self._core is None or time.monotonic() < self._left_until:
            return set()
        allowed = os.sched_getaffinity(0)
        return allowed if self._core in allowed and self._bind({self._core}) else set()

    def _bind(self, cores: set[int]) -> bool:
        """Has the calling thread run on these cores alone; False where that is not allowed."""
        try:
            os.sched_setaffinity(0, cores)
        except OSError:  # sandboxes refuse it, and a core may just have been taken away
            self._core = None
            return False
        return True
