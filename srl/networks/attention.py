"""Multi-head attention among a few entities: on CPUs one call of C++, and one for its gradient.

XLA makes many products of it that are too small to be fast, and compiles them for seconds.
"""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from srl.core.types import Array
from srl.networks.cnn_features import traced_for_gpu
from srl.system.native_module import register_xla_calls


def attention(inputs: Array, mask: Array, heads: int) -> Array:
    """Lets each entity look at those of a mask (Vaswani et al., 2017).

    On CPUs derivatives of float32 are the first, in reverse: no `jvp`, and none of derivatives.

    Args:
        inputs: [..., entities, 3 * width], the queries, keys and values, each those of all heads.
        mask: bool [..., entities], the entities to look at; without any, all have equal weights.
        heads: The number of heads, which share the width.

    Returns:
        [..., entities, width].
    """
    known = all(isinstance(length, int) for length in inputs.shape)
    if inputs.dtype != jnp.float32 or not known or traced_for_gpu():
        return attention_of_jax(inputs, mask, heads)
    register_xla_calls()
    return _attention(inputs, mask, heads)


def attention_of_jax(inputs: Array, mask: Array, heads: int) -> Array:
    """Gives what `attention` does, by JAX's functions: on GPUs, and for graphs of any batch."""
    size = inputs.shape[-1] // (3 * heads)
    # One product for each head: on CPU several times faster than one over an axis of heads.
    parts = jnp.split(inputs, 3 * heads, axis=-1)
    queries, keys, values = (parts[i * heads : (i + 1) * heads] for i in range(3))
    attended = []
    for query, key, value in zip(queries, keys, values, strict=True):
        scores = query @ key.swapaxes(-1, -2) / math.sqrt(size)
        scores = jnp.where(mask[..., None, :], scores, jnp.finfo(scores.dtype).min)
        attended.append(jax.nn.softmax(scores) @ value)
    return jnp.concatenate(attended, axis=-1)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _attention(inputs: Array, mask: Array, heads: int) -> Array:
    return _forward(inputs, mask, heads)[0]


def _forward(inputs: Array, mask: Array, heads: int) -> tuple[Array, tuple[Array, ...]]:
    *leading, entities, numbers = inputs.shape
    results = (
        jax.ShapeDtypeStruct((*leading, entities, numbers // 3), jnp.float32),
        jax.ShapeDtypeStruct((*leading, heads, entities, entities), jnp.float32),
    )
    call = jax.ffi.ffi_call("srl_attention", results, vmap_method="broadcast_all")
    attended, weights = call(inputs, mask, heads=np.int64(heads))
    return attended, (inputs, mask, weights)


def _backward(heads: int, kept: tuple[Array, ...], gradient: Array) -> tuple[Array, None]:
    result = jax.ShapeDtypeStruct(kept[0].shape, jnp.float32)
    call = jax.ffi.ffi_call("srl_attention_gradient", result, vmap_method="broadcast_all")
    return call(*kept, gradient, heads=np.int64(heads)), None


_attention.defvjp(_forward, _backward)
