"""Findings of checks, and errors of single values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from srl.core.errors import UserError
from srl.core.spaces import bounded, choice_counts, has_choices, limits, space_tree
from srl.core.tree import leaves_of, map_tree
from srl.pools.python.masks import flat_mask
from srl.pools.python.simulator import InvalidOutput, one_reward, supported_action

Verdict = Literal["ok", "warning", "fix"]


@dataclass(frozen=True)
class Finding:
    """The result of one check, in a line."""

    check: str
    verdict: Verdict
    text: str
    """The result; for a warning or a thing to fix, also what to do."""


class Fault(Exception):
    """The environment broke a promise that the rest of a check stands on."""


Check = Callable[[], Iterator[Finding]]


Watch = Callable[..., None]
"""Called before each call of an environment; `making=True` for one that makes an environment, which
may take longer than a step."""


@dataclass(frozen=True)
class Settings:
    """The environment to check, and limits of the play."""

    env: str
    """An id, or module:factory."""
    steps: int
    """The most to play in a check."""
    seconds: float
    """The most that a check plays for."""
    seed: int
    """The seed of the actions and of the environments."""
    options: dict[str, Any]


def run_checks(checks: dict[str, Check], needed: tuple[str, ...]) -> Iterator[str | Finding]:
    """Runs checks in order; gives the name of each before what it finds.

    Where one of the `needed` finds something to fix, the others would only repeat it and are left
    out.
    """
    for name, check in checks.items():
        yield name
        try:
            findings = list(check())
        except Fault as fault:
            findings = [Finding(name, "fix", str(fault))]
        yield from findings
        if name in needed and any(f.verdict == "fix" for f in findings):
            if rest := list(checks)[list(checks).index(name) + 1 :]:
                text = f"left out until this is fixed: {', '.join(rest)}"
                yield Finding("the rest", "warning", text)
            return


def spaces_findings(observation: gymnasium.Space, action: gymnasium.Space) -> Iterator[Finding]:
    """Checks that srl can use the action space of one agent, and reports both spaces."""
    try:
        supported_action(action, "the environment")
    except UserError as error:
        raise Fault(str(error)) from error
    for leaf in leaves_of(space_tree(action)):
        if not isinstance(leaf, spaces.Box):
            continue
        if not bounded(leaf).all():
            text = f"actions are unbounded: {leaf}; give them bounds, best -1 and 1"
            yield Finding("spaces", "warning", text)
        elif not (np.allclose(leaf.low, -1) and np.allclose(leaf.high, 1)):
            yield Finding(
                "spaces",
                "warning",
                f"actions are {leaf}, not within -1 and 1; srl stretches its own to the bounds, "
                "other libraries do not: gymnasium.wrappers.RescaleAction(env, -1, 1)",
            )
    yield Finding("spaces", "ok", f"observations {_brief(observation)}, actions {_brief(action)}")


def _brief(space: gymnasium.Space) -> str:
    if isinstance(space, spaces.Dict):
        return f"Dict of {', '.join(space)}"
    if isinstance(space, spaces.Box):
        return f"Box of shape {space.shape}, {space.dtype}"
    return str(space)


def ends_finding(
    check: str, lengths: list[int], steps: int, limit: int | None, advice: str
) -> Finding:
    """Reports if episodes ended within so many steps, or will end at a limit."""
    if lengths:
        text = f"{len(lengths)} episodes, {np.mean(lengths):.0f} steps on average"
    elif limit:
        text = f"no end in {steps} steps; the limit is {limit}"
    else:
        text = f"no end in {steps} random steps, and no time limit: {advice}"
    return Finding(check, "ok" if lengths or limit else "warning", text)


def observation_errors(
    space: gymnasium.Space, value: Any, path: str = "observation"
) -> Iterator[str]:
    """Gives what keeps `value` from being in `space`, part by part."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, dict) or value.keys() != space.keys():
            given = f"a dict of {sorted(value)}" if isinstance(value, dict) else _kind(value)
            yield f"{path} is {given}; its space has a dict of {sorted(space)}"
            return
        for name, part in space.items():
            yield from observation_errors(part, value[name], f"{path}[{name!r}]")
    elif isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple | list) or len(value) != len(space):
            yield f"{path} is {_kind(value)}; its space has a tuple of {len(space)}"
            return
        for place, part in enumerate(space):
            yield from observation_errors(part, value[place], f"{path}[{place}]")
    else:
        yield from _leaf_errors(space, value, path)


