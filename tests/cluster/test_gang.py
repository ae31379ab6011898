"""Learners on several hosts, which add up over the network and end together."""

import subprocess
import sys
from pathlib import Path

import pytest
from watching import family, listening

from srl.loop.learning.replicas import HEARTBEAT_SECONDS

MEMBER = Path(__file__).with_name("gang_member.py")
MARGIN_SECONDS = 60
"""For a machine that has other things to do."""


@pytest.fixture
def gang(hosts):
    """Two hosts, and a learner on each that has added to the other's."""
    places = hosts(2)
    address = f"{places[0].address}:7000"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    members = [
        host.popen(sys.executable, MEMBER, address, replica, 2, host.address, **pipes)
        for replica, host in enumerate(places)
    ]
    for member in members:
        while (line := member.line(MARGIN_SECONDS)) != "3":  # Gloo tells more
            assert line is not None
    return places, members


def ended(member):
    member.communicate(timeout=HEARTBEAT_SECONDS + MARGIN_SECONDS)
    return member.returncode != 0


def test_learners_listen_at_the_addresses_of_their_own_hosts_alone(gang):
    places, members = gang
    found = [set().union(*map(listening, family(member.pid))) for member in members]
    assert found == [{place.address} for place in places]


def test_the_death_of_the_first_learner_ends_the_others(gang):
    _, (first, second) = gang
    first.kill()
    assert ended(second)


def test_the_death_of_another_learner_fails_the_next_sum(gang):
    _, (first, second) = gang
    second.kill()
    assert any("Gloo" in line and "failed" in line for line in first.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_power_loss_under_one_learner_ends_the_other(gang, lost):
    places, members = gang
    places[lost].power_off()
    assert ended(members[1 - lost])
