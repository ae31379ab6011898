"""The newest parameters, whole, whatever happens to who writes them."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from srl.core.errors import RunError
from srl.streams.layout import Layout
from srl.streams.parameter_memory import NONE_YET, ParameterReader, ParameterWriter
from srl.streams.transport import Identity, listen
from srl.streams.transport.message import LEFT

SECONDS = 20


def parameters(number, size=5):
    return {"w": np.full(size, float(number)), "b": np.full(7, number, np.int32)}


LAYOUT = Layout.of(parameters(0))


@pytest.fixture
def writer():
    made = ParameterWriter(LAYOUT)
    yield made
    made.close()


def test_the_newest_version_is_read(writer):
    reader = ParameterReader(LAYOUT, os.dup(writer.fd))
    assert reader.version == NONE_YET
    with pytest.raises(RunError, match="no parameters were published yet"):
        reader.read()
    for number in range(1, 9):
        writer.publish((0, number), parameters(number))
        assert reader.version == (0, number)
        version, tree = reader.read()
        assert version == (0, number)
        assert tree["w"].tolist() == [number] * 5
        assert tree["b"].tolist() == [number] * 7


def test_what_was_read_does_not_change(writer):
    reader = ParameterReader(LAYOUT, os.dup(writer.fd))
    writer.publish((0, 1), parameters(1))
    _, tree = reader.read()
    for number in range(2, 9):
        writer.publish((0, number), parameters(number))
    assert tree["w"].tolist() == [1] * 5


def test_parameters_of_another_layout_are_not_published(writer):
    reader = ParameterReader(LAYOUT, os.dup(writer.fd))
    writer.publish((0, 1), parameters(1))
    with pytest.raises(RunError, match="its layout has"):
        writer.publish((0, 2), parameters(2, size=6))
    assert reader.read()[0] == (0, 1)
    writer.publish((0, 2), parameters(2))
    assert reader.read()[0] == (0, 2)


def test_memory_of_another_size_is_not_read(writer):
    larger = Layout.of(parameters(0, size=5000))
    with pytest.raises(RunError, match="cannot map"):
        ParameterReader(larger, os.dup(writer.fd))


@pytest.mark.parametrize("size", [10, 300_000])
def test_no_reader_sees_torn_values_though_the_writer_is_killed_at_any_moment(size):
    """Several writers, each killed while it publishes; every value read is all of one version."""
    rng = np.random.default_rng(0)
    program = Path(__file__).parent / "publisher.py"
    with listen("host", Identity(1, 0, 0), limit_bytes=1 << 20) as listener:
        words = [sys.executable, str(program), listener.address, "1"]
        writers = [subprocess.Popen([*words, str(n), str(size)]) for n in range(1, 4)]
        readers = {}
        while len(readers) < 3:
            peer, message = listener.receive(SECONDS)
            if message.kind == 16:
                layout = Layout.from_json(message.body, 1 << 30)
                readers[peer.identity.sender] = ParameterReader(layout, message.fds[0])
        for number, process in enumerate(writers, 1):
            seen = read_for(readers[number], rng.uniform(0.05, 0.3))
            process.kill()
            process.wait()
            seen |= read_for(readers[number], 0.02)
            assert len(seen) > 1
        for _ in writers:
            assert listener.receive(SECONDS)[1].kind == LEFT


def read_for(reader, seconds):
    """Reads again and again; the versions that were seen."""
    seen = {(3, 0)}
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline or (len(seen) == 1 and time.monotonic() < deadline + SECONDS):
        if reader.version == NONE_YET:
            continue
        version, tree = reader.read()
        assert version >= max(seen)
        assert (tree["w"] == version[1]).all()
        assert (tree["b"] == version[1]).all()
        seen.add(version)
    return seen
