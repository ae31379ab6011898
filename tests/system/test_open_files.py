"""The limit on open files: raised at the start, and what needs more is refused."""

import resource
import subprocess
import sys

import pytest

from srl.core.errors import UserError
from srl.pools import make_pool
from srl.system.open_files import expect_room

LIMITS = "import resource; print(*resource.getrlimit(resource.RLIMIT_NOFILE))"


def with_limits(soft, hard, *command):
    """A process that has these limits when it starts."""
    limited = ["prlimit", f"--nofile={soft}:{hard}", *command]
    return subprocess.run(limited, capture_output=True, text=True)


def test_a_process_of_srl_may_open_what_the_hard_limit_allows():
    done = with_limits(60, 700, sys.executable, "-c", f"import srl; {LIMITS}")
    assert done.stdout == "700 700\n"


def test_a_plan_that_needs_more_open_files_than_allowed_is_refused_before_it_starts(tmp_path):
    words = ("native:CartPole-v1", "--plan", "decoupled", "--plan.actors.replicas", "64")
    run = tmp_path / "run"
    done = with_limits(
        60, 300, sys.executable, "-m", "srl", "run", *words, "--num-envs", "128", "--run-dir", run
    )
    assert done.returncode == 2
    told = done.stderr.splitlines()[-1]
    assert "under the plan 'decoupled', policies would have about 424 files" in told
    assert "may have 300 here (`ulimit -Hn` is 300)" in told
    assert "take fewer replicas or groups" in told
    assert not run.exists()


@pytest.fixture
def few():
    """A low limit for this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few")
def test_a_pool_of_more_processes_than_can_be_open_is_refused():
    with pytest.raises(UserError, match="CartPole-v1: this process would have about 1,240 files"):
        make_pool("CartPole-v1", 300, workers=300)


@pytest.mark.usefixtures("few")
def test_what_fits_is_not_refused():
    expect_room("it would", 900, "take less")
