"""A server for metrics, among clients that mean it ill."""

import contextlib
import http.client
import socket
import threading

import pytest
from waiting import wait_until

from srl.tracking import metrics_server
from srl.tracking.metrics_server import MOST_CONNECTIONS, MetricsServer, for_known_hosts


def answer(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"metrics"]


@pytest.fixture
def server():
    made = MetricsServer("127.0.0.1", 0, for_known_hosts(answer, "127.0.0.1"))
    yield made
    made.end()


def status(server, host):
    """The answer's status to a request for a host of this name."""
    asked = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    with contextlib.closing(asked):
        asked.request("GET", "/metrics", headers={"Host": host})
        return asked.getresponse().status


@pytest.fixture
def half_open(server):
    """Clients that have begun with a request and do not go on."""
    before = threading.active_count()
    clients = [socket.create_connection(("127.0.0.1", server.server_port)) for _ in range(100)]
    for client in clients:
        with contextlib.suppress(OSError):  # it is cut already
            client.sendall(b"GET /metrics HTTP/1.1\r\n")
    yield lambda: threading.active_count() - before
    for client in clients:
        client.close()


def test_half_open_requests_hold_few_threads_and_keep_no_reader_out(server, half_open):
    wait_until(lambda: half_open() <= MOST_CONNECTIONS)
    assert status(server, "127.0.0.1") == 200


def test_half_open_requests_are_ended(server, half_open, monkeypatch):
    monkeypatch.setattr(metrics_server, "MOST_SECONDS", 0.1)
    wait_until(lambda: half_open() == 0)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:9464", 200),
        ("[::1]:9464", 200),
        ("LOCALHOST", 200),
        (socket.gethostname(), 200),
        ("rebound.example:9464", 403),
        ("127.0.0.1.rebound.example", 403),
        ("", 403),
        ("[", 403),
    ],
)
def test_only_names_and_addresses_of_this_host_are_answered(server, host, expected):
    assert status(server, host) == expected
