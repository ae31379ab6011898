"""What happens when a worker process dies, hangs, raises or is stopped."""

import contextlib
import logging
import os
import re
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from small_roles import Play, again, working

from srl.core.errors import RunError, UserError, WorkerLost
from srl.dataflow import plans
from srl.dataflow.plan import Fragment, Plan

PAIR = plans.inline(actors=1)
ENDLESS = 10**6


def kill(name, number=signal.SIGKILL):
    return lambda play: os.kill(play.member(name).process.pid, number)


def fault(name):
    return lambda play: play.fault(name)


def note_processes(play):
    play.processes += [m.process.pid for m in play.controller._members]


def left_over():
    """What a run could leave in this process or on this machine."""
    sockets = re.findall(r"@\w+$", Path("/proc/net/unix").read_text(), re.MULTILINE)
    return set(os.listdir("/proc/self/fd")), set(os.listdir("/dev/shm")), set(sockets)


def test_the_updates_of_a_run_are_known_from_the_learners_beats(tmp_path):
    play = Play(tmp_path, updates=ENDLESS)
    made = []

    def stop(play):
        made.append(play.member("learner-0").updates)
        play.stop()

    play.when(lambda play: play.member("learner-0").updates, stop).run()
    assert 0 < made[0] <= play.updates


@pytest.fixture(scope="module")
def troubled(tmp_path_factory):
    """A run that every kind of trouble befell, one after the other."""
    play = Play(tmp_path_factory.mktemp("troubled"), updates=ENDLESS, heartbeat_seconds=4)
    play.processes, play.before, errors = [], left_over(), []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: errors.append(record.getMessage())
    logging.getLogger("srl").addHandler(handler)
    play.when(working, note_processes).when(working, kill("actors-1"))
    play.when(again("actors-1"), fault("raise-actors-0"))
    play.when(again("actors-0"), kill("learner-0"))
    play.when(again("learner-0"), note_processes)
    play.when(working, fault("crash-learner-0"))
    play.when(again("learner-0", 2), fault("hang-actors-0"))
    play.when(working, kill("actors-1", signal.SIGSTOP))
    play.when(again("actors-1", 2), lambda play: None)
    play.when(again("actors-0", 2), note_processes).when(working, Play.stop).run()
    logging.getLogger("srl").removeHandler(handler)
    play.errors = "\n".join(errors)
    return play


def begun(play, name):
    return [note for note in play.notes(name) if "start" in note]


def test_workers_register_begin_and_end_in_good_order(tmp_path):
    play = Play(tmp_path).run()
    starts = [play.notes(name)[0] for name in ("actors-0", "actors-1", "learner-0")]
    assert {"actors": 2, "learner": 1} == {k: len(v) for k, v in starts[0]["start"].items()}
    assert starts[0]["start"] == starts[1]["start"] == starts[2]["start"]
    assert [start["agents"] for start in starts] == [["agent"]] * 3
    assert [start["modules"] for start in starts] == [[]] * 3  # nothing heavy before a role asks
    assert play.notes("learner-0")[-1]["stopped"] == 20
    assert all("stopped" in play.notes(name)[-1] for name in ("actors-0", "actors-1"))
    assert play.told == ""
    assert play.account == [
        "unrolls: 40 produced = 20 learned + 0 in flight + 20 lost + 0 rolled back"
    ]


def test_a_killed_actor_is_started_again(troubled):
    assert "actors-1 was killed by SIGKILL; it is started again" in troubled.told
    assert [note["incarnation"] for note in begun(troubled, "actors-1")] == [0, 1, 2]


def test_peers_learn_that_a_worker_has_died_and_where_its_next_process_is(troubled):
    told = [note["peers"]["actors"] for note in troubled.notes("learner-0") if "peers" in note]
    assert told[0][1] == {}
    assert told[1] == begun(troubled, "actors-1")[1]["start"]["actors"]


def test_a_killed_learner_goes_on_from_its_checkpoint(troubled):
    starts = begun(troubled, "learner-0")
    assert [note["incarnation"] for note in starts] == [0, 1, 2]
    assert 0 == starts[0]["done"] < starts[1]["done"] < starts[2]["done"]


def test_an_exception_reaches_the_terminal_whole(troubled):
    assert "actors-0 failed:\nTraceback" in troubled.errors
    assert "in stumble" in troubled.errors
    assert (
        "actors-0 raised ValueError: a bug in the simulator; it is started again" in troubled.told
    )
    assert "in stumble" in troubled.folder.log("actors-0").read_text()


