"""The benchmark of streams, as its user calls it."""

import json

import pytest

from tools.bench.__main__ import main


def lines(capsys, *words):
    """The JSON objects that `python -m tools.bench stream` prints for these words."""
    assert main(["stream", *words, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_each_transport_and_size_is_a_row(capsys):
    words = ["--transport", "thread,host", "--bytes", "8,100000", "--seconds", "0.1"]
    rows = lines(capsys, *words, "--rounds", "2")
    assert [(row["config"]["transport"], row["config"]["bytes"]) for row in rows] == [
        ("thread", 8),
        ("thread", 100_000),
        ("host", 8),
        ("host", 100_000),
    ]
    for row in rows:
        assert row["name"] == "stream"
        assert row["unit"] == "us/block"
        assert row["value"] > 0
        assert row["latency_us"] > 0
        assert len(row["rates"]) == 2


def test_the_network_is_compared_with_bare_zeromq(capsys):
    words = ["--transport", "network", "--bytes", "1000000", "--seconds", "0.3", "--vs", "zmq"]
    (row,) = lines(capsys, *words)
    assert row["unit"] == "MB/s"
    assert row["config"]["vs"] == "zmq"
    assert row["ratio_min"] <= row["ratio"] <= row["ratio_max"]
    assert main(["stream", *words, "--rounds", "1"]) == 0
    assert "ratio" in capsys.readouterr().out


def test_the_network_is_measured_without_and_with_keys(capsys):
    words = ["--transport", "host,network", "--bytes", "1000000", "--seconds", "0.1", "--keys"]
    rows = lines(capsys, *words, "--rounds", "1")
    assert [(row["config"]["transport"], "keys" in row["config"]) for row in rows] == [
        ("host", False),
        ("network", False),
        ("network", True),
    ]
    assert all(row["value"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--transport", "pigeon"], "'pigeon'; expected one of thread, host, network"),
        (["--bytes", "1,2"], "expected a whole number from 8 to"),
        (["--bytes", "many"], "expected a whole number from 8 to"),
        (["--seconds", "0"], "expected a number from 0.001 up"),
    ],
)
def test_mistakes_are_reported_in_a_line(capsys, argv, message):
    assert main(["stream", *argv]) == 2
    assert message in capsys.readouterr().err
