"""Keys of an observation that values and critics see, and policies do not.

They are those of `Algorithm.privileged`, and the masks `mask_NAME_spoof` of sets of entities. A
policy acts in environments with these keys, which it leaves out, and in others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from srl.core.errors import UserError
from srl.core.spaces import Space, is_mask, joined_space, space_tree
from srl.core.tree import leaves_of
from srl.core.types import Specs, Tree
from srl.networks import AutoNetwork, EntityAttention
from srl.networks.entities import entity_sets, named_leaves, own_leaves

_OBSERVATION = "observation"
_OF_ENTITIES = AutoNetwork, EntityAttention


def visible(tree: Tree, privileged: tuple[str, ...] = ()) -> Tree:
    """Gives the part of an observation that a policy sees.

    Pools call an observation `observation` that they add a key to. Where this is all that is left,
    it is given without its name, as an environment without the privileged keys gives it.

    Args:
        tree: An observation, its `space_tree`, or another tree of its form.
        privileged: Keys of a Dict; of a nested one, such as scene/state.
    """
    seen = _without(tree, privileged, "")
    if privileged and isinstance(seen, Mapping) and list(seen) == [_OBSERVATION]:
        alone = seen[_OBSERVATION]
        return seen if isinstance(alone, Mapping | tuple) else alone
    return seen


def _without(tree: Tree, privileged: tuple[str, ...], outer: str) -> Tree:
    if not isinstance(tree, Mapping):
        return tree
    return {
        key: _without(part, privileged, f"{outer}{key}/")
        for key, part in tree.items()
        if not (f"{outer}{key}" in privileged or (is_mask(key) and key.endswith("_spoof")))
    }


def policy_space(space: Space, privileged: tuple[str, ...]) -> Space:
    """Gives the space of what a policy sees of a space; see `visible`."""
    return joined_space(visible(space_tree(space), privileged))


def policy_specs(specs: Specs, privileged: tuple[str, ...]) -> Specs:
    """Gives the specs of environments with policies' observations; see `visible`."""
    own = ((policy_space(observed, privileged), action) for observed, action in specs.agent_spaces)
    return replace(
        specs,
        observation=policy_space(specs.observation, privileged),
        agent_spaces=tuple(own),
    )


def expect_may_see_more(algorithm: Any) -> None:
    """Raises UserError where an algorithm has no value that could see privileged keys.

    Args:
        algorithm: Its settings.
    """
    privileged, name = algorithm.privileged, type(algorithm).__name__
    if privileged and not algorithm.values_see_more:
        raise UserError(
            f"algorithm.privileged={privileged}: {name} acts by the values that it learns, so they "
            "cannot see more than its policy; take PPO, APPO, IMPALA, REPPO, SAC, TD3 or "
            "DiscreteSAC"
        )
    if privileged and algorithm.network.shared:
        raise UserError(
            f"algorithm.privileged={privileged} with network.shared: a value that sees more than "
            "the policy cannot share its layers; leave one out"
        )


def expect_privileged(algorithm: Any, specs: Specs) -> None:
    """Raises UserError where environments to learn from lack a privileged key.

    Args:
        algorithm: Its `privileged` is used.
        specs: Of the environments.
    """
    privileged, name = algorithm.privileged, f"{type(algorithm).__name__}(privileged=...)"
    tree = space_tree(specs.observation)
    keys = list(_keys(tree, ""))
    for key in privileged:
        if key not in keys:
            there = f"have {', '.join(keys)}" if keys else f"are {specs.observation}, without keys"
            hint = "; --env.world-state true adds it for PettingZoo and JaxMARL, IPPO needs none"
            hint *= key == "state"
            raise UserError(f"{name}: {key!r} is no key of the observations, which {there}{hint}")
        if key.rpartition("/")[2] == "action_mask":
            raise UserError(f"{name}: policies need {key!r}; leave it out")
        if _unseen(key, specs.observation) and isinstance(algorithm.network, _OF_ENTITIES):
            raise UserError(
                f"{name}: next to observation_self, networks of entities see sets alone, and "
                f"{key!r} is none; make it a part of observation_self or a set, or take MLP"
            )
    if privileged and not leaves_of(visible(tree, privileged)):
        raise UserError(f"{name}: nothing is left for the policy to observe; name fewer keys")


def _keys(tree: Tree, outer: str) -> Iterator[str]:
    """Lists the keys of a tree of dicts, those of inner ones after that of the outer."""
    if isinstance(tree, Mapping):
        for key, part in tree.items():
            yield f"{outer}{key}"
            yield from _keys(part, f"{outer}{key}/")


def _unseen(key: str, space: Space) -> bool:
    """Tells if networks of entities leave out a key, or all of its parts."""
    sets = entity_sets(space)
    seen = {*own_leaves(space), *sets, *(mask for masks in sets.values() for mask in masks)}
    return seen.isdisjoint(name for name in named_leaves(space) if f"{name}/".startswith(f"{key}/"))