def test_a_crash_is_told_with_the_line_of_python(troubled):
    assert "learner-0 was killed by SIGABRT; it is started again" in troubled.told
    assert "Fatal Python error: Aborted" in troubled.errors
    assert "in fail" in troubled.errors


def test_a_hung_worker_is_named_with_its_stack(troubled):
    limit = r"--heartbeat-seconds allows \S+ s"
    text = rf"actors-0 has shown no progress for \d+ s: it is sleeping, and {limit}; it is killed\n"
    assert re.search(text, troubled.told)
    assert "in hang" in troubled.told


def test_a_stopped_worker_is_named_as_stopped(troubled):
    assert re.search(r"actors-1 has not been heard of .* stopped by a signal", troubled.told)


def test_a_learner_that_gets_no_processor_for_less_than_the_limit_goes_on_as_if_nothing_was(
    tmp_path,
):
    play = Play(tmp_path, PAIR, updates=ENDLESS, heartbeat_seconds=12)

    def silent(play):  # for longer than the least limit that an option can set
        return time.monotonic() - play.member("learner-0").heard > 5

    play.when(working, kill("learner-0", signal.SIGSTOP))
    play.when(silent, kill("learner-0", signal.SIGCONT))
    play.when(lambda play: not silent(play), Play.stop).run()
    assert play.account[0].startswith("unrolls: ")
    assert [note["incarnation"] for note in begun(play, "learner-0")] == [0]


def test_what_was_started_again_is_told_at_the_end(troubled):
    assert "started again: actors-1, as it was killed by SIGKILL" in troubled.account
    assert "started again: learner-0, as it was killed by SIGABRT" in troubled.account
    assert len(troubled.account) == 7


def test_the_account_of_unrolls_outlives_learners(troubled):
    words = re.findall(r"\d+", troubled.account[-1].replace(",", ""))
    produced, learned, in_flight, lost, rolled_back = map(int, words)
    assert produced == learned + in_flight + lost + rolled_back
    assert in_flight == 0
    assert learned == troubled.notes("learner-0")[-1]["stopped"]
    assert learned > begun(troubled, "learner-0")[-1]["done"] > 0


def test_an_account_that_does_not_add_up_ends_the_run_with_one_error(tmp_path):
    play = Play(tmp_path, PAIR, updates=ENDLESS)
    play.when(working, fault("miscount-learner-0"))
    text = (
        r"of learner 0 does not add up: (\d+) produced, but (\d+) learned \+ 0 in flight \+ \2 lost"
    )
    with pytest.raises(RunError, match=text):
        play.run()
    assert len(begun(play, "learner-0")) == 1
    assert "Traceback" not in play.told


def test_trouble_leaves_no_process_descriptor_memory_or_socket(troubled):
    assert len(set(troubled.processes)) >= 7
    assert not [pid for pid in troubled.processes if os.path.exists(f"/proc/{pid}")]
    descriptors, shared, sockets = left_over()
    assert descriptors <= troubled.before[0]
    assert not {name for name in shared - troubled.before[1] if name.startswith("srl")}
    addresses = re.findall(r"unix:(\w+)", str(begun(troubled, "learner-0")))
    assert addresses
    assert not {f"@{address}" for address in addresses} & sockets


def test_learners_of_one_fragment_die_and_begin_together(tmp_path):
    play = Play(tmp_path, plan=plans.replicated(2), updates=ENDLESS)
    play.when(working, kill("learners-1")).when(again("learners-0"), Play.stop).run()
    assert "it is started again, and with it learners-0" in play.told
    starts = [begun(play, f"learners-{k}")[-1] for k in (0, 1)]
    assert [start["incarnation"] for start in starts] == [1, 1]
    assert starts[0]["start"] == starts[1]["start"]


@pytest.mark.parametrize("when", ["", "-early"])
def test_the_same_exception_three_times_ends_the_run(tmp_path, when):
    play = Play(tmp_path, PAIR, updates=ENDLESS)
    play.fault(f"raise-actors-0{when}-always")
    with pytest.raises(WorkerLost, match="actors-0 raised the same exception 3 times in a row"):
        play.run()
    assert play.told.count("it is started again") == 2


def test_a_run_that_gives_up_an_actor_keeps_what_the_learner_has_learned(tmp_path):
    play = Play(tmp_path, PAIR, updates=ENDLESS)
    play.when(working, fault("raise-actors-0-always"))
    with pytest.raises(WorkerLost, match="actors-0 raised the same exception 3 times in a row"):
        play.run()
    assert "actors-0 is given up; the run ends after a checkpoint" in play.told
    done = play.notes("learner-0")[-1]["stopped"]
    assert done == int((play.folder.path / "checkpoint").read_text())


