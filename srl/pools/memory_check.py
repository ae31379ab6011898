"""A check of memory for a pool's environments, estimated by the first few of them."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable

from srl.core.errors import UserError
from srl.pools.pool import Pool
from srl.system.shared_memory import available_bytes, size_text

SAMPLE = 64
"""Environments by which the size of one is estimated; a pool of no more is not checked."""
MEMORY = "SRL_POOL_MEMORY"
"""Environment variable: bytes that the environments of this process may take, of a host where
other processes make environments at the same time."""
_OBJECT_BYTES = 64


class Growth:
    """The growth of this process's memory since this object was made.

    Python's objects count, too: they may reuse freed memory without any growth of the process.
    Garbage is collected before each measurement: collected in between, it would hide growth.
    """

    def __init__(self) -> None:
        gc.collect()
        self._before = resident_bytes(), _object_bytes()

    @property
    def nbytes(self) -> int:
        """Bytes by now."""
        gc.collect()
        now = resident_bytes(), _object_bytes()
        return max(after - before for before, after in zip(self._before, now, strict=True))


def resident_bytes() -> int:
    """Memory that this process has at present."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _object_bytes() -> int:
    """About what Python's small objects take."""
    return _OBJECT_BYTES * sys.getallocatedblocks()


def check_memory(name: str, num_envs: int, grown: int, made: int) -> None:
    """Checks that memory holds a pool, before the rest of it is made.

    Args:
        name: Of the environment.
        num_envs: Of the whole pool, in all its processes.
        grown: Bytes by which making the first few has raised this process's memory.
        made: How many these were.

    Raises:
        UserError: With the sizes, and how many environments fit.
    """
    each, available = grown / made, available_bytes()
    if MEMORY in os.environ:
        available = min(available, int(os.environ[MEMORY]))
    if each * num_envs <= available:
        return
    whole, free = size_text(each * num_envs), size_text(available)
    raise UserError(
        f"{num_envs:,} environments of {name} would take about {whole} of memory, "
        f"{size_text(each)} each by the first {made}, but {free} are available to it; "
        f"there is room for about {int(available / each):,}: give fewer as num_envs"
    )


def check_memory_by_sample(name: str, num_envs: int, make: Callable[[int], Pool]) -> None:
    """Makes and resets a few environments, to check that memory holds them all.

    Args:
        name: Of the environment.
        num_envs: Of the whole pool.
        make: Makes a pool of so many on one thread.

    Raises:
        UserError: As `check_memory`.
    """
    if num_envs <= SAMPLE:
        return
    with make(1):  # what the first one loads is there for all
        growth = Growth()
        with make(SAMPLE) as some:
            some.reset(seed=0)
            check_memory(name, num_envs, growth.nbytes, SAMPLE)
