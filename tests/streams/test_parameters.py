"""The newest parameters, for whoever asks, within a host and beyond."""

import threading
import time

import numpy as np
import pytest

from srl.core.errors import RunError
from srl.streams.layout import Layout
from srl.streams.parameter_memory import NONE_YET
from srl.streams.parameters import ParameterMessage, Publisher, Subscriber
from srl.streams.transport import Disconnected, Identity, Message, connect, listen

SECONDS = 20


def parameters(number, size=5):
    return {"w": np.full(size, float(number)), "b": np.full(7, number, np.int32)}


LAYOUT = Layout.of(parameters(0))


def publisher_at(transport, **options):
    listener = listen(transport, Identity(1, 0, 0), limit_bytes=1 << 20)
    made = Publisher(listener, LAYOUT, **options)
    made.address = listener.address
    return made


@pytest.fixture(params=["thread", "host", "network", "cluster"])
def publisher(request):
    made = publisher_at(request.param)
    yield made
    made.close()


def subscriber_to(publisher, number=1, **options):
    def to_publisher():
        return connect(publisher.address, Identity(1, number, 0), limit_bytes=1 << 20)

    return Subscriber(to_publisher, **options)


def test_parameters_come_once_they_are_newer(publisher):
    subscriber = subscriber_to(publisher)
    assert subscriber.newest(NONE_YET, 0.05) is None
    for number in (1, 2, 5):
        publisher.publish((0, number), parameters(number))
        version, tree = subscriber.newest((0, number - 1), SECONDS)
        assert version == (0, number)
        assert tree["w"].tolist() == [number] * 5
        assert tree["b"].tolist() == [number] * 7
        assert subscriber.newest(version, 0.0) is None
    subscriber.close()


def test_who_waits_is_told_at_once(publisher):
    subscriber = subscriber_to(publisher)
    found = []
    waiting = threading.Thread(target=lambda: found.append(subscriber.newest((3, 7), SECONDS)))
    waiting.start()
    publisher.publish((3, 6), parameters(6))
    publisher.publish((3, 7), parameters(7))
    begun = time.monotonic()
    publisher.publish((3, 8), parameters(8))
    waiting.join()
    assert time.monotonic() - begun < SECONDS / 2
    assert found[0][0] == (3, 8)
    subscriber.close()


def test_one_that_is_behind_gets_the_newest_alone(publisher):
    subscriber = subscriber_to(publisher)
    for number in range(1, 9):
        publisher.publish((0, number), parameters(number))
    assert subscriber.newest(NONE_YET, SECONDS)[0] == (0, 8)
    subscriber.close()


def test_only_other_hosts_are_sent_parameters(publisher):
    subscriber = subscriber_to(publisher)
    for number in range(1, 4):
        publisher.publish((0, number), parameters(number))
        assert subscriber.newest((0, number - 1), SECONDS)
    beyond = publisher.address.startswith("tcp:")
    assert publisher.bytes_sent == (3 * LAYOUT.size if beyond else 0)
    subscriber.close()


def test_one_of_another_layout_is_turned_away(publisher):
    with pytest.raises(RunError, match="not of the expected layout"):
        subscriber_to(publisher, layout=Layout.of(parameters(0, size=6)))


def test_a_request_of_another_layout_is_refused(publisher):
    publisher.publish((0, 1), parameters(1))
    with connect(publisher.address, Identity(1, 1, 0), limit_bytes=1 << 20) as connection:
        other = Layout.of(parameters(0, size=6)).hash
        connection.send(Message(ParameterMessage.NEWER, 0, NONE_YET, other))
        with pytest.raises(Disconnected, match=f"layout {other:016x}"):
            connection.receive(SECONDS)


@pytest.mark.parametrize(
    "message",
    [
        Message(ParameterMessage.NEWER, 0, (0, 1 << 40), LAYOUT.hash),
        Message(ParameterMessage.NEWER, 0, (-2, 0), LAYOUT.hash),
        Message(ParameterMessage.VERSION, counts=(1,)),
        Message(ParameterMessage.OPEN, body=b"something"),
        Message(ParameterMessage.HANDSHAKE),
        Message(99),
    ],
    ids=str,
)
def test_a_message_that_no_subscriber_sends_ends_its_connection_alone(publisher, message):
    publisher.publish((0, 1), parameters(1))
    with connect(publisher.address, Identity(1, 1, 0), limit_bytes=1 << 20) as connection:
        connection.send(message)
        with pytest.raises(Disconnected, match="a message of kind"):
            connection.receive(SECONDS)
    subscriber = subscriber_to(publisher)
    assert subscriber.newest(NONE_YET, SECONDS)[0] == (0, 1)
    subscriber.close()


def test_answers_that_are_no_parameters_are_refused():
    with listen("thread", Identity(1, 0, 0), limit_bytes=1 << 20) as listener:

        def answer():
            peer, _ = listener.receive(SECONDS)
            listener.send(peer, Message(ParameterMessage.HANDSHAKE, body=LAYOUT.to_json()))
            listener.send(peer, Message(ParameterMessage.OPEN))

        thread = threading.Thread(target=answer)
        thread.start()
        subscriber = subscriber_to(listener)
        with pytest.raises(RunError, match="expected NEWER"):
            subscriber.newest(NONE_YET, SECONDS)
        thread.join()


def test_a_subscriber_finds_the_publisher_that_took_over():
    first = publisher_at("host")
    address = [first.address]

    def to_whoever():
        return connect(address[0], Identity(1, 1, 0), limit_bytes=1 << 20)

    subscriber = Subscriber(to_whoever)
    first.publish((0, 4), parameters(4))
    assert subscriber.newest(NONE_YET, SECONDS)[0] == (0, 4)
    second = publisher_at("host")
    address[0] = second.address
    first.close()
    second.publish((1, 2), parameters(2))
    while (found := subscriber.newest((0, 4), SECONDS)) is None:
        pass
    assert found[0] == (1, 2)
    subscriber.close()
    second.close()
