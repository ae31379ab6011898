"""The newest parameters in memory that the processes of a host share.

writer = ParameterWriter(layout)
writer.publish((0, 1), parameters)
reader = ParameterReader(layout, writer.fd)  # in another process, with its copy of the descriptor
version, parameters = reader.read()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from srl.core.errors import RunError
from srl.streams.layout import ALIGNMENT, Layout
from srl.system.shared_memory import SharedMemory

if TYPE_CHECKING:
    from srl.core.types import Tree

Version = tuple[int, int]
NONE_YET: Version = (-1, -1)
"""Older than every version."""

_SLOTS = 3


class _Slots:
    """The memory: which publication is the newest, and the last three, each in its slot.

    A slot's state is 2k while it holds publication k, 2k - 1 while that is being written. It is
    read before and after a copy, so none is taken that was overwritten meanwhile; a writer that
    dies leaves its slot unfinished and the one before as the newest. This relies on stores and
    loads being seen in order, as on x86-64.
    """

    def __init__(self, layout: Layout, memory: SharedMemory) -> None:
        stride = ALIGNMENT + layout.size
        self.newest = memory.array[:8].data.cast("q")
        """[0]: the newest complete publication, counted from 1."""
        starts = range(ALIGNMENT, self.size(layout), stride)
        self.heads = [memory.array[s : s + 24].data.cast("q") for s in starts]
        """[state, epoch, n] of each slot."""
        self.bodies = [memory.array[s + ALIGNMENT : s + stride] for s in starts]

    @staticmethod
    def size(layout: Layout) -> int:
        """Bytes of all of it."""
        return ALIGNMENT + _SLOTS * (ALIGNMENT + layout.size)


class ParameterWriter:
    """Publishes parameters in shared memory; never waits for a reader."""

    def __init__(self, layout: Layout) -> None:
        """Makes the memory.

        Raises:
            RunError: If there is not enough.
        """
        self.layout = layout
        self._memory = SharedMemory.create(_Slots.size(layout))
        self._slots = _Slots(layout, self._memory)

    @property
    def fd(self) -> int:
        """The memory's descriptor, for readers in other processes."""
        return self._memory.fd

    def publish(self, version: Version, tree: Tree) -> None:
        """Makes these the newest parameters.

        Raises:
            RunError: If the tree is not of the layout; the newest stay as they were then.
        """
        number = self._slots.newest[0] + 1
        head, body = (part[number % _SLOTS] for part in (self._slots.heads, self._slots.bodies))
        head[0] = 2 * number - 1
        self.layout.write(body, tree)
        head[1], head[2] = version
        head[0] = 2 * number
        self._slots.newest[0] = number

    def close(self) -> None:
        """Closes the descriptor; readers keep what they have mapped."""
        self._memory.close()


class ParameterReader:
    """Reads what a ParameterWriter published."""

    def __init__(self, layout: Layout, fd: int) -> None:
        """Maps the writer's memory; takes `fd` over.

        Raises:
            RunError: If it is not memory of this layout's size.
        """
        self.layout = layout
        memory = SharedMemory.attach(fd, _Slots.size(layout))
        memory.close()
        self._slots = _Slots(layout, memory)

    @property
    def version(self) -> Version:
        """The version of the newest parameters; (-1, -1) before the first are published."""
        return self._newest(None)

    def read(self) -> tuple[Version, Tree]:
        """Copies the newest parameters.

        Raises:
            RunError: If nothing was published yet.
        """
        body = self.layout.empty()
        version = self._newest(body)
        if version == NONE_YET:
            raise RunError("no parameters were published yet")
        return version, self.layout.views(body)

    def _newest(self, into: np.ndarray | None) -> Version:
        while number := self._slots.newest[0]:
            head = self._slots.heads[number % _SLOTS]
            if head[0] != 2 * number:
                continue  # the writer has come round since
            version = head[1], head[2]
            if into is not None:
                into[:] = self._slots.bodies[number % _SLOTS]
            if head[0] == 2 * number:
                return version
        return NONE_YET
