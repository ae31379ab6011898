"""One end of a stream between hosts, which tells all that it sees.

    stream_end.py FOLDER                   listens, and sends each message back
    stream_end.py FOLDER ADDRESS SENDER    connects, and sends a message for each line that it reads

FOLDER has the keys. Who is disconnected connects again as its next incarnation, and sends what was
not answered once more.
"""

import sys
from contextlib import suppress
from pathlib import Path

from srl.streams.transport import JOINED, LEFT, Disconnected, Identity, Message, connect, listen
from srl.streams.transport.keys import read_keys

RUN = 0xFEDCBA9876543210
LIMIT = 1 << 20
SCHEMAS = {JOINED: "joined", LEFT: "left"}


def tell(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def serve(keys):
    listener = listen(
        "network", Identity(RUN, 0, 0), limit_bytes=LIMIT, interface="eth0", keys=keys
    )
    tell(listener.address)
    while True:
        peer, message = listener.receive(None)
        tell(peer.identity.sender, SCHEMAS.get(message.kind, message.sequence))
        if message.kind not in SCHEMAS:
            listener.send(peer, message)


class Talker:
    """Sends messages, each until it is answered."""

    def __init__(self, keys, address, sender):
        self._keys, self._address = keys, address
        self._connection = self._join(Identity(RUN, sender, 0))

    def say(self, message):
        while True:
            try:
                self._connection.send(message)
                return self._connection.wait(lambda: None)
            except Disconnected:
                tell("disconnected")
                self._join_again()

    def _join(self, identity):
        return connect(self._address, identity, limit_bytes=LIMIT, timeout=1, keys=self._keys)

    def _join_again(self):
        identity = self._connection.identity
        later = identity._replace(incarnation=identity.incarnation + 1)
        while self._connection.identity != later:
            with suppress(Disconnected):
                self._connection = self._join(later)


def main(folder, *words):
    keys = read_keys(Path(folder))
    if not words:
        serve(keys)
    talker = Talker(keys, words[0], int(words[1]))
    for number, _ in enumerate(sys.stdin):
        tell(talker.say(Message(16, number, body=bytes(number))).sequence)


main(*sys.argv[1:])
