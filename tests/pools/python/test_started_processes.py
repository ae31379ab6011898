"""Processes that environments start: none outlives those that step them."""

import logging
import os
import signal
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from simulator_starting_envs import (
    HANG,
    KILL,
    SEGFAULT,
    Starter,
    alive,
    listed,
    wait_for_their_ends,
)

from srl import RunError, make_pool
from srl.extras.check_env.child import findings_of_child
from srl.extras.check_env.report import Settings

# Environments that cannot be closed have not waited for what they started.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def short_patience(monkeypatch):
    for module in ("closing", "processes.handle"):
        monkeypatch.setattr(f"srl.pools.python.{module}.CLOSE_SECONDS", 0.5)


@pytest.mark.parametrize("ends", [KILL, SEGFAULT])
def test_what_a_dead_worker_had_started_is_gone_before_it_is_started_again(tmp_path, ends):
    with make_pool(partial(Starter, tmp_path / "pids"), 2, workers=2) as pool:
        pool.reset(seed=0)
        before = listed(tmp_path / "pids")
        assert len(alive(before)) == 6
        pool.step(np.array([ends, 0]))
        pool.step(np.array([0, 0]))
        after = listed(tmp_path / "pids")
        assert len(after) == 9
        assert len(alive(before)) == 3
        assert len(alive(after)) == 6
    assert not alive(after)


def test_what_a_worker_that_hangs_had_started_is_gone_with_it(tmp_path):
    pool = make_pool(partial(Starter, tmp_path / "pids"), 1, workers=1, step_timeout=0.5)
    pool.reset(seed=0)
    with pytest.raises(RunError, match="has not finished its step"):
        pool.step(np.array([HANG]))
    assert not alive(listed(tmp_path / "pids"))
    with pytest.raises(RunError, match="has not finished its step"):
        pool.step(np.array([0]))
    pool.close()


@pytest.mark.parametrize("close", ["raises", "hangs", "waits"])
@pytest.mark.parametrize("workers", [0, 1])
def test_nothing_is_left_by_environments_that_cannot_be_closed(tmp_path, caplog, workers, close):
    ways = ("plain", "session") + (("shell",) if workers else ())
    maker = partial(Starter, tmp_path / "pids", close, ways)
    pool = make_pool(maker, 2, workers=workers)
    pool.reset(seed=0)
    with caplog.at_level(logging.WARNING):
        pool.close()
    assert len(listed(tmp_path / "pids")) == 2 * len(ways)
    assert not alive(listed(tmp_path / "pids"))
    if not workers and close != "waits":
        text = {"raises": "OSError: the simulator does not answer", "hangs": "close() hangs"}[close]
        assert text in caplog.text
        assert text in pool.close_failure


def test_nothing_is_left_of_environments_of_which_one_cannot_be_made(tmp_path):
    made = []

    def maker():
        made.append(Starter(tmp_path / "pids", "raises", ("plain",)))
        if len(made) == 2:
            raise ValueError("no licence")
        return made[0]

    with pytest.raises(RunError, match="no licence"):
        make_pool(maker, 2)
    assert not alive(listed(tmp_path / "pids"))


def test_a_process_of_the_users_own_is_left_alone(tmp_path):
    pool = make_pool(partial(Starter, tmp_path / "pids", "raises", ("plain",)), 1)
    with subprocess.Popen(["sleep", "86399"]) as own:
        pool.reset(seed=0)
        pool.close()
        assert alive([own.pid])
        own.kill()


OWNER = """
import sys
from functools import partial
from simulator_starting_envs import Starter
from srl import make_pool
pool = make_pool(partial(Starter, sys.argv[1], "hangs", {ways}), 1, workers={workers})
pool.reset(seed=0)
print("made", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_where_the_owner_is_killed(tmp_path, workers, number):
    ways = ("plain", "session") + (("shell",) if workers else ())
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER.format(ways=ways, workers=workers), str(tmp_path / "pids")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with owner:
        assert owner.stdout.readline() == "made\n"
        pids = listed(tmp_path / "pids")
        assert len(alive(pids)) == len(ways)
        owner.send_signal(number)
    assert not wait_for_their_ends(pids)


def test_the_checks_of_an_environment_leave_nothing(tmp_path):
    options = {"listing": str(tmp_path / "pids"), "close": "raises"}
    findings = list(
        findings_of_child(Settings("simulator_starting_envs:Starter", 5, 5, 0, options))
    )
    assert findings[-1].check == "survival"  # an action has killed it
    assert listed(tmp_path / "pids")
    assert not alive(listed(tmp_path / "pids"))
