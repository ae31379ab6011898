"""Recurrent layers: they are those of the literature, and remember from the start."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from gymnasium import spaces

from srl.networks import MLP
from srl.networks.heads import LongShortTermMemory

KEY = jax.random.key(0)


def test_long_short_term_memory_is_that_of_flax():
    units, rows = 5, np.random.default_rng(0).normal(size=(6, 2, 3)).astype(np.float32)
    layer, start = LongShortTermMemory(units), jnp.full((2, 2 * units), 0.3)
    params = layer.init(KEY, rows, start, jnp.zeros((6, 2), bool))["params"]
    kernels, biases = (np.split(params["inputs"][x], 4, axis=-1) for x in ("kernel", "bias"))
    theirs = {}
    for gate, other, kernel, own in zip(
        ("input", "forget", "new", "output"), "ifgo", kernels, biases, strict=True
    ):
        bias = own + (1.0 if gate == "forget" else 0.0)
        theirs[f"i{other}"] = {"kernel": kernel}
        theirs[f"h{other}"] = {"kernel": params[gate], "bias": bias}
    carry = (start[:, units:], start[:, :units])
    expected = []
    for row in rows:
        carry, output = nn.LSTMCell(units).apply({"params": theirs}, carry, row)
        expected.append(output)
    actual, memories = layer.apply({"params": params}, rows, start, jnp.zeros((6, 2), bool))
    np.testing.assert_allclose(memories[1:, :, :units], expected, atol=1e-6)
    normalized = nn.LayerNorm().apply({"params": params["LayerNorm_0"]}, jnp.stack(expected))
    np.testing.assert_allclose(actual, normalized, atol=1e-5)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_some_units_remember_from_the_start_what_was_seen_long_ago(cell):
    built = MLP(width=8, memory=16, cell=cell).build(spaces.Box(-1, 1, (3,)), 2)
    policy, params = jax.jit(built.policy), built.init(KEY)["policy"]
    rows = np.zeros((60, 2, 3), np.float32)
    rows[0] = [[1.0], [-1.0]]  # two slots that see the same but for the first row
    memory = built.initial_memory(2)
    for row in rows:
        _, memory = policy(params, row, memory)
    assert np.abs(memory[0] - memory[1]).max() > 1e-3


def test_a_layer_after_memory_sees_what_is_observed_now():
    built = MLP(width=8, memory=16, after_memory=4).build(spaces.Box(-1, 1, (3,)), 2)
    params = built.init(KEY)["policy"]
    assert params["after_memory"]["kernel"].shape == (8 + 16, 4)
    # Units that forget after 1, ..., 100 steps: without the layer, as few of 4 steps as of 97.
    keep = params["memory"]["inputs"]["bias"][16:32]
    np.testing.assert_allclose(np.diff(keep), np.log(100) / 15, rtol=1e-4)
