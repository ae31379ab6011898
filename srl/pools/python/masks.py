"""Masks of allowed actions: where environments give them, and how they stand in observations.

Policies honour the part `action_mask` of a Dict observation, 1 for an allowed action: flat, the
choices of MultiDiscrete actions one after the other. Environments that give masks elsewhere, in
`info["action_mask"]` or by a method `action_masks()`, get that part added to what they observe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from srl.core.errors import UserError
from srl.core.spaces import choice_counts, has_choices
from srl.pools.python.simulator import InvalidOutput, add_part, with_part

MASK = "action_mask"


def has_mask(observation: gymnasium.Space) -> bool:
    """Tells if the mask is a part of the observation."""
    return isinstance(observation, spaces.Dict) and MASK in observation.spaces


def num_choices(action: gymnasium.Space) -> int:
    """Counts the numbers in a mask of such actions."""
    return int(choice_counts(action).sum())


def with_mask(observation: gymnasium.Space, action: gymnasium.Space) -> spaces.Dict:
    """The space of observations that a mask was added to."""
    return with_part(observation, MASK, spaces.MultiBinary(num_choices(action)))


def add_mask(observation: Any, mask: Any, action: gymnasium.Space) -> dict[str, Any]:
    """An observation together with its mask; None allows every action."""
    mask = np.ones(num_choices(action), np.int8) if mask is None else flat_mask(mask)
    return add_part(observation, MASK, mask)


def flat_mask(mask: Any) -> np.ndarray:
    """A mask as one array, whether it is given whole or in parts."""
    parts = mask if isinstance(mask, tuple | list) else (mask,)
    flat = np.concatenate([np.ravel(part) for part in parts])
    if flat.dtype.kind == "f" and np.isin(flat, (0, 1)).all():
        return flat.astype(np.int8)
    return flat


def check_mask(observation: gymnasium.Space, action: gymnasium.Space, name: str) -> None:
    """Checks that policies can apply an observed mask to the actions.

    Raises:
        UserError: If the actions are no choices, or the mask has not one number for each of them.
    """
    if not isinstance(observation, spaces.Dict) or not has_mask(observation):
        return
    _check_maskable(f"{name}: observation['{MASK}']", action)
    mask = observation[MASK]
    shapes: list[tuple[int, ...]] = [
        part.shape or () for part in (mask if isinstance(mask, spaces.Tuple) else [mask])
    ]
    wanted = num_choices(action)
    if any(len(shape) != 1 for shape in shapes) or sum(shape[0] for shape in shapes) != wanted:
        raise UserError(
            f"{name}: observation['{MASK}'] is {mask}, but the actions are {action}; it must have "
            f"{wanted} numbers in one axis, 1 for an allowed action"
        )


def _check_maskable(what: str, action: gymnasium.Space) -> None:
    if not has_choices(action):
        raise UserError(
            f"{what} masks actions that are {action}; masks are for Discrete and MultiDiscrete "
            "actions: remove it, or let the environment clip what it is given"
        )


def mask_method(env: gymnasium.Env, action: gymnasium.Space, name: str) -> Callable[[], Any] | None:
    """The environment's, or a wrapper's, method `action_masks()`, as sb3-contrib has it.

    Raises:
        UserError: If there is one, and the actions are no choices.
    """
    if not env.has_wrapper_attr("action_masks"):
        return None
    method = env.get_wrapper_attr("action_masks")
    if not callable(method):
        return None
    _check_maskable(f"{name}: action_masks()", action)
    return method


def expect_no_mask(info: Mapping[str, Any], call: str, action: gymnasium.Space) -> None:
    """Raises InvalidOutput where an info has a mask that would have to be ignored."""
    if MASK not in info:
        return
    gave = f"gave info['{MASK}'] at {call}, but "
    if not has_choices(action):
        raise InvalidOutput(
            f"{gave}masks are for Discrete and MultiDiscrete actions, not for {action}"
        )
    raise InvalidOutput(
        f"{gave}none was found when it was made: give one at every reset and step from a module "
        "that names action_mask, as that of the environment or of a wrapper, or add a method "
        "action_masks()"
    )
