"""The control groups of a process: what containers and schedulers leave it of its host."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def control_groups(controller: str = "", root: Path = ROOT, own: Path = OWN) -> list[Path]:
    """The folders of this process's control group and of those above it, whose limits hold too.

    Args:
        controller: Of version 1, such as "memory"; empty for version 2.
        root: Where control groups are mounted.
        own: Where the kernel lists those of this process.
    """
    group = "/"
    with suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(","):
                group = path
    mounted = root / controller
    place = mounted / group.lstrip("/")
    return [place, *(folder for folder in place.parents if folder.is_relative_to(mounted))]
