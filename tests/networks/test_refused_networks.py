"""Networks whose settings or layers do not fit are refused by name."""

from dataclasses import dataclass

import jax
import numpy as np
import pytest
from flax import linen as nn
from gymnasium import spaces

from srl.core.errors import UserError
from srl.networks import CNN, Network

VECTOR = spaces.Box(-1, 1, (3,))
IMAGE = spaces.Box(0, 255, (24, 20, 3), np.uint8)


def test_steps_of_windows_that_leave_pixels_out_are_refused():
    network = CNN(filters=(8,), kernels=(2,), strides=(4,))
    with pytest.raises(UserError, match="a step longer than its window"):
        network.build(IMAGE, 2)


def test_variables_beside_parameters_are_refused_by_name():
    @dataclass(frozen=True)
    class Batchy(Network):
        def features(self, space):
            return nn.Sequential([nn.Dense(4), nn.BatchNorm(use_running_average=True)])

    with pytest.raises(UserError, match="has batch_stats beside parameters") as error:
        Batchy().build(VECTOR, 2).init(jax.random.key(0))
    assert "LayerNorm" in str(error.value)
