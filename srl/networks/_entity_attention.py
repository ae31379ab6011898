"""The flax modules of the attention over entities (Baker et al., 2020, appendix B)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from flax import linen as nn

from srl.core.spaces import Space
from srl.core.tree import leaves_of
from srl.core.types import Array, Tree
from srl.networks._attention import attention
from srl.networks._layers import HIDDEN_SCALE, dense, normal, vectors
from srl.networks.entities import (
    entity_sets,
    is_lidar,
    module_name,
    named_leaves,
    own_leaves,
)


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
        embedded_self = nn.relu(dense(self.width, HIDDEN_SCALE, name="self")(own))
        entities, masks = [embedded_self[:, None]], [jnp.ones((rows, 1), bool)]
        for name, (seen, taken) in sets.items():
            x = values[name].astype(jnp.float32)
            embedding = EntityEmbedding(self.width, name=module_name(name))
            entities.append(embedding(own, x))
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


class CircularConvolution(nn.Module):
    """A convolution of 3 rays over a circle of them, as one matrix product."""

    filters: int

    @nn.compact
    def __call__(self, rays: Array) -> Array:
        """Takes [rows, rays, channels], gives [rows, rays * filters]."""
        rays = rays.reshape(*rays.shape[:2], -1)
        neighbours = [jnp.roll(rays, 1, axis=1), rays, jnp.roll(rays, -1, axis=1)]
        patches = jnp.concatenate(neighbours, axis=-1)
        filtered = nn.relu(dense(self.filters, HIDDEN_SCALE, name="filters")(patches))
        return filtered.reshape(filtered.shape[0], -1)


class EntityEmbedding(nn.Module):
    """A dense layer over (self, entity), shared by the entities of a type.

    It is the sum of a layer over self, computed once, and one over each entity.
    """

    width: int

    @nn.compact
    def __call__(self, own: Array, entities: Array) -> Array:
        """Takes [rows, features] and [rows, entities, features], gives [rows, entities, width]."""
        of_self = dense(self.width, 1.0, name="of_self")(own)
        of_entity = dense(self.width, 1.0, name="of_entity", use_bias=False)(entities)
        return nn.relu(of_self[:, None] + of_entity)


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
