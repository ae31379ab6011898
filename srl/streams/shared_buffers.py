"""Buffers that the two ends of a stream write in turn."""

from __future__ import annotations

from collections.abc import Mapping

from srl.core.tree import copy_tree
from srl.core.types import Tree
from srl.streams.layout import Layout
from srl.streams.transport.message import Body
from srl.system.shared_memory import SharedMemory


class SharedBuffers:
    """Buffers of arrays, by name.

    Within a host both ends map the same memory, and messages only pass the turn; between hosts each
    end has its own, and messages carry the contents.
    """

    def __init__(self, layouts: Mapping[str, Layout], fds: tuple[int, ...] = ()) -> None:
        """Maps the memory of descriptors, which it takes over, or makes new memory.

        Raises:
            RunError: If there is not enough memory, or the descriptors are of another layout.
        """
        self._layouts = dict(layouts)
        if fds:
            pairs = zip(fds, layouts.values(), strict=True)
            memory = [SharedMemory.attach(fd, layout.size) for fd, layout in pairs]
        else:
            memory = [SharedMemory.create(layout.size) for layout in layouts.values()]
        self._memory = dict(zip(layouts, memory, strict=True))
        self._views = {name: layout.views(self.body(name)) for name, layout in layouts.items()}
        if fds:
            self.close()

    def __getitem__(self, name: str) -> Tree:
        """The arrays of a buffer, in place."""
        return self._views[name]

    @property
    def fds(self) -> tuple[int, ...]:
        """Descriptors of the buffers, for the other end."""
        return tuple(memory.fd for memory in self._memory.values())

    def body(self, name: str) -> Body:
        """The bytes of a buffer, in place."""
        # A mapping has at least one byte, a layout may have none.
        return self._memory[name].array[: self._layouts[name].size]

    def take_in(self, name: str, body: Body | None) -> None:
        """Copies the contents of a buffer that a message has brought.

        Raises:
            Refused: If it is of another size.
        """
        copy_tree(self._layouts[name].views(body), self._views[name])

    def close(self) -> None:
        """Closes the descriptors; the memory stays as long as an array of it."""
        for memory in self._memory.values():
            memory.close()
