"""What happens when a worker process dies, hangs, raises or is stopped."""

import os
import signal

import pytest
from small_roles import Play, after

from srl.errors import UserError, WorkerLost


def kill(name, number=signal.SIGKILL):
    return lambda play: os.kill(play.member(name).process.pid, number)


def fault(name):
    return lambda play: play.fault(name)


def test_workers_register_begin_and_end_in_good_order(tmp_path):
    play = Play(tmp_path).run()
    starts = [play.notes(name)[0] for name in ("actors-0", "actors-1", "learner-0")]
    assert {"actors": 2, "learner": 1} == {k: len(v) for k, v in starts[0]["start"].items()}
    assert starts[0]["start"] == starts[1]["start"] == starts[2]["start"]
    assert [start["agents"] for start in starts] == [["agent"]] * 3
    assert play.notes("learner-0")[-1]["stopped"] == 20
    assert all("stopped" in play.notes(name)[-1] for name in ("actors-0", "actors-1"))
    assert play.told == ""
    assert play.account == []


def test_a_worker_loads_nothing_heavy_before_its_role_does(tmp_path):
    play = Play(tmp_path, updates=1).run()
    assert [play.notes(n)[0]["modules"] for n in ("actors-0", "learner-0")] == [[], []]


def test_a_killed_actor_is_started_again_and_its_peers_learn_its_address(tmp_path):
    play = Play(tmp_path, updates=10**6)
    play.when(after(3), kill("actors-1"))
    play.when(lambda p: len(p.notes("actors-1")) == 2, Play.stop).run()
    assert "actors-1 was killed by SIGKILL; it is started again" in play.told
    assert [note["incarnation"] for note in play.notes("actors-1")][:2] == [0, 1]
    told = [note["peers"]["actors"] for note in play.notes("learner-0") if "peers" in note]
    assert told[0][1] == {}
    assert told[-1][1] == play.notes("actors-1")[1]["start"]["actors"][1]
    assert [n["incarnation"] for n in play.notes("learner-0")] == [0] * len(play.notes("learner-0"))
    assert play.account == ["started again: actors-1, as it was killed by SIGKILL"]


def test_a_killed_learner_goes_on_from_its_checkpoint(tmp_path):
    play = Play(tmp_path, updates=60)
    play.when(after(5), kill("learner-0")).run()
    begun = [note for note in play.notes("learner-0") if "start" in note]
    assert [note["incarnation"] for note in begun] == [0, 1]
    assert play.notes("learner-0")[-1] == {"incarnation": 1, "stopped": 60}
    assert {note["incarnation"] for note in play.notes("actors-0")} == {0}


def test_learners_of_one_fragment_die_and_begin_together(tmp_path):
    from srl.dataflow import plans

    play = Play(tmp_path, plan=plans.replicated(2), updates=10**6, role="either")
    both = lambda p: all(len(p.notes(f"learners-{k}")) == 2 for k in (0, 1))  # noqa: E731
    play.when(after(3), kill("learners-1")).when(both, Play.stop).run()
    assert "it is started again, and with it learners-0" in play.told
    starts = [[n for n in play.notes(f"learners-{k}") if "start" in n][-1] for k in (0, 1)]
    assert [start["incarnation"] for start in starts] == [1, 1]
    assert starts[0]["start"] == starts[1]["start"]


def test_a_hung_worker_is_named_with_its_stack(tmp_path):
    play = Play(tmp_path, updates=10**6, heartbeat_seconds=4)
    play.when(after(1), fault("hang-actors-0"))
    play.when(lambda p: len(p.notes("actors-0")) == 2, Play.stop).run()
    assert "actors-0 has shown no progress for 4 s: it is sleeping; it is killed" in play.told
    assert "in hang" in play.told
    assert "small_roles.py" in play.told


def test_a_stopped_worker_is_named_as_stopped(tmp_path):
    play = Play(tmp_path, updates=10**6, heartbeat_seconds=4)
    play.when(after(1), kill("actors-1", signal.SIGSTOP))
    play.when(lambda p: len(p.notes("actors-1")) == 2, Play.stop).run()
    assert "actors-1 has not been heard of for 4 s: it is stopped by a signal" in play.told


