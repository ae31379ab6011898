"""The door of a listener between hosts: CURVE for the handshake, AES-128-GCM for all else.

ZeroMQ encrypts with CURVE at a fifth of the speed of a network within a host, and AES is twenty
times as fast where the processor has it. So a listener has two ports. At the door, peers with the
run's keys get an invitation over CURVE, with new keys for one connection. At the other port ZeroMQ
encrypts nothing and admits each invitation once; messages are sealed (`sealing`).
"""

from __future__ import annotations

import secrets
import threading
import time

import zmq

from srl.streams.transport.interface import Connection, Disconnected, Listener, Peer
from srl.streams.transport.keys import Keys
from srl.streams.transport.message import JOINED, LEFT, Identity, Message, text_of
from srl.streams.transport.network import NetworkListener
from srl.streams.transport.network_connection import NetworkConnection
from srl.streams.transport.sealing import Guests, Invitation, Unsealed, processor_has_aes
from srl.streams.transport.tcp import securing

INVITATION = 2
"""The door's answer to JOINED; the body is an Invitation."""
_SEALED = "tcp+aes://"
_LIMIT_BYTES = 1 << 10  # more than a frame of CURVE's handshake


def listen_between_hosts(
    identity: Identity, limit_bytes: int, interface: str, keys: Keys | None, encrypt: bool
) -> NetworkListener:
    """Waits for peers over the network; see `listen`."""
    keys = securing("listen at", interface, keys, encrypt)
    if keys and processor_has_aes():
        return SealedListener(identity, limit_bytes, interface, keys)
    return NetworkListener(identity, limit_bytes, interface, keys)


def connect_between_hosts(
    address: str,
    identity: Identity,
    limit_bytes: int,
    timeout: float,
    keys: Keys | None,
    encrypt: bool,
) -> Connection:
    """Connects to a listener over the network; see `connect`."""
    begun = time.monotonic()
    host = address.partition("://")[2].rpartition(":")[0]
    keys = securing("connect to", host, keys, encrypt)
    if not address.startswith(_SEALED):
        return NetworkConnection(address, identity, limit_bytes, timeout, keys)
    invitation = ask_for_invitation(address, timeout, keys, begun)
    connection = NetworkConnection(
        f"tcp://{host}:{invitation.port}",
        identity,
        limit_bytes,
        timeout,
        invitation,
        begun,
    )
    connection.address = address  # by which connections to one listener are recognized
    return connection


def ask_for_invitation(
    address: str, timeout: float, keys: Keys | None, begun: float | None = None
) -> Invitation:
    """Gets an invitation at the door of a SealedListener; for the time see NetworkConnection.

    Raises:
        Disconnected: If there is no such door, or it lets nobody in with these keys.
    """
    here = Identity(0, secrets.randbits(32), 0)  # names a connection: a sender has one at a time
    at = "tcp://" + address.removeprefix(_SEALED)
    begun = time.monotonic() if begun is None else begun
    with NetworkConnection(at, here, _LIMIT_BYTES, timeout, keys, begun) as door:
        answer = door.receive(max(0.0, begun + timeout - time.monotonic()))
    if answer is None:
        raise Disconnected(f"{address}: nothing answers within {timeout:g} s")
    return Invitation.from_bytes(text_of(answer))


class _Door(NetworkListener):
    """The CURVE socket of a SealedListener, which counts and logs all that is refused."""

    def __init__(self, behind: Listener, interface: str, keys: Keys) -> None:
        self._behind = behind
        super().__init__(Identity(0, 0, 0), _LIMIT_BYTES, interface, keys)

    def refuse(self, peer: Peer | str, reason: object) -> None:
        self._behind.refuse(peer, reason)


class SealedListener(NetworkListener):
    """A listener for those that its door has invited."""

    def __init__(self, identity: Identity, limit_bytes: int, interface: str, keys: Keys) -> None:
        """Takes two free ports of the interface, as NetworkListener; the address is the door's."""
        self._guests = Guests()
        super().__init__(identity, limit_bytes, interface, self._guests)
        self.sealed_address = self.address
        """The address for those with an invitation."""
        self._port = int(self.address.rpartition(":")[2])
        self._door = _Door(self, interface, keys)
        self.address = _SEALED + self._door.address.removeprefix("tcp://")
        self._closing = False
        self._doorkeeper = threading.Thread(target=self._keep_door, name="door", daemon=True)
        self._doorkeeper.start()

    def close(self) -> None:
        """Ends all connections."""
        if self._doorkeeper.is_alive():
            self._closing = True
            self._door.wake()
            self._doorkeeper.join()
        super().close()

    def _keep_door(self) -> None:
        """Invites all that come to the door: they have the run's keys."""
        with self._door:
            while not self._closing:
                if (got := self._door.receive(None)) is None or got[1].kind == LEFT:
                    continue
                peer, message = got
                if message.kind == JOINED:
                    invitation = self._guests.invite(self._port).to_bytes()
                    self._door.send(peer, Message(INVITATION, body=invitation))
                else:
                    self.refuse(peer, f"a message of kind {message.kind} at the door")

    def _codec(self, header: zmq.Frame) -> Unsealed:
        return self._guests.codec(str(header.get("User-Id")), self.limit_bytes)
