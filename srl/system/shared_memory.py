"""Memory that several processes see, without a name that could be left behind."""

from __future__ import annotations

import fcntl
import mmap
import os
from contextlib import suppress

import numpy as np

from srl.core.errors import RunError
from srl.system.control_group import control_groups

# The limit, what is used, and the cached files' entry in memory.stat, by controller.
_GROUP_FILES = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


class SharedMemory:
    """One piece of anonymous memory, which goes when the last process lets go of it.

    memory = SharedMemory.create(size)  # here; `memory.fd` goes to another process
    memory = SharedMemory.attach(fd, size)  # there
    """

    def __init__(self, fd: int, size: int) -> None:
        """Maps `size` bytes of `fd`, and keeps the descriptor until `close`."""
        self.fd = fd
        """The memory's descriptor; -1 once closed."""
        self.size = size
        self.array = np.frombuffer(mmap.mmap(fd, size), np.uint8)
        """uint8 `[size]`, page-aligned: every array made of it holds it, and it the mapping."""

    @classmethod
    def create(cls, size: int, hint: str = "take smaller batches") -> SharedMemory:
        """Makes memory of `size` bytes, all 0 and all there, so that no write can fail later.

        Args:
            size: Bytes; at least one is taken.
            hint: What the user could do against a lack of memory.

        Raises:
            RunError: If there is not so much memory.
        """
        size = max(size, 1)
        return cls(_reserve(size, hint), size)

    @classmethod
    def attach(cls, fd: int, size: int) -> SharedMemory:
        """Maps memory that another process made; takes `fd` over, also when it refuses.

        Raises:
            RunError: If there are fewer than `size` bytes, or its maker could take them away.
        """
        try:
            held = os.fstat(fd).st_size
            seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
            if not (0 < size <= held and seals & fcntl.F_SEAL_SHRINK):
                raise RunError(
                    f"cannot map {size:,} bytes of shared memory: it has {held:,}, and "
                    f"{'they are sealed' if seals & fcntl.F_SEAL_SHRINK else 'it may shrink'}"
                )
            return cls(fd, size)
        except (OSError, RunError) as error:
            os.close(fd)
            if isinstance(error, RunError):
                raise
            raise RunError(f"this is no shared memory: {error.strerror}") from error

    def close(self) -> None:
        """Closes the descriptor; the memory stays as long as an array of it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _reserve(size: int, hint: str) -> int:
    """A descriptor of so many bytes, all there: to lack them when written would be a bus error."""
    available = available_bytes()
    if size > available:  # the kernel would rather end some process than refuse
        raise RunError(
            f"cannot reserve {size:,} bytes of shared memory, as {available:,} are free; {hint}"
        )
    fd = os.memfd_create("srl", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(fd, 0, size)
        # To shrink it under a reader would be a bus error too.
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    except OSError as error:
        os.close(fd)
        raise RunError(
            f"cannot reserve {size:,} bytes of shared memory: {error.strerror}; {hint}"
        ) from error
    return fd


def memory_bytes() -> int:
    """All memory that processes of this one's kind share: of the machine, or a lower limit."""
    least = _meminfo("MemTotal")
    for controller, (limit, _, _) in _GROUP_FILES.items():
        for group in control_groups(controller):
            with suppress(OSError, ValueError):  # it has no limit
                least = min(least, int((group / limit).read_text()))
    return least


def available_bytes() -> int:
    """Memory that this process may still take: of the machine, or of its control groups."""
    available = _meminfo("MemAvailable")
    for controller, (limit, used, cache) in _GROUP_FILES.items():
        for group in control_groups(controller):
            with suppress(OSError, ValueError, KeyError):  # it has no limit
                room = int((group / limit).read_text()) - int((group / used).read_text())
                statistics = (group / "memory.stat").read_text().splitlines()
                room += int(dict(line.split() for line in statistics)[cache])  # can be freed
                available = min(available, room)
    return max(available, 0)


def _meminfo(name: str) -> int:
    """A line of the kernel's account of memory, in bytes."""
    with open("/proc/meminfo") as file:
        lines = dict(line.split(":", 1) for line in file)
    return 1024 * int(lines[name].split()[0])


def size_text(count: float) -> str:
    """A number of bytes, such as 42.3 GiB."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:,.1f} GiB"
