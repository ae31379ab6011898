"""Python's garbage collector, which a start does without."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
