"""A learner of tiny networks, and what acts for it, compiled once for each file."""

import pytest
from tiny_parts import SPECS, TINY

from srl.loop.acting.local_acting import compiled_act
from srl.loop.learning.learner import Learner


@pytest.fixture(scope="module")
def learner():
    return Learner(TINY, SPECS)


@pytest.fixture(scope="module")
def act(learner):
    return compiled_act(learner.policy_set)
