"""Garbage of a start: traces and what compilers leave."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Leaves cycles of garbage for later; this thread and all others.

    Traces are millions of small objects, nearly all of which stay: to look through them again and
    again takes a tenth of a start.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def return_freed_memory() -> None:
    """Gives memory that was freed back to the operating system.

    A compiler leaves some 60 MB in each process, which the C library would keep for later. A C
    library without `malloc_trim` keeps it.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
