"""A thread that answers ZeroMQ's questions about keys (RFC 27, ZAP).

There is one such thread for all listeners of a process. A listener with CURVE names the public key
of its run as its domain; one with invitations (`sealing`) says here which of them it admits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakMethod

import zmq
from zmq.utils import z85

_ENDPOINT = "inproc://zeromq.zap.01"

_lock = threading.Lock()
_answering: zmq.Context | None = None
_guests: dict[bytes, WeakMethod[Callable[[bytes, bytes], bool]]] = {}


def answer_about_keys(context: zmq.Context) -> None:
    """Admits only peers that have the key which a listener of `context` names as its domain."""
    global _answering
    with _lock:
        if _answering is not context:
            socket = context.socket(zmq.REP)
            socket.linger = 0
            socket.bind(_ENDPOINT)
            threading.Thread(target=_answer, args=(socket,), name="keys", daemon=True).start()
            _answering = context


def admit_guests(domain: bytes, admits: Callable[[bytes, bytes], bool]) -> None:
    """Has a method decide who is admitted to a domain, by a name and a word, while it exists."""
    _guests[domain] = WeakMethod(admits, lambda _: _guests.pop(domain, None))


def _answer(socket: zmq.Socket) -> None:
    with socket:
        while True:
            try:
                version, number, domain, _, _, mechanism, *shown = socket.recv_multipart()
                known = _knows(domain, mechanism, shown)
                status, text = (b"200", b"OK") if known else (b"400", b"not of this run")
                name = shown[0] if known and mechanism == b"PLAIN" else b""
                socket.send_multipart([version, number, status, text, name, b""])
            except zmq.ContextTerminated:
                return


def _knows(domain: bytes, mechanism: bytes, shown: list[Any]) -> bool:
    if mechanism == b"PLAIN":
        admits = _guests.get(domain, lambda: None)()
        return admits is not None and admits(*shown)
    return mechanism == b"CURVE" and [z85.encode(key) for key in shown] == [domain]
