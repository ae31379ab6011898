"""Messages that a process that has the keys may send: fuzzed, of the kinds that a stream has."""

import numpy as np

from srl.streams.layout import Layout
from srl.streams.transport.message import Identity, Message, decode, encode
from srl.streams.transport.schema import Fields

RUN, LIMIT = 1, 1 << 16
NUMBERS = [0, 1, 2, 3, -1, *(x + d for x in (1 << 31, 1 << 32, 1 << 53) for d in (-1, 0))]
VECTOR = {"float32": np.zeros(3, np.float32)}
SCHEMA = Layout.of(VECTOR).hash


def a_number(data):
    choice = data.ConsumeIntInRange(0, len(NUMBERS))
    return NUMBERS[choice] if choice < len(NUMBERS) else data.ConsumeInt(8)


def a_body(data, true):
    """As it should be, but for some of its bytes; or any."""
    if data.ConsumeIntInRange(0, 7) == 0:
        return data.ConsumeBytes(data.ConsumeIntInRange(0, 64))
    body = bytearray(true)
    for _ in range(data.PickValueInList([0, 0, 0, 1, 3]) if body else 0):
        body[data.ConsumeIntInRange(0, len(body) - 1)] = data.ConsumeIntInRange(0, 255)
    return bytes(body)


def a_message(data, fields, bodies):
    """One of a stream's kinds, as read from its header; three in four have what they should."""
    kind = data.PickValueInList([*map(int, fields), 99])
    own, wrong = fields.get(kind, Fields()), data.ConsumeIntInRange(0, 7)
    counts = [a_number(data) if wrong < 2 else data.ConsumeIntInRange(0, 1) for _ in own.counts]
    if wrong == 0:
        counts = [a_number(data) for _ in range(data.ConsumeIntInRange(0, 8))]
    version = (a_number(data), a_number(data)) if wrong < 2 else (0, 0)
    body = a_body(data, bodies.get(kind, b"")) if own.body or wrong == 0 else b""
    schema = data.PickValueInList([0, SCHEMA]) if own.schema or wrong == 0 else 0
    message = Message(kind, data.ConsumeIntInRange(0, 1), version, schema, tuple(counts))
    _, message, _ = decode(encode(Identity(RUN, 0, 0), message, len(body)), LIMIT)
    return message._replace(body=body or None)
