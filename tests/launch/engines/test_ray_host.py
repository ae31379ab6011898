"""A process of a run on a host of Ray's cluster: its stops, and its starts after failures."""

import signal

import pytest

from srl.config.experiment import load_experiment
from srl.launch.engines.ray_host import HostProcess, _again, config_hash
from srl.run.folder import create_run
from srl.run.status import read_outcome
from srl.run.terminal import INTERRUPTED
from srl.streams.transport.keys import create_keys


def test_a_stop_that_comes_before_the_controller_starts_ends_the_run(tmp_path):
    folder = create_run(load_experiment("CartPole-v1"), tmp_path / "run")
    create_keys(folder.path)
    host = HostProcess(str(folder.path), config_hash(folder))
    host.stop()
    assert host.serve() == ""
    assert read_outcome(folder.path) == INTERRUPTED


@pytest.mark.parametrize(
    ("code", "pause", "lasting", "again"),
    [
        (-signal.SIGKILL, 5.0, False, True),
        (-signal.SIGTERM, 5.0, True, False),
        (70, 5.0, True, True),
        (70, 640.0, True, False),
        (70, 5.0, False, False),
        *((code, 5.0, True, False) for code in (0, 2, 75, 143)),
    ],
)
def test_supervisors_that_fail_are_started_again_until_the_pause_is_long(
    code, pause, lasting, again
):
    assert _again(code, pause, lasting=lasting) is again
