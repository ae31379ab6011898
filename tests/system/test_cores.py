"""Cores that threads wait on."""

import os

import pytest

from srl.system.cores import WaitingCore, current_core, own_core

CORES = sorted(os.sched_getaffinity(0))


def test_as_many_processes_as_cores_have_one_each() -> None:
    assert [own_core(k, len(CORES)) for k in range(len(CORES))] == CORES


@pytest.mark.parametrize("count", [len(CORES) - 1, len(CORES) + 1])
def test_fewer_or_more_processes_have_none_of_their_own(count: int) -> None:
    assert own_core(0, count) is None


@pytest.mark.parametrize("core", CORES)
def test_a_thread_is_held_on_its_core_only_meanwhile(core: int) -> None:
    with WaitingCore(core).held():
        assert current_core() == core
        assert os.sched_getaffinity(0) == {core}
    assert os.sched_getaffinity(0) == set(CORES)


@pytest.mark.skipif(len(CORES) < 2, reason="there is one core")
def test_a_thread_comes_back_from_another_core_and_may_still_run_anywhere() -> None:
    with WaitingCore(CORES[1]).held():
        pass
    WaitingCore(CORES[0]).come_back()
    assert current_core() == CORES[0]
    assert os.sched_getaffinity(0) == set(CORES)


def test_a_core_that_is_not_there_holds_no_thread() -> None:
    with WaitingCore(max(CORES) + 1).held():
        assert os.sched_getaffinity(0) == set(CORES)


@pytest.mark.skipif(len(CORES) < 2, reason="there is one core")
def test_cores_that_others_chose_for_a_waiting_thread_stay() -> None:
    with WaitingCore(CORES[0]).held():
        os.sched_setaffinity(0, {CORES[1]})
    assert os.sched_getaffinity(0) == {CORES[1]}
    os.sched_setaffinity(0, CORES)


def test_without_a_core_nothing_is_held() -> None:
    with WaitingCore(None).held():
        assert os.sched_getaffinity(0) == set(CORES)


def test_a_core_that_was_left_holds_no_thread_for_a_while() -> None:
    core = WaitingCore(CORES[0])
    core.leave(1e6)
    core.come_back()
    with core.held():
        assert os.sched_getaffinity(0) == set(CORES)
    core.leave(0.0)
    with core.held():
        assert os.sched_getaffinity(0) == {CORES[0]}