def _leaf_errors(space: gymnasium.Space, value: Any, path: str) -> Iterator[str]:
    try:
        array = np.asarray(value)
    except ValueError:  # parts of unequal length
        array = np.asarray(None)
    floats = isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating)
    if array.dtype.kind not in ("iubf" if floats else "iub"):
        yield f"{path} is {_kind(value)}; its space has {space.dtype}"
    elif array.shape != (space.shape or ()):
        yield f"{path} has shape {array.shape}; its space has {space.shape}"
    elif not np.isfinite(array).all():
        yield f"{path} is not finite: {array[~np.isfinite(array)].flat[0]}"
    elif _outside(space, array):
        yield f"{path} is outside its space {_brief(space)}: {_outside(space, array)}"


def _outside(space: gymnasium.Space, array: np.ndarray) -> str:
    """A value outside its bounds and the bound; empty if there is none."""
    low, high = limits(space)
    slack = 1e-5 * np.maximum(1, np.abs(array)) if array.dtype.kind == "f" else 0  # of rounding
    for wrong, bound, how in (
        (array < low - slack, low, "less than"),
        (array > high + slack, high, "more than"),
    ):
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            where = f" at {list(place)}" if place else ""
            return f"{array[place]}{where} is {how} {np.broadcast_to(bound, array.shape)[place]}"
    return ""


def reward_error(reward: Any) -> str:
    """Describes the error of a reward; empty if it is valid."""
    try:
        number = float(one_reward(reward))
    except InvalidOutput as error:
        return f"it {error}"
    return "" if math.isfinite(number) else f"the reward is not finite: {reward}"


def flag_error(name: str, flag: Any) -> str:
    """Describes the error of terminated or truncated; empty if it is valid."""
    if isinstance(flag, bool | np.bool_):
        return ""
    return f"{name} is {_kind(flag)}; it must be a bool: bool({name})"


def mask_error(mask: Any, action: gymnasium.Space) -> str:
    """Describes the error of a mask of allowed actions; empty if it is valid."""
    if not has_choices(action):
        return f"action_mask masks {action}; masks are for Discrete and MultiDiscrete actions"
    sizes = np.ravel(choice_counts(action))
    flat = flat_mask(mask)
    if flat.size != sizes.sum():
        return f"action_mask has {flat.size} entries; the actions are {sizes.sum()}"
    if not np.isin(flat, (0, 1)).all():
        return f"action_mask holds {flat[~np.isin(flat, (0, 1))][0]}; expected 1 for an action"
    for part in np.split(flat, np.cumsum(sizes)[:-1]):
        if not part.any():
            return "action_mask allows no action at all; end the episode, or allow one that waits"
    return ""


def draw_action(action: gymnasium.Space, mask: Any, rng: np.random.Generator) -> Any:
    """A random action, allowed by the mask if there is one; any where that allows none."""
    return map_tree(lambda leaf: _draw(leaf, mask, rng), space_tree(action))


def _draw(action: gymnasium.Space, mask: Any, rng: np.random.Generator) -> np.ndarray:
    if isinstance(action, spaces.Box):
        if np.dtype(action.dtype).kind != "f":
            return rng.integers(action.low, action.high, endpoint=True, dtype=action.dtype)
        low, high = action.low, action.high
        low = np.where(np.isfinite(low), low, np.minimum(high, 10) - 20)
        high = np.where(np.isfinite(high), high, np.maximum(low, -10) + 20)
        return np.asarray(rng.uniform(low, high), action.dtype)
    counts = choice_counts(action)
    if mask is None:
        drawn = [int(rng.integers(size)) for size in np.ravel(counts)]
    else:
        allowed = np.split(flat_mask(mask).astype(bool), np.cumsum(counts)[:-1])
        drawn = [int(rng.choice(np.flatnonzero(part if part.any() else ~part))) for part in allowed]
    return (limits(action)[0] + np.reshape(drawn, counts.shape)).astype(action.dtype)


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}, {value.dtype}"
    return f"{type(value).__name__} {value!r:.60}"
