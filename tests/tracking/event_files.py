"""Events as TensorBoard keeps them."""

from tensorboardX.proto.event_pb2 import Event


def values_of(folder):
    """(step, value) of each summary: a session's start removes what lies after its step."""
    values = []
    for path in sorted(folder.glob("events.out.*")):
        data = path.read_bytes()
        while data:
            length = int.from_bytes(data[:8], "little")
            event = Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]
            if event.HasField("session_log"):
                values = [value for value in values if value[0] < event.step]
            values += [(event.step, value) for value in event.summary.value]
    return values


def scalars_of(folder):
    """(tag, step, value) of each scalar."""
    found = values_of(folder)
    return [(v.tag, step, v.simple_value) for step, v in found if v.HasField("simple_value")]
