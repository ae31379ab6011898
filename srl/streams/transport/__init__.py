"""Transports: how messages get from one worker to another.

`interface` holds what each transport implements, a Listener and a Connection; `thread`, `unix`,
`network` and `cluster` implement it; `factory` chooses one by its name or by an address. A new
transport is a file of its own and a line of `factory`.
"""

from srl.streams.transport.factory import Transport, connect, listen
from srl.streams.transport.interface import Connection, Disconnected, Listener, Peer, opened
from srl.streams.transport.message import JOINED, LEFT, Identity, Message, Refused

__all__ = [
    "JOINED",
    "LEFT",
    "Connection",
    "Disconnected",
    "Identity",
    "Listener",
    "Message",
    "Peer",
    "Refused",
    "Transport",
    "connect",
    "listen",
    "opened",
]
