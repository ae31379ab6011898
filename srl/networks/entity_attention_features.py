"""The flax modules of the attention over entities (Baker et al., 2020, appendix B)."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from srl.core.spaces import Space
from srl.core.tree import leaves_of
from srl.core.types import Array, Tree
from srl.networks.attention import attention
from srl.networks.entities import (
    entity_sets,
    is_lidar,
    module_name,
    named_leaves,
    own_leaves,
)
from srl.networks.layers import HIDDEN_SCALE, DenseWeights, dense, normal, vectors

MOST_RAYS = 64
"""Rays up to which a convolution is a product with a matrix over all of them."""


class EntityAttentionFeatures(nn.Module):
    """Embeds entities, lets them attend to each other, and pools them."""

    space: Space
    width: int
    heads: int
    lidar_filters: int
    omniscient: bool

    @nn.compact
    def __call__(self, observation: Tree) -> Array:
        """Gives [..., 2 * width]."""
        leaves, sets = named_leaves(self.space), entity_sets(self.space)
        first, value = next(iter(leaves.values())), leaves_of(observation)[0]
        leading = value.shape[: value.ndim - len(first.shape or ())]
        rows = math.prod(leading)
        values = {
            name: jnp.asarray(value).reshape(rows, *value.shape[len(leading) :])
            for name, value in zip(leaves, leaves_of(observation), strict=True)
        }
        own = self._own(values)
        embeddings = {name: EntityEmbedding(self.width, name=module_name(name)) for name in sets}
        weights = [DenseWeights(self.width, HIDDEN_SCALE, name="self")(own.shape[-1])]
        weights += [embedding.weights_of_self(own.shape[-1]) for embedding in embeddings.values()]
        of_self, *of_sets = joined_products(own, weights)
        embedded_self = nn.relu(of_self)
        entities, masks = [embedded_self[:, None]], [jnp.ones((rows, 1), bool)]
        for (name, (seen, taken)), of_set in zip(sets.items(), of_sets, strict=True):
            x = values[name].astype(jnp.float32)
            entities.append(embeddings[name](of_set, x))
            mask = taken if self.omniscient else seen
            masks.append(values[mask] > 0.5 if mask else jnp.ones(x.shape[:2], bool))
        x, mask = jnp.concatenate(entities, axis=1), jnp.concatenate(masks, axis=1)

        x = nn.LayerNorm()(x + EntitySelfAttention(self.heads)(nn.LayerNorm()(x), mask))
        weight = mask[..., None].astype(x.dtype)
        pooled = jnp.sum(x * weight, axis=1) / (jnp.sum(weight, axis=1) + 1e-5)

        x = nn.LayerNorm()(jnp.concatenate([embedded_self, pooled], axis=-1))
        x = nn.LayerNorm()(nn.relu(dense(2 * self.width, HIDDEN_SCALE, name="after_pooling")(x)))
        return x.reshape(*leading, 2 * self.width)

    def _own(self, values: dict[str, Array]) -> Array:
        """Joins the agent's own numbers, filtered rays last: [rows, features]."""
        parts, rays = [], []
        for name, leaf in own_leaves(self.space).items():
            if is_lidar(name, leaf):
                filtered = CircularConvolution(self.lidar_filters)
                rays.append(filtered(values[name].astype(jnp.float32)))
            else:
                parts += vectors(leaf, values[name])
        if not parts and not rays:  # an agent without numbers
            return jnp.ones((next(iter(values.values())).shape[0], 1))
        return jnp.concatenate([*parts, *rays], axis=-1)


def joined_products(x: Array, weights: list[tuple[Array, Array]]) -> list[Array]:
    """Gives x @ kernel + bias for several kernels and biases, by one product."""
    kernels, biases = zip(*weights, strict=True)
    ends = np.cumsum([bias.size for bias in biases])[:-1]
    return jnp.split(x @ jnp.concatenate(kernels, axis=1) + jnp.concatenate(biases), ends, axis=1)


class CircularConvolution(nn.Module):
    """A convolution of 3 rays over a circle of them, as one matrix product.

    A few rays are multiplied by a matrix that has zeros between rays that are no neighbours: the
    product of all patches by a small kernel takes longer, as copies and narrow products are slow.
    """

    filters: int

    @nn.compact
    def __call__(self, rays: Array) -> Array:
        """Takes [rows, rays, channels], gives [rows, rays * filters]."""
        rays = rays.reshape(*rays.shape[:2], -1)
        rows, number, channels = rays.shape
        weights = DenseWeights(self.filters, HIDDEN_SCALE, name="filters")
        kernel, bias = weights(3 * channels)
        if number <= MOST_RAYS:
            own, size = np.eye(number, dtype=np.float32), number * self.filters
            # By neighbour, from each ray to each ray.
            places = np.stack([np.roll(own, shift, axis=1) for shift in (1, 0, -1)])
            matrix = jnp.einsum("nij,ncf->icjf", places, kernel.reshape(3, channels, self.filters))
            flat = rays.reshape(rows, number * channels) @ matrix.reshape(-1, size)
            return nn.relu(flat + jnp.tile(bias, number))
        neighbours = [jnp.roll(rays, 1, axis=1), rays, jnp.roll(rays, -1, axis=1)]
        patches = jnp.concatenate(neighbours, axis=-1)
        return nn.relu(patches @ kernel + bias).reshape(rows, -1)


class EntityEmbedding(nn.Module):
    """A dense layer over (self, entity), shared by the entities of a type.

    It is the sum of a layer over self, computed once, and one over each entity.
    """

    width: int

    def setup(self) -> None:
        """Names the two layers."""
        self.of_self = DenseWeights(self.width, 1.0)
        self.of_entity = dense(self.width, 1.0, use_bias=False)

    def weights_of_self(self, features: int) -> tuple[Array, Array]:
        """Gives the kernel [features, width] and the bias [width] of the layer over self."""
        return self.of_self(features)

    def __call__(self, of_self: Array, entities: Array) -> Array:
        """Takes the layer over self [rows, width] and entities [rows, entities, features].

        Gives [rows, entities, width].
        """
        return nn.relu(of_self[:, None] + self.of_entity(entities))


class EntitySelfAttention(nn.Module):
    """Multi-head attention among a few entities (Vaswani et al., 2017)."""

    heads: int

    @nn.compact
    def __call__(self, x: Array, mask: Array) -> Array:
        """Takes x [rows, entities, width] and mask bool [rows, entities]; gives the like of x."""
        width = x.shape[-1]
        initial = normal(math.sqrt(0.125 / width))
        qkv = nn.Dense(3 * width, kernel_init=initial, name="query_key_value")(x)
        attended = attention(qkv, mask, self.heads)
        return nn.Dense(width, kernel_init=initial, name="post")(attended)
