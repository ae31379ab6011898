"""A wire with a listener at its end: passes TCP on, keeps what crossed, and changes frames."""

import contextlib
import itertools
import socket
import threading

COMMAND, LONG = 4, 2
GREETING_BYTES = 10, 1, 53  # between which an end waits for the other's


def frames_in(source):
    """Reads ZMTP: its greeting and commands, and its frames, each as (is a message's, bytes)."""
    yield from ((False, source.read(size)) for size in GREETING_BYTES)
    while flags := source.read(1):
        length = source.read(8 if flags[0] & LONG else 1)
        content = source.read(int.from_bytes(length, "big"))
        yield not flags[0] & COMMAND, flags + length + content


class Relay:
    """Passes one connection on to an address, and keeps all bytes of both ways."""

    def __init__(self, address, out=iter, back=iter):
        """Passes on frames of messages as `out` (to the listener) and `back` give them."""
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        self._there = (host, int(port))
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.crossed = bytearray()
        self._changes = out, back
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def _serve(self):
        near, _ = self._server.accept()
        far = socket.create_connection(self._there)
        out, back = self._changes
        answers = threading.Thread(target=self._pass_on, args=(far, near, back))
        answers.start()
        self._pass_on(near, far, out)
        answers.join()
        near.close()
        far.close()

    def _pass_on(self, source, target, change):
        with contextlib.suppress(OSError), source.makefile("rb") as opened:
            for changes, run in itertools.groupby(frames_in(opened), lambda frame: frame[0]):
                pieces = (piece for _, piece in run)
                for piece in change(pieces) if changes else pieces:
                    self.crossed += piece
                    target.sendall(piece)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def close(self):
        """Once both ends have closed."""
        for thread in self._threads:
            thread.join(20)
        self._server.close()
