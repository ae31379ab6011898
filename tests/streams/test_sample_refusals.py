"""A learner's end of the sample stream, to which a peer sends what no group would."""

import numpy as np
import pytest

from srl.core.tree import map_tree
from srl.core.types import Decision
from srl.pools import make_pool
from srl.streams import inference, parameters, sample
from srl.streams.batch import batch_spec
from srl.streams.group_state import pack
from srl.streams.sample import SampleMessage, SampleSource
from srl.streams.sample_sink import SampleSink
from srl.streams.tickets import StalenessLimiter
from srl.streams.transport import Disconnected, Identity, Message, Refused, connect, listen

SECONDS, LIMIT = 20, 1 << 20


def form():
    """Of unrolls of two steps."""
    with make_pool("native:CartPole-v1", 1) as pool:
        zeros = np.zeros(1, np.float32)
        return batch_spec(pool.specs, 1, Decision(np.zeros(1, np.int32), zeros, ()), 2, 2)


FORM = form()
ROW = map_tree(lambda f: np.zeros(f.shape[1:], f.dtype), FORM.timesteps)
STATE = {
    "pool": np.zeros(4, np.uint8),
    "timestep": ROW._asdict(),
    "memory": (),
    "clock": np.array(2, np.int64),
}


@pytest.fixture(params=["host", "network"])
def sink(request):
    listener = listen(request.param, Identity(1, 0, 0), limit_bytes=LIMIT)
    made = SampleSink(listener, StalenessLimiter(2), [FORM])
    made.start()
    yield made
    made.close()


def group(sink, number=0):
    return connect(sink.listener.address, Identity(1, number, 0), limit_bytes=LIMIT)


def state(**parts):
    return Message(SampleMessage.STATE, body=pack({**STATE, **parts}))


OPEN = Message(SampleMessage.OPEN)
BAD = {
    "a ticket that is not its own": Message(SampleMessage.DELIVER, counts=(-1, 0)),
    "no ticket": Message(SampleMessage.DELIVER),
    "negative time": Message(SampleMessage.DELIVER, counts=(0, 0, -1)),
    "another count": Message(SampleMessage.TAKE, counts=(1,)),
    "a version": Message(SampleMessage.TAKE, version=(0, 1)),
    "a state without names": Message(SampleMessage.STATE, body=pack(np.zeros(3))),
    "a state of no group": Message(SampleMessage.STATE, body=pack({"a": np.zeros(3)})),
    "a state of another clock": state(clock=np.array(-1)),
    "a state with other timesteps": state(timestep={"reward": np.zeros(1)}),
    "a state with another memory": state(memory=(np.zeros(1),)),
    "a pool of numbers": state(pool=np.zeros(3)),
    "no state": Message(SampleMessage.STATE),
    "an unknown kind": Message(99),
}


@pytest.mark.parametrize("message", BAD.values(), ids=BAD)
def test_a_message_that_no_group_sends_ends_its_connection_and_others_go_on(sink, message):
    with group(sink) as stranger:
        stranger.send(OPEN)
        stranger.receive(SECONDS).close_fds()
        sink.ask_states()
        stranger.send(message)
        with pytest.raises(Disconnected):
            stranger.receive(SECONDS)
    assert sink.listener.refused == 1
    assert sink.states(lambda: None) == {}
    with group(sink) as connection:
        assert SampleSource(connection).take(SECONDS) is not None
    assert sink.gather(0, 0) is None


def test_a_state_that_was_not_asked_for_is_refused(sink):
    with group(sink) as stranger:
        stranger.send(OPEN)
        stranger.receive(SECONDS).close_fds()
        stranger.send(state())
        with pytest.raises(Disconnected, match="not asked for"):
            stranger.receive(SECONDS)


def test_a_group_that_does_not_exist_is_refused_and_counted(sink):
    for number in (2, 1 << 31):
        with group(sink, number) as stranger:
            stranger.send(OPEN)
            with pytest.raises(Disconnected, match=f"group {number} does not belong"):
                stranger.receive(SECONDS)
    assert sink.listener.refused == 2


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message(SampleMessage.TICKET, counts=(0, 7, 0)), "of 2 positions"),
        (Message(SampleMessage.TICKET, counts=(0, -1, 0)), "position"),
        (Message(SampleMessage.TICKET, counts=(0, 1, 1)), "lesson 2 of 1"),
        (Message(SampleMessage.TICKET), "counts"),
        (Message(SampleMessage.TICKET, version=(0, 1 << 40), counts=(0, 0, 0)), "version"),
        (Message(99), "kind 99"),
    ],
    ids=str,
)
def test_a_group_says_what_is_wrong_with_a_ticket(message, reason):
    with listen("network", Identity(1, 0, 0), limit_bytes=LIMIT) as listener:
        connection = connect(listener.address, Identity(1, 0, 0), limit_bytes=LIMIT)
        peer, _ = listener.receive(SECONDS)
        body = sample.Layout.of((FORM,)).to_json()
        listener.send(peer, Message(SampleMessage.HANDSHAKE, counts=(1, 2, 0, 0, 0), body=body))
        listener.send(peer, message)
        with connection, pytest.raises(Refused, match=reason):
            SampleSource(connection).take(SECONDS)


@pytest.mark.parametrize(
    ("stream", "messages"),
    [
        (sample, SampleMessage),
        (inference, inference.InferenceMessage),
        (parameters, parameters.ParameterMessage),
    ],
)
def test_each_kind_of_message_has_its_fields_declared(stream, messages):
    assert set(stream.FIELDS) == set(messages)
