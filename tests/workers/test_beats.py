"""A worker's messages: its beats while it compiles, and its questions to hooks."""

import threading
import time

import pytest

from srl.loop.stage import Stage
from srl.streams.transport import listen
from srl.streams.transport.message import Identity
from srl.workers.control import CONTROLLER, LIMIT_BYTES, Control, ControlMessage, unpack
from srl.workers.worker_spec import WorkerSpec


@pytest.fixture
def beats():
    """A worker's end of a connection, and the beats that arrive at the other end."""
    with listen("host", Identity(1, CONTROLLER, 0), limit_bytes=LIMIT_BYTES) as listener:
        spec = WorkerSpec("", "learner", 0, 1, 0, run=1, controller=listener.address)
        control = Control(spec)

        def arrive():
            while True:
                _, message = listener.receive(30)
                if message.kind == ControlMessage.BEAT:
                    yield unpack(message)

        yield control, arrive()
        control.close()


def test_a_worker_that_is_to_stop_while_it_compiles_has_not_begun_its_work(beats):
    control, arriving = beats
    control.main_loop.enter(Stage.COMPILING)
    control.stopping.set()
    beat = next(beat for beat in arriving if beat["stage"] == Stage.COMPILING)
    assert beat["state"] == "starting"
    control.main_loop.enter(Stage.STEPPING)
    assert next(beat for beat in arriving if beat["state"] != "starting")["state"] == "draining"


def test_a_compiler_that_computes_shows_progress_in_beats(beats):
    control, arriving = beats
    control.main_loop.enter(Stage.COMPILING)
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        pass
    control.main_loop.enter(Stage.STEPPING)
    idle = []
    for beat in arriving:
        if beat["stage"] == Stage.STEPPING:
            break
        idle.append(beat["idle"])
    assert len(idle) > 2
    assert max(idle) < 1.5


def test_a_worker_in_a_hurry_does_not_wait_for_the_answer_of_hooks(beats):
    control, _ = beats
    control.hurried.set()
    assert control.wait_for_answer(0, {"number": 0}) == {"stop": False, "settings": {}}


def test_a_connection_closes_with_its_last_message_however_long_the_next_beat_takes(monkeypatch):
    monkeypatch.setattr("srl.workers.control.BEAT_SECONDS", 3600.0)
    with listen("host", Identity(1, CONTROLLER, 0), limit_bytes=LIMIT_BYTES) as listener:
        for number in range(1, 101):
            spec = WorkerSpec("", "learner", 0, number, 0, run=1, controller=listener.address)
            control = Control(spec)
            control.send(ControlMessage.STOPPED, {})
            control.close()
            assert not any(thread.name == "control" for thread in threading.enumerate())
