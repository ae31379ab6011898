"""Streams: what an edge between two fragments becomes.

Connections carry messages over one of several transports (`transport`); a Layout defines what lies
where in their bodies; ParameterWriter and ParameterReader hold the newest parameters.
"""

from srl.streams.layout import Layout
from srl.streams.parameter_memory import ParameterReader, ParameterWriter
from srl.streams.transport import (
    JOINED,
    LEFT,
    Connection,
    Disconnected,
    Identity,
    Listener,
    Message,
    Peer,
    Refused,
    Transport,
    connect,
    listen,
)

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
