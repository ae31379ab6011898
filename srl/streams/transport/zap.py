"""A thread that answers ZeroMQ's questions about keys (RFC 27, ZAP).

There is one such thread for all listeners of a process. The domain that a listener names is the
public key of its run, so the thread has nothing to remember.
"""

from __future__ import annotations

import threading

import zmq
from zmq.utils import z85

_ENDPOINT = "inproc://zeromq.zap.01"

_lock = threading.Lock()
_answering: zmq.Context | None = None


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


def _answer(socket: zmq.Socket) -> None:
    with socket:
        while True:
            try:
                version, number, domain, _, _, mechanism, *shown = socket.recv_multipart()
                known = mechanism == b"CURVE" and [z85.encode(key) for key in shown] == [domain]
                status, text = (b"200", b"OK") if known else (b"400", b"not a key of this run")
                socket.send_multipart([version, number, status, text, b"", b""])
            except zmq.ContextTerminated:
                return
