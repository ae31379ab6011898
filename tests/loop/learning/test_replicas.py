"""Replicas of a learner meet, and find out whether their environments are alike."""

import subprocess
import sys

import pytest

from srl.loop.learning.replicas import free_address

MEETING = """
import sys
from dataclasses import replace
from tiny_parts import SPECS
from srl import UserError
from srl.loop.learning.replicas import expect_same_specs, join

address, replica, agent = sys.argv[1:]
join(address, int(replica), 2)
try:
    expect_same_specs(replace(SPECS, agents=(agent,)))
except UserError as error:
    print(error)
else:
    print("alike")
"""


@pytest.fixture
def meet():
    """Runs two replicas whose agents have these names, and returns what each has found."""
    processes = []

    def run(*agents):
        address = free_address()
        for replica, agent in enumerate(agents):
            command = [sys.executable, "-c", MEETING, address, str(replica), agent]
            path = {"PYTHONPATH": ":".join(sys.path), "JAX_PLATFORMS": "cpu"}
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=path)
            processes.append(process)
        return [process.communicate(timeout=120)[0] for process in processes[-2:]]

    yield run
    for process in processes:
        process.kill()
        process.wait()


def test_replicas_with_the_same_environments_go_on(meet):
    assert all(text.endswith("alike\n") for text in meet("one", "one"))


def test_replicas_with_different_environments_are_refused_by_each(meet):
    found = meet("one", "other")
    assert all("made other environments than each other" in text for text in found)
