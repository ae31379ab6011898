"""Streams between hosts whose cables are cut and whose power is lost."""

import subprocess
import sys
import time
from pathlib import Path

from hosts import SECONDS

from srl.streams.transport.keys import create_keys

END = Path(__file__).with_name("stream_end.py")


class Talk:
    """A host that listens, and others that send it messages."""

    def __init__(self, folder, listening):
        self.folder = folder
        create_keys(folder)
        with (folder / "told").open("w") as told:
            self.listener = listening.popen(
                sys.executable, END, folder, stdout=subprocess.PIPE, stderr=told
            )
        self.address = self.listener.line()
        assert listening.address in self.address

    def join(self, host, sender, folder=None):
        """A process that talks from a host, with the run's keys or those in another folder."""
        command = [sys.executable, END, folder or self.folder, self.address, sender]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return host.popen(*command, **pipes)

    def joined(self, host, sender):
        """A process that the listener has heard of."""
        process = self.join(host, sender)
        assert self.listener.line() == f"{sender} joined"
        return process


def say(process):
    process.stdin.write("say\n")
    process.stdin.flush()


def test_a_cut_is_noticed_at_both_ends_and_healed_by_a_new_incarnation(hosts, tmp_path):
    listening, cut_off, other = hosts(3)
    talk = Talk(tmp_path, listening)
    first, second = talk.joined(cut_off, 1), talk.joined(other, 2)
    say(first)
    assert talk.listener.line() == "1 0"
    assert first.line() == "0"
    cut_off.cut()
    say(first)
    assert first.line() == "disconnected"
    assert talk.listener.line() == "1 left"
    say(second)  # which feels nothing of that
    assert talk.listener.line() == "2 0"
    assert second.line() == "0"
    cut_off.heal()
    assert talk.listener.line() == "1 joined"
    assert talk.listener.line() == "1 1"
    assert first.line() == "1"


def test_all_that_is_said_over_a_loose_cable_is_answered_in_order(hosts, tmp_path):
    listening, talking = hosts(2)
    talk = Talk(tmp_path, listening)
    process = talk.joined(talking, 1)
    for number in range(3):
        talking.cut()
        say(process)
        talking.heal()
        while (line := process.line()) == "disconnected":  # where the machine is very slow
            pass
        assert line == str(number)


def test_a_peer_whose_host_loses_power_has_left_and_comes_back(hosts, tmp_path):
    listening, lost = hosts(2)
    talk = Talk(tmp_path, listening)
    talk.joined(lost, 1)
    lost.power_off()
    assert talk.listener.line() == "1 left"
    lost.power_on()
    process = talk.joined(lost, 1)
    say(process)
    assert process.line() == "0"


def test_a_stranger_of_another_host_is_refused_and_named(hosts, tmp_path):
    listening, talking, strange = hosts(3)
    talk = Talk(tmp_path, listening)
    process = talk.joined(talking, 1)
    (tmp_path / "other").mkdir()
    create_keys(tmp_path / "other")
    for _ in range(10):  # one that has left before the listener looks at it has no address
        stranger = talk.join(strange, 1, tmp_path / "other")
        assert "keys" in stranger.communicate(timeout=SECONDS)[1]
        if strange.address in (tmp_path / "told").read_text():
            break
    say(process)
    assert talk.listener.line() == "1 0"
    assert process.line() == "0"
    assert strange.address in (tmp_path / "told").read_text()


def test_a_stream_to_a_host_far_away_works(hosts, tmp_path):
    listening, far = hosts(2)
    far.delay(10)
    talk = Talk(tmp_path, listening)
    process = talk.joined(far, 1)
    began = time.monotonic()
    for number in range(5):
        say(process)
        assert process.line() == str(number)
    assert time.monotonic() - began >= 5 * 0.020
