"""Arrays that several processes see."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from srl.pools.timestep_arrays import ALIGNMENT, Allocate
from srl.system.shared_memory import SharedMemory

T = TypeVar("T")
_HINT = "take fewer environments or shorter unrolls"


class Shared(NamedTuple, Generic[T]):
    """Arrays in one piece of anonymous memory, which is freed when no process maps it."""

    arrays: T
    """The result of the builder."""
    buffer: np.ndarray
    """uint8, all of it: every array holds this one, which holds the mapping."""
    fd: int
    """The memory's descriptor, for other processes; the caller closes it."""


def shared_arrays(build: Callable[[Allocate], T], fd: int | None = None) -> Shared[T]:
    """Maps the arrays that `build` asks its argument for; it is called twice.

    Args:
        build: Gives arrays of all the shapes and dtypes, in a tree of its own.
        fd: Of memory made for the same `build` in another process; by default it is made here.

    Raises:
        RunError: If there is not so much memory.
    """
    size = 0

    def measure(shape: tuple[int, ...], dtype: Any) -> None:
        nonlocal size
        size += -size % ALIGNMENT + math.prod(shape) * np.dtype(dtype).itemsize

    build(measure)
    size = max(size, 1)
    memory = SharedMemory.create(size, _HINT) if fd is None else SharedMemory.attach(fd, size)
    buffer = memory.array
    used = 0

    def allocate(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        nonlocal used
        used += -used % ALIGNMENT
        start, used = used, used + math.prod(shape) * np.dtype(dtype).itemsize
        return buffer[start:used].view(dtype).reshape(shape)

    return Shared(build(allocate), buffer, memory.fd)
