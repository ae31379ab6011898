"""Sets of entities in an observation, and the masks that say which of their places are taken.

A set is a Box [places, features], say `boxes`; its mask [places], `mask_boxes`, is 1 where there is
an entity that the agent sees. `mask_boxes_spoof` marks what there is, seen or not, for values and
critics; without it they know no more than the policy. Hide-and-seek's published names differ.
"""

from __future__ import annotations

from typing import NamedTuple

from srl.core.spaces import Space, is_mask, is_picture, space_tree, spaces
from srl.core.tree import leaves_of, names_of

_SELF, _LIDAR = "observation_self", "lidar"

_PUBLISHED = {
    "agent_qpos_qvel": "mask_aa_obs",
    "box_obs": "mask_ab_obs",
    "ramp_obs": "mask_ar_obs",
    "food_obs": "mask_af_obs",
    "construction_site_obs": "mask_acs_obs",
}
"""The masks of hide-and-seek's sets (Baker et al., 2020). Without a `_spoof` all places are taken,
as agents and ramps are there whether one sees them or not."""


class EntitySet(NamedTuple):
    """A set's masks, by the names of leaves, such as `mask_boxes` or `scene/mask_boxes`."""

    seen: str
    """Marks what the agent sees."""
    taken: str | None
    """Marks the places that are taken; None if all are."""


def entity_sets(space: Space) -> dict[str, EntitySet]:
    """Finds the sets of an observation that have a mask, by name, in the order of the space."""
    leaves, found = named_leaves(space), {}
    for name, leaf in leaves.items():
        parent, slash, key = name.rpartition("/")
        published = f"{parent}{slash}{_PUBLISHED.get(key)}"
        mask = published if published in leaves else mask_of(name)
        places = (leaf.shape or ())[:1]
        if not is_set(name, leaf) or mask not in leaves or leaves[mask].shape != places:
            continue
        spoof = f"{mask}_spoof"
        otherwise = None if mask == published else mask
        found[name] = EntitySet(mask, spoof if spoof in leaves else otherwise)
    return found


def module_name(name: str) -> str:
    """Gives the name of a set's embedding: its own if it is published, else one of no layer."""
    if name in _PUBLISHED:
        return name
    return "set_" + name.replace("_", "__").replace("/", "_")


def mask_of(name: str) -> str:
    """Gives the name of a set's mask."""
    parent, slash, key = name.rpartition("/")
    return f"{parent}{slash}mask_{key}"


def sets_without_mask(space: Space) -> list[str]:
    """Lists the leaves that look like sets of entities and have no mask."""
    leaves, masked = named_leaves(space), entity_sets(space)
    return [name for name, leaf in leaves.items() if is_set(name, leaf) and name not in masked]


def is_set(name: str, leaf: Space) -> bool:
    """Tells if a part of a Dict or Tuple has two axes, not of rays, pixels or masks."""
    two_axes = isinstance(leaf, spaces.Box) and len(leaf.shape or ()) == 2 and not is_picture(leaf)
    return two_axes and bool(name) and not is_mask(name) and not is_lidar(name, leaf)


def is_lidar(name: str, leaf: Space) -> bool:
    """Tells if a leaf is the rays around an agent, [rays, channels]; they are no set."""
    return name.rpartition("/")[2] == _LIDAR and len(leaf.shape or ()) == 2


def own_leaves(space: Space) -> dict[str, Space]:
    """Gives the leaves of the agent itself, by name: those of no set, and no masks of one.

    Next to an `observation_self` these are it and the lidar, as in hide-and-seek, one task of which
    shows an answer that no policy may see.
    """
    leaves, sets = named_leaves(space), entity_sets(space)
    elsewhere = {*sets, *(mask for masks in sets.values() for mask in masks)}

    def is_own(name: str, leaf: Space) -> bool:
        parent, slash, key = name.rpartition("/")
        hidden = f"{parent}{slash}{_SELF}" in leaves and key != _SELF and not is_lidar(name, leaf)
        return not hidden and name not in elsewhere and "action_mask" not in name.split("/")

    return {name: leaf for name, leaf in leaves.items() if is_own(name, leaf)}


def named_leaves(space: Space) -> dict[str, Space]:
    """Gives the spaces of single arrays by their names; that of a lone array is empty."""
    tree = space_tree(space)
    return dict(zip(leaves_of(names_of(tree)), leaves_of(tree), strict=True))
