"""An HTTP server for metrics, which strangers can neither fill nor reach by way of a browser."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

MOST_CONNECTIONS = 16
MOST_SECONDS = 5.0
"""The time that a connection may take in all."""


class MetricsServer(ThreadingMixIn, WSGIServer):
    """An HTTP server on a thread, with a bound on its connections and on the time of each.

    A connection beyond the bound ends the oldest, so that silent ones keep no reader out.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: str, port: int, app: Any) -> None:
        """Answers by a WSGI `app`; port 0 takes a free one. Raises OSError if it cannot listen."""
        given = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, _, _, _, (host, *_) = given[0]
        self._open: dict[socket.socket, float] = {}  # connections, by age, and their beginning
        self._lock = threading.Lock()
        super().__init__((str(host), port), _Handler)
        self.set_app(app)
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers on a thread."""
        with self._lock:
            self._open[request] = time.monotonic()
            surplus = [*self._open][:-MOST_CONNECTIONS]
        self._cut(surplus)
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Ends the connections that have taken too long; called twice a second."""
        before = time.monotonic() - MOST_SECONDS
        with self._lock:
            late = [request for request, begun in self._open.items() if begun < before]
        self._cut(late)

    def shutdown_request(self, request: Any) -> None:
        """Closes a connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Leaves out what a reader that goes away makes its thread raise."""

    def end(self) -> None:
        """Closes the port and all connections."""
        self.shutdown()
        self.server_close()
        self._cut([*self._open])
        self._thread.join()

    @staticmethod
    def _cut(requests: list[socket.socket]) -> None:
        """Ends connections, whose threads then close them."""
        for request in requests:
            with suppress(OSError):  # it has just ended
                request.shutdown(socket.SHUT_RDWR)


class _Handler(WSGIRequestHandler):
    """Answers one request, and logs nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""


def for_known_hosts(app: Callable[..., Any], address: str) -> Callable[..., Any]:
    """Answers only requests by an address or a name of this host.

    A web page can have its own name stand for this host, and so have its reader's browser ask.
    """
    names = {"localhost", address.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}

    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        host = _hostname(environ.get("HTTP_HOST", ""))
        if host in names or _is_address(host):
            return app(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [
            f"this host is not {host!r}; ask by its address or {socket.gethostname()}\n".encode()
        ]

    return answer


def _hostname(host: str) -> str:
    """The host of a Host header, in lower case and without its port; empty where it is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
