"""One host of `bench parameters`; its arguments are RUN, BYTES and NUMBER.

It prints its relay's address, then the number of each update that its worker has. Each line that it
reads names what the relay follows: the publisher's address, a bar, that of another relay. It
answers when the relay knows.
"""

from __future__ import annotations

import sys
import threading
from contextlib import closing, suppress

from srl.streams.parameter_memory import NONE_YET
from srl.streams.parameters import Subscriber
from srl.streams.relay import Relay
from srl.streams.transport import Connection, Disconnected, Identity, connect, listen
from srl.streams.transport.keys import keys_from_environment

FOLLOWING = "following"


def main(argv: list[str]) -> None:
    """Serves until its input ends."""
    run, limit_bytes, number = map(int, argv)
    host, keys = f"host{number}", keys_from_environment()

    def connected(address: str, identity: Identity) -> Connection:
        return connect(address, identity, limit_bytes=limit_bytes, keys=keys, host=host)

    identity = Identity(run, number, 0)
    listener = listen("cluster", identity, limit_bytes=limit_bytes, keys=keys, host=host)
    with closing(Relay(listener, connected, patience=60.0, quiet=60.0)) as relay:
        _send(relay.address)
        own = Identity(run, 1 << 20, 0)
        worker = threading.Thread(
            target=lambda: _read(Subscriber(lambda: connected(relay.address, own))), daemon=True
        )
        worker.start()
        for line in sys.stdin:
            source, _, parent = line.rstrip("\n").partition("|")
            relay.follow(source, parent)
            _send(FOLLOWING)


def _read(subscriber: Subscriber) -> None:
    version = NONE_YET
    with suppress(Disconnected):  # at the end
        while True:
            if found := subscriber.newest(version, 1.0):
                version = found[0]
                _send(str(version[1]))


def _send(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
