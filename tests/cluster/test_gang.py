"""Learners on several hosts, which add up over the network and end together."""

import subprocess
import sys
from pathlib import Path

import pytest

from srl.workers.replicas import HEARTBEAT_SECONDS

MEMBER = Path(__file__).with_name("gang_member.py")
MARGIN_SECONDS = 60
"""For a machine that has other things to do."""


@pytest.fixture
def gang(hosts):
    """Two hosts, and a learner on each that has added to the other's."""
    places = hosts(2)
    address = f"{places[0].address}:7000"
    members = [
        host.popen(sys.executable, MEMBER, address, replica, 2, stdout=subprocess.PIPE)
        for replica, host in enumerate(places)
    ]
    assert all("3\n" in member.stdout for member in members)  # among what Gloo tells
    return places, members


@pytest.mark.parametrize("lost", [0, 1])
def test_the_death_of_one_learner_ends_the_other(gang, lost):
    _, members = gang
    members[lost].kill()
    members[1 - lost].communicate(timeout=HEARTBEAT_SECONDS + MARGIN_SECONDS)
    assert members[1 - lost].returncode != 0


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_power_loss_under_one_learner_ends_the_other(gang, lost):
    places, members = gang
    places[lost].power_off()
    members[1 - lost].communicate(timeout=HEARTBEAT_SECONDS + MARGIN_SECONDS)
    assert members[1 - lost].returncode != 0
