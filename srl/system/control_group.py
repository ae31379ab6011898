"""The control groups of a process: what containers and schedulers leave it of its host."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
"""The folder where control groups are mounted."""
OWN = Path("/proc/self/cgroup")
"""The file in which the kernel lists the control groups of this process."""


def control_groups(controller: str = "") -> list[Path]:
    """The folders of this process's control group and of those above it, whose limits hold too.

    Args:
        controller: Of version 1, such as "memory"; empty for version 2.
    """
    group = "/"
    with suppress(OSError):
        for line in OWN.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(","):
                group = path
    mounted = ROOT / controller
    group_folder = mounted / group.lstrip("/")
    return [
        group_folder,
        *(folder for folder in group_folder.parents if folder.is_relative_to(mounted)),
    ]
