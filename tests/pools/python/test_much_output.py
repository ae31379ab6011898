"""An environment in a worker process may write any amount of output."""

import os

import numpy as np
from peculiar_envs import Unseen

from srl import make_pool


class Talkative(Unseen):
    """Writes more to standard error than a pipe holds, and renders."""

    def render(self):
        os.write(2, b"talk\n" * 40_000)
        return np.zeros((4, 4, 3), np.uint8)


def test_an_environment_that_writes_much_while_it_renders_gives_its_picture(capfd):
    with make_pool(Talkative, 1, workers=1, step_timeout=60) as pool:
        pool.reset(seed=0)
        assert pool.render(0).shape == (4, 4, 3)
    assert "talk\n" in capfd.readouterr().err
