"""What a learner's replicas do before they meet."""

import os
import threading
from pathlib import Path

import jax
import pytest

from srl.core.errors import UserError
from srl.loop.learning import replicas


@pytest.fixture
def policy_after():
    """Runs a function in a thread of its own, and gives that thread's scheduling policy then."""

    def run(function):
        found = []
        thread = threading.Thread(
            target=lambda: found.append((function(), os.sched_getscheduler(0)))
        )
        thread.start()
        thread.join()
        return found[0][1]

    return run


def test_threads_of_replicas_on_cpus_do_not_preempt_each_other_on_waking(policy_after, monkeypatch):
    monkeypatch.setattr(replicas, "jax_gpus", list)
    assert policy_after(replicas._never_preempt_on_waking) == os.SCHED_BATCH


def test_with_gpus_threads_are_scheduled_as_before(policy_after, monkeypatch):
    monkeypatch.setattr(replicas, "jax_gpus", lambda: ["0"])
    assert policy_after(replicas._never_preempt_on_waking) == os.sched_getscheduler(0)


def test_where_scheduling_may_not_be_changed_replicas_go_on(policy_after, monkeypatch):
    def refuse(*given):
        raise PermissionError

    monkeypatch.setattr(replicas, "jax_gpus", list)
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert policy_after(replicas._never_preempt_on_waking) == os.sched_getscheduler(0)


def test_replicas_of_one_host_meet_in_a_folder_that_only_their_user_enters():
    folder = Path(replicas.meeting_place("127.0.0.1").removeprefix("unix:")).parent
    mode = folder.stat().st_mode & 0o777
    folder.rmdir()
    assert mode == 0o700


@pytest.mark.parametrize(
    "absent",
    [
        "jax._src.distributed.global_state",
        "jax._src.xla_bridge.make_cpu_client",
        "jaxlib._jax.make_gloo_tcp_collectives",
    ],
)
def test_a_jax_with_other_internals_is_named(monkeypatch, absent):
    monkeypatch.delattr(absent)
    with pytest.raises(UserError, match=f"^JAX {jax.__version__} has no {absent}, .* one learner$"):
        replicas.join("unix:/nowhere", 0, 2, "127.0.0.1")
