"""A wire with a listener at its end: passes TCP on and keeps what crossed."""

import contextlib
import socket
import threading


class Relay:
    """Passes one connection on to an address, and keeps all bytes of both ways."""

    def __init__(self, address):
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        self._there = (host, int(port))
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"
        self.crossed = bytearray()
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def _serve(self):
        near, _ = self._server.accept()
        far = socket.create_connection(self._there)
        back = threading.Thread(target=self._pass_on, args=(far, near))
        back.start()
        self._pass_on(near, far)
        back.join()
        near.close()
        far.close()

    def _pass_on(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.crossed += data
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def close(self):
        """Once both ends have closed."""
        for thread in self._threads:
            thread.join(20)
        self._server.close()
