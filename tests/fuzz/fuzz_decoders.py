"""A coverage-guided fuzzer of the decoders: of all that turns bytes into messages, or checks those.

Whatever the bytes, they are read or they are Refused; nothing else is raised, and nothing above the
limit is taken. It needs the package atheris, and takes libFuzzer's options:

python tests/fuzz/fuzz_decoders.py -runs=10000000 -max_len=512 -len_control=0 CORPUS_FOLDER
"""

import json
import socket

import atheris
from fuzzing import fuzz, instrumented

with instrumented():
    from messages import LIMIT, VECTOR, a_body, a_message

    from srl.launch.hosts import messages as host_messages
    from srl.streams import group_state, inference, layout, parameters, sample
    from srl.streams.layout import Layout
    from srl.streams.transport import message, schema, sealing, unix
    from srl.streams.transport.message import HEADER_BYTES, Identity, Message, encode
    from srl.workers import message_schemas

IDENTITY = Identity(1, 2, 3)
HERE, THERE = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
LINK = unix.Link(HERE, IDENTITY, LIMIT)
BUFFER = bytearray(HEADER_BYTES + unix.INLINE_BYTES)
STREAMS = [
    sample.FIELDS,
    inference.FIELDS,
    parameters.FIELDS,
]
PACKED = bytes(group_state.pack({"a": VECTOR, "b": (VECTOR, VECTOR)}))
DTYPES = ["bool", "uint8", "float32", "int64", "bfloat16", "object", "float128", ""]


def read_header(data: atheris.FuzzedDataProvider) -> None:
    _, read, size = message.decode(data.ConsumeBytes(LIMIT), LIMIT)
    assert size <= LIMIT
    assert len(read.counts) <= message.MOST_COUNTS


def read_packet(data: atheris.FuzzedDataProvider) -> None:
    packet = data.ConsumeBytes(LIMIT)
    if packet:
        THERE.send(packet)
        got = LINK.read(BUFFER)
        assert got is not None
        assert len(got[1].body or b"") <= LIMIT


def read_frames(data: atheris.FuzzedDataProvider) -> None:
    sizes = [data.ConsumeIntInRange(0, 300) for _ in range(data.ConsumeIntInRange(0, 3))]
    bodies = [memoryview(bytes(size)) for size in sizes]
    sealing.Unsealed(LIMIT).open(data.ConsumeBytes(LIMIT), bodies)


def read_invitation(data: atheris.FuzzedDataProvider) -> None:
    body = data.ConsumeBytes(LIMIT)
    assert sealing.Invitation.from_bytes(body).to_bytes() == body


def read_true_header(data: atheris.FuzzedDataProvider) -> None:
    """A header as it should be, but for a few of its bytes."""
    header = bytearray(encode(IDENTITY, Message(16, counts=(1, 2)), 4))
    for _ in range(data.ConsumeIntInRange(0, 4)):
        header[data.ConsumeIntInRange(0, len(header) - 1)] = data.ConsumeIntInRange(0, 255)
    THERE.send(header + data.ConsumeBytes(8))
    LINK.read(BUFFER)


def read_layout(data: atheris.FuzzedDataProvider) -> None:
    check(Layout.from_json(data.ConsumeBytes(LIMIT), LIMIT), data)


def read_true_layout(data: atheris.FuzzedDataProvider) -> None:
    """A layout as it should be, but for some of its names and numbers."""
    check(Layout.from_json(json.dumps(tree(data, 3)).encode(), LIMIT), data)


def read_packed_tree(data: atheris.FuzzedDataProvider) -> None:
    group_state.unpack(a_body(data, PACKED), LIMIT)


def tree(data: atheris.FuzzedDataProvider, depth: int):
    kind = data.ConsumeIntInRange(0, 5) if depth else 5
    parts = range(data.ConsumeIntInRange(0, 3))
    if kind < 2:
        return {data.ConsumeUnicode(3): tree(data, depth - 1) for _ in parts}
    if kind < 4:
        return [tree(data, depth - 1) for _ in parts]
    if kind == 4:
        return data.PickValueInList([None, 3, 0.5, True, data.ConsumeUnicode(9)])
    shape = ",".join(
        str(data.ConsumeIntInRange(-1, 1 << data.ConsumeIntInRange(0, 62))) for _ in parts
    )
    return f"{data.PickValueInList(DTYPES)}[{shape}]"


def check(read: Layout, data: atheris.FuzzedDataProvider) -> None:
    assert read.size <= LIMIT + layout.ALIGNMENT
    assert Layout.from_json(read.to_json(), LIMIT) == read
    read.views(bytes(read.size))
    read.views(data.ConsumeBytes(LIMIT))


def read_words(data: atheris.FuzzedDataProvider) -> None:
    """What somebody tells the controller."""
    shapes = data.PickValueInList([host_messages.SCHEMAS, message_schemas.SCHEMAS])
    kind = data.PickValueInList([*shapes, 99])
    read = message_schemas.checked_values(Message(kind, body=data.ConsumeBytes(LIMIT)), shapes)
    assert message_schemas.fits(read, shapes[kind])
    if kind == host_messages.HostMessage.HOST:
        host_messages.HostCard.of(read)


def read_said(data: atheris.FuzzedDataProvider) -> None:
    counts = tuple(data.ConsumeInt(8) for _ in range(data.ConsumeIntInRange(0, 8)))
    host_messages.unwrapped(Message(host_messages.HostMessage.WORKER, counts=counts))


def read_fields(data: atheris.FuzzedDataProvider) -> None:
    stream = data.PickValueInList(STREAMS)
    read = schema.check(a_message(data, stream, {}), stream)
    expected = stream[read.kind]
    for (name, allowed), count in zip(expected.counts.items(), read.counts, strict=False):
        assert count in allowed, name
    assert all(number in expected.version for number in read.version)


if __name__ == "__main__":
    fuzz(
        [
            read_header,
            read_packet,
            read_frames,
            read_invitation,
            read_true_header,
            read_layout,
            read_true_layout,
            read_packed_tree,
            read_words,
            read_said,
            read_fields,
        ]
    )
