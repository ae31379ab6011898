"""The benchmark of parameters for many hosts, as its user calls it."""

import json

import pytest

from tools.bench.__main__ import main


def test_what_the_learner_sends_grows_with_the_fan_out_and_not_with_the_hosts(capsys):
    words = ["--hosts", "5", "--bytes", "64000", "--fan-out", "1,2,5", "--updates", "3", "--keys"]
    assert main(["parameters", *words, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["value"] for row in rows] == [64_000, 128_000, 320_000]
    assert all(row["seconds"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--fan-out", "4,no"], "'no'; expected a whole number from 1 up"),
        (["--hosts", "0"], "--hosts"),
    ],
)
def test_bad_options_are_refused(capsys, argv, message):
    assert main(["parameters", *argv]) == 2
    assert message in capsys.readouterr().err