def test_deaths_of_actors_while_the_only_policy_worker_compiles_do_not_end_the_run(tmp_path):
    play = Play(tmp_path, plans.decoupled(actors=1, policies=1), updates=ENDLESS)
    play.when(working, fault("compile-policies-0")).when(working, fault("compile-actors-0"))
    play.when(working, kill("policies-0"))
    for death in range(10):
        play.when(partial(has_begun_again, death), kill("actors-0"))
    play.when(lambda play: True, lambda play: compiled(play, "policies-0", "actors-0"))
    play.when(again("actors-0", 10), Play.stop).run()
    assert "started again: actors-0, as it was killed by SIGKILL (10 times)" in play.account


INLINE = {"actors": "step act collect", "teacher": "teach", "learner": "learn"}
CENTRAL = {"actors": "step collect", "policies": "act", "teacher": "teach", "learner": "learn"}


@pytest.mark.parametrize(
    ("nodes", "died", "awaited"),
    [
        (INLINE, "actors", {"learner", "teacher"}),
        (INLINE, "teacher", set()),
        (INLINE, "learner", set()),
        (CENTRAL, "actors", {"learner", "policies", "teacher"}),
        (CENTRAL, "policies", {"learner"}),
        (CENTRAL, "teacher", set()),
        ({"actors": "step teach", "learner": "act collect learn"}, "actors", {"learner"}),
    ],
)
def test_deaths_count_unless_a_worker_that_is_waited_for_is_not_ready(
    tmp_path, nodes, died, awaited
):
    fragments = {name: Fragment(tuple(own.split())) for name, own in nodes.items()}
    play = Play(tmp_path, Plan("placed", fragments))
    with contextlib.closing(play.controller):
        play.controller.begun = True
        for absent in fragments.keys() - {died}:
            for member in play.controller._members:
                there = member.fragment not in (died, absent)
                member.process = object() if there else None
                member.beat = {"grown": {"steps": 1}} if there else {}
            dead = play.member(f"{died}-0")
            assert play.controller._could_progress(dead) is (absent not in awaited), absent


def has_begun_again(deaths, play):
    """Whether the actor has been started again so often, and the policy worker has died."""
    actor = play.member("actors-0")
    died = play.member("policies-0").gang.incarnation == 1
    return died and actor.process is not None and actor.gang.incarnation == deaths


def compiled(play, *names):
    for name in names:
        (play.folder.path / f"compile-{name}").unlink()


def test_a_worker_that_lost_its_peer_is_started_again_without_a_traceback(tmp_path, caplog):
    play = Play(tmp_path, PAIR, updates=ENDLESS)
    for times in range(3):
        play.when(again("actors-0", times), fault("lose-actors-0"))
    play.when(again("actors-0", 3), Play.stop).run()
    assert play.account[0] == "started again: actors-0, as it lost a peer (3 times)"
    assert "Traceback" not in caplog.text


def test_a_mistake_of_the_users_ends_the_run_with_its_sentence(tmp_path):
    play = Play(tmp_path, PAIR)
    play.fault("misuse-actors-0-early")
    with pytest.raises(UserError, match=r"^there is no such environment; take another$"):
        play.run()


def test_a_worker_that_dies_again_and_again_ends_the_run(tmp_path):
    play = Play(tmp_path, PAIR)
    play.fault("crash-learner-0-early-always")
    with pytest.raises(WorkerLost, match=r"learner-0 died 5 times in a row .* killed by SIGABRT"):
        play.run()


def test_a_stop_lets_the_learner_finish_before_the_actors(tmp_path):
    play = Play(tmp_path, PAIR, updates=ENDLESS).when(working, Play.stop).run()
    assert play.controller.interrupted
    done = play.notes("learner-0")[-1]["stopped"]
    assert done == int((play.folder.path / "checkpoint").read_text())
    assert "stopped" in play.notes("actors-0")[-1]


def test_a_stop_before_the_beginning_ends_at_once(tmp_path):
    play = Play(tmp_path, PAIR)
    play.fault("hang-actors-0-early")
    play.when(lambda p: p.member("learner-0").addresses is not None, Play.stop).run()
    assert play.controller.interrupted
    assert not play.controller.begun


def test_a_learner_that_hangs_while_it_stops_is_given_up(tmp_path):
    play = Play(tmp_path, PAIR, updates=ENDLESS, heartbeat_seconds=3)
    play.when(working, kill("learner-0", signal.SIGSTOP)).when(lambda p: True, Play.stop).run()
    assert "learner-0 has not been heard of while it was stopping; its log is" in play.told
