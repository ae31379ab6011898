"""Connections between threads of a process: messages go by reference."""

from __future__ import annotations

import itertools
import os
import time
import weakref
from collections import deque
from threading import Condition
from typing import Any

from srl.streams.transport.interface import Connection, Disconnected, Listener, Peer, check_size
from srl.streams.transport.message import JOINED, LEFT, Identity, Message

MOST_UNREAD = 1024
"""Messages that wait in a mailbox; then its senders wait too."""


class Mailbox:
    """The messages that one end has yet to read."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._changed = Condition()
        self.closed = False
        self._event = -1

    def put(self, item: Any, wait: bool) -> bool:
        """Adds an item; False if the box is closed, or full and `wait` is False."""
        with self._changed:
            while len(self._items) >= MOST_UNREAD and wait and not self.closed:
                self._changed.wait()
            if self.closed or len(self._items) >= MOST_UNREAD:
                return False
            self._items.append(item)
            self._notify()
            return True

    def take(self, timeout: float | None) -> Any | None:
        """The next item; None after the timeout, or when woken or closed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not (self._items or self.closed):
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    break
                self._changed.wait(left)
            item = self._items.popleft() if self._items else None
            if len(self._items) == MOST_UNREAD - 1:
                self._changed.notify_all()
            if self._event >= 0 and not self._items and not self.closed:
                os.eventfd_write(self._event, 1)  # so that the read below never blocks
                os.eventfd_read(self._event)
            return item

    def wake(self) -> None:
        """Makes `take` give None once."""
        with self._changed:
            self._items.append(None)
            self._notify()

    def close(self, last: Any = None) -> list[Any]:
        """Closes the box; replaces the unread items by `last`, and returns them."""
        with self._changed:
            rest = [item for item in self._items if item is not None]
            if not self.closed:
                self._items = deque() if last is None else deque([last])
            self.closed = True
            self._notify()
            return rest

    def fileno(self) -> int:
        """Readable while there is something to take, from the first call of this on."""
        with self._changed:
            if self._event < 0:
                self._event = os.eventfd(0, os.EFD_CLOEXEC)
                weakref.finalize(self, os.close, self._event)
                if self._items or self.closed:
                    self._notify()
            return self._event

    def _notify(self) -> None:
        self._changed.notify_all()
        if self._event >= 0:
            os.eventfd_write(self._event, 1)


_listeners: weakref.WeakValueDictionary[str, ThreadListener] = weakref.WeakValueDictionary()
_numbers = itertools.count()


class ThreadListener(Listener):
    """Reads one mailbox; each peer has a mailbox of its own for the answers."""

    shares_memory = True

    def __init__(self, identity: Identity, limit_bytes: int) -> None:
        super().__init__(identity, limit_bytes)
        self.address = f"thread:{next(_numbers)}"
        self.mailbox = Mailbox()
        self._joined: dict[Mailbox, Peer] = {}
        _listeners[self.address] = self

    def fileno(self) -> int:
        """Readable when something may have come: then `receive(0)` until it gives None."""
        return self.mailbox.fileno()

    def wake(self) -> None:
        """Makes `receive` give None, now or when next called; from any thread."""
        self.mailbox.wake()

    def close(self) -> None:
        """Ends all connections."""
        _listeners.pop(self.address, None)
        unread = {box for box, *_ in self.mailbox.close()}
        for box in unread | self._joined.keys():
            box.close(Message(LEFT, body=b"it has closed"))

    def _collect(self, timeout: float | None) -> bool:
        item = self.mailbox.take(timeout)
        if item is None:
            return False
        box, identity, message = item
        peer = self._joined.get(box)
        if peer:
            self._deliver(peer, identity, message)
            if message.kind == LEFT:
                del self._joined[box]
        elif message.kind == JOINED and (peer := self._admit(identity, message, box)):
            self._joined[box] = peer
        return True  # what comes from a mailbox that was cut off or refused is dropped

    def _transmit(self, peer: Peer, message: Message) -> None:
        if not peer.route.put(_with_own_fds(message), wait=False):
            self.cut_off(peer, "it does not read what it is sent")

    def _hang_up(self, peer: Peer, reason: str) -> None:
        peer.route.close(Message(LEFT, body=reason.encode()))
        self._joined.pop(peer.route, None)


class ThreadConnection(Connection):
    """Writes into a listener's mailbox and reads its own."""

    def __init__(self, address: str, identity: Identity, limit_bytes: int) -> None:
        super().__init__(address, identity, limit_bytes)
        self._answers = Mailbox()
        listener = _listeners.get(address)
        if listener is None:
            raise Disconnected(f"nothing listens at {address}")
        self._theirs = listener.mailbox
        self._put(Message(JOINED))

    def send(self, message: Message) -> None:
        """Hands the message over, with its body by reference."""
        check_size(message, self.limit_bytes)
        self._put(_with_own_fds(message))

    def _receive(self, timeout: float | None) -> tuple[Identity, Message] | None:
        message = self._answers.take(timeout)
        if message is None and self._answers.closed:
            self._end()
        return None if message is None else (self.identity, message)  # there is one run

    def fileno(self) -> int:
        """Readable when something may have come: then `receive(0)` until it gives None."""
        return self._answers.fileno()

    def close(self) -> None:
        """Ends the connection; what was sent before still arrives."""
        if not self._answers.closed:
            self._answers.close()
            self._theirs.put((self._answers, self.identity, Message(LEFT)), wait=True)

    def _put(self, message: Message) -> None:
        if self._answers.closed:
            self.receive(0)  # raises with the reason
            raise Disconnected(f"{self.address}: this end has closed")
        if not self._theirs.put((self._answers, self.identity, message), wait=True):
            raise Disconnected(f"{self.address}: it has closed")


def _with_own_fds(message: Message) -> Message:
    """The message with copies of its descriptors, as a socket would make."""
    return message._replace(fds=tuple(map(os.dup, message.fds))) if message.fds else message
