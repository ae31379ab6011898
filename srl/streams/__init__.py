"""Streams: what an edge between two fragments becomes.

Connections carry messages over one of three transports (`listen`, `connect`); a Layout says what
lies where in their bodies; ParameterWriter and ParameterReader hold the newest parameters.
"""

from srl.streams.channel import (
    Connection,
    Disconnected,
    Listener,
    Peer,
    Transport,
    connect,
    listen,
)
from srl.streams.layout import Layout
from srl.streams.message import JOINED, LEFT, Identity, Message, Refused
from srl.streams.parameters import ParameterReader, ParameterWriter

__all__ = [
    "JOINED",
    "LEFT",
    "Connection",
    "Disconnected",
    "Identity",
    "Layout",
    "Listener",
    "Message",
    "ParameterReader",
    "ParameterWriter",
    "Peer",
    "Refused",
    "Transport",
    "connect",
    "listen",
]