def test_an_exception_reaches_the_terminal_whole_and_at_once(tmp_path, caplog):
    play = Play(tmp_path, updates=10**6)
    play.when(after(1), fault("raise-actors-0"))
    play.when(lambda p: len(p.notes("actors-0")) == 2, Play.stop).run()
    assert "actors-0 failed:\nTraceback" in caplog.text
    assert "in stumble" in caplog.text
    assert "actors-0 raised ValueError: a bug in the simulator; it is started again" in play.told
    assert "in stumble" in play.folder.log("actors-0").read_text()


def test_a_crash_is_told_with_the_line_of_python(tmp_path, caplog):
    play = Play(tmp_path, updates=10**6)
    play.when(after(1), fault("crash-learner-0"))
    play.when(lambda p: p.member("learner-0").gang.incarnation == 1, lambda p: None)
    play.when(after(2), Play.stop).run()
    assert "learner-0 was killed by SIGABRT" in play.told
    assert "Fatal Python error: Aborted" in caplog.text
    assert "in fail" in caplog.text


@pytest.mark.parametrize("when", ["", "-early"])
def test_the_same_exception_three_times_ends_the_run(tmp_path, when):
    play = Play(tmp_path, updates=10**6)
    play.fault(f"raise-actors-1{when}-always")
    with pytest.raises(WorkerLost, match="actors-1 raised the same exception 3 times in a row"):
        play.run()
    assert play.told.count("it is started again") == 2


def test_a_mistake_of_the_users_ends_the_run_with_its_sentence(tmp_path):
    play = Play(tmp_path)
    play.fault("misuse-actors-0-early")
    with pytest.raises(UserError, match=r"^there is no such environment; take another$"):
        play.run()


def test_a_worker_that_dies_again_and_again_ends_the_run(tmp_path):
    play = Play(tmp_path, updates=10**6)
    play.fault("crash-learner-0-early-always")
    with pytest.raises(WorkerLost, match=r"learner-0 died 5 times in a row .* killed by SIGABRT"):
        play.run()


def test_a_stop_lets_the_learner_finish_before_the_actors(tmp_path):
    play = Play(tmp_path, updates=10**6).when(after(3), Play.stop).run()
    assert play.controller.interrupted
    done = play.notes("learner-0")[-1]["stopped"]
    assert done == int((play.folder.path / "checkpoint").read_text())
    assert "stopped" in play.notes("actors-0")[-1]


def test_a_stop_before_the_beginning_ends_at_once(tmp_path):
    play = Play(tmp_path)
    play.fault("hang-actors-0-early")
    play.when(lambda p: p.member("learner-0").addresses is not None, Play.stop).run()
    assert play.controller.interrupted
    assert not play.controller.begun


def test_a_learner_that_hangs_while_it_stops_is_given_up(tmp_path):
    play = Play(tmp_path, updates=10**6, heartbeat_seconds=4)

    def stop_and_freeze(play):
        os.kill(play.member("learner-0").process.pid, signal.SIGSTOP)
        play.stop()

    play.when(after(3), stop_and_freeze).run()
    assert "learner-0 has not been heard of while it was stopping; its log is" in play.told


def test_faults_of_all_kinds_at_once_leave_nothing_behind(tmp_path):
    def things():
        sockets = {line.split()[-1] for line in open("/proc/net/unix") if " @" in line}
        return set(os.listdir("/proc/self/fd")), set(os.listdir("/dev/shm")), sockets

    before = things()
    play = Play(tmp_path, updates=10**6)
    pids = []
    note = lambda p: pids.extend(m.process.pid for m in p.controller._members)  # noqa: E731
    play.when(after(2), note)
    play.when(after(2), kill("actors-0")).when(after(2), fault("raise-actors-1"))
    play.when(after(2), kill("learner-0")).when(lambda p: p.updates < 10**6, note)
    play.when(after(30), note).when(after(30), Play.stop).run()
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    now = things()
    assert now[0] == before[0]
    assert now[1] <= before[1]
    mine = {m.addresses["here"] for m in play.controller._members if m.addresses}
    assert not {f"@{address.removeprefix('unix:')}" for address in mine} & now[2]
