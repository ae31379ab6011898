"""Attention among entities: the calls of C++ and JAX's functions agree, whatever the program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from srl.networks import attention as attention_module
from srl.networks.attention import attention, attention_of_jax
from srl.networks.entity_attention_features import CircularConvolution


def case(*leading, entities=7, width=32, seed=0):
    """Inputs, a mask with a row of none, and derivatives by the outputs."""
    random = np.random.default_rng(seed)
    inputs = random.normal(size=(*leading, entities, 3 * width)).astype(np.float32)
    mask = random.random((*leading, entities)) < 0.6
    mask.reshape(-1, entities)[:1] = False
    gradient = random.normal(size=(*leading, entities, width)).astype(np.float32)
    return inputs, mask, gradient


def both(function, heads):
    """The outputs and the derivatives by the inputs, for derivatives by the outputs."""

    def computed(inputs, mask, gradient):
        outputs, derivative = jax.vjp(lambda x: function(x, mask, heads), inputs)
        return outputs, derivative(gradient)[0]

    return jax.jit(computed)


def close(actual, expected):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=3e-6), actual, expected
    )


@pytest.mark.parametrize(
    ("leading", "entities", "width", "heads"),
    [((300,), 7, 32, 2), ((2, 5), 18, 20, 4), ((), 1, 3, 3), ((0,), 4, 8, 2)],
)
def test_outputs_and_derivatives_are_those_of_jax(leading, entities, width, heads):
    inputs = case(*leading, entities=entities, width=width)
    close(both(attention, heads)(*inputs), both(attention_of_jax, heads)(*inputs))


def test_an_entity_that_none_looks_at_has_no_derivatives_of_scores():
    inputs, mask, gradient = case(4)
    _, derivative = both(attention, 2)(inputs, mask, gradient)
    queries, keys, values = np.split(derivative, 3, axis=-1)
    assert not mask[0].any()
    assert not queries[0].any()
    assert not keys[0].any()
    assert np.abs(values[0]).min() > 0
    assert not keys[~mask].any()


def test_mapped_looped_and_differentiated_programs_agree():
    inputs, mask, gradients = case(3, 5)
    expected = both(attention_of_jax, 2)
    close(jax.vmap(both(attention, 2))(inputs, mask, gradients), expected(inputs, mask, gradients))
    # Over derivatives alone, as in a Jacobian: an array of the call has no axis of these.
    _, derivative = jax.vmap(both(attention, 2), (None, None, 0))(inputs[0], mask[0], gradients)
    close(derivative[2], expected(inputs[0], mask[0], gradients[2])[1])

    def descended(function):
        def step(x, _):
            change = jax.grad(lambda x: jnp.sum(function(x, mask, 2) ** 2))(x)
            return x - 0.1 * change, jnp.sum(change)

        return jax.jit(lambda x: jax.lax.scan(step, x, length=3))(inputs)[0]

    close(descended(attention), descended(attention_of_jax))


def test_a_row_has_the_same_bits_among_any_others():
    """Rows are divided among vectors and threads, of which results know nothing."""
    inputs = case(1000)
    together = both(attention, 2)(*inputs)
    some = both(attention, 2)(*(x[495:508] for x in inputs))
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[495:508], b), together, some)


def test_numbers_that_are_none_stay_so():
    inputs, mask, _ = case(3)
    mask[:] = True
    inputs[1, 2, 5], inputs[2, 0, 40] = np.nan, np.inf
    outputs = attention(inputs, mask, 2)
    assert np.isfinite(outputs[0]).all()
    assert np.isnan(outputs[1, 2]).any()
    assert np.isnan(outputs[2]).any()


def test_gpus_other_dtypes_and_graphs_of_any_batch_take_functions_of_jax(monkeypatch):
    inputs, mask, _ = case(2)

    def calls(x):
        return "ffi_call" in str(jax.make_jaxpr(lambda x: attention(x, mask[: len(x)], 2))(x))

    assert calls(inputs)
    assert not calls(jax.ShapeDtypeStruct(inputs.shape, jnp.bfloat16))
    (batch,) = jax.export.symbolic_shape("batch")
    shapes = (jax.ShapeDtypeStruct((batch, *x.shape[1:]), x.dtype) for x in (inputs, mask))
    exported = jax.export.export(jax.jit(lambda x, m: attention(x, m, 2)))(*shapes)
    close(exported.call(inputs, mask), attention(inputs, mask, 2))
    monkeypatch.setattr(attention_module, "traced_for_gpu", lambda: True)
    assert not calls(inputs)


def test_arrays_that_do_not_fit_are_refused():
    inputs, mask, _ = case(2)
    for wrong, words in ((mask[:, 1:], "mask has another shape"), (mask, "do not divide")):
        with pytest.raises(jax.errors.JaxRuntimeError, match=words):
            jax.block_until_ready(attention(inputs, wrong, 2 if wrong is not mask else 5))


@pytest.mark.parametrize(("rays", "channels"), [(5, 1), (30, 2), (100, 1)])
def test_a_ray_is_filtered_with_its_neighbours_around_a_circle(rays, channels):
    layer = CircularConvolution(9)
    x = np.random.default_rng(0).normal(size=(4, rays, channels)).astype(np.float32)
    params = layer.init(jax.random.key(0), x)
    weights = {name: np.array(each) for name, each in params["params"]["filters"].items()}
    weights["bias"] += np.arange(9)
    patches = np.stack([np.roll(x, shift, axis=1) for shift in (1, 0, -1)], axis=2)
    expected = patches.reshape(4, rays, -1) @ weights["kernel"] + weights["bias"]
    actual = layer.apply({"params": {"filters": weights}}, x)
    np.testing.assert_allclose(actual, np.maximum(expected, 0).reshape(4, -1), atol=1e-5)
