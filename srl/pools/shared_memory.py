"""Arrays that several processes see."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from srl.errors import RunError
from srl.pools.pool import Allocate

T = TypeVar("T")
_ALIGNMENT = 64  # JAX takes NumPy memory without a copy from here on


class Shared(NamedTuple, Generic[T]):
    """Arrays in one piece of anonymous memory, which goes when the last process lets go of it."""

    arrays: T
    """What the builder gave."""
    buffer: np.ndarray
    """uint8, all of it: every array holds this one, which holds the mapping."""
    fd: int
    """Of the memory, for other processes; the caller closes it."""


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
        size += -size % _ALIGNMENT + math.prod(shape) * np.dtype(dtype).itemsize

    build(measure)
    size = max(size, 1)
    fd = _reserve(size) if fd is None else fd
    buffer = np.frombuffer(mmap.mmap(fd, size), np.uint8)
    used = 0

    def allocate(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        nonlocal used
        used += -used % _ALIGNMENT
        start, used = used, used + math.prod(shape) * np.dtype(dtype).itemsize
        return buffer[start:used].view(dtype).reshape(shape)

    return Shared(build(allocate), buffer, fd)


def _reserve(size: int) -> int:
    """A descriptor of so many bytes, all there: to lack them when written would be a bus error."""
    cure = "take fewer environments or shorter unrolls"
    available = _available()
    if size > available:  # the kernel would rather end some process than refuse
        raise RunError(
            f"cannot reserve {size:,} bytes of shared memory, as {available:,} are free; {cure}"
        )
    fd = os.memfd_create("srl", os.MFD_CLOEXEC)
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        os.close(fd)
        raise RunError(
            f"cannot reserve {size:,} bytes of shared memory: {error.strerror}; {cure}"
        ) from error
    return fd


def _available() -> int:
    with open("/proc/meminfo") as file:
        lines = dict(line.split(":", 1) for line in file)
    return 1024 * int(lines["MemAvailable"].split()[0])
