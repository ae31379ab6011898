"""EnvPool's description of an environment as the specs of a pool."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from srl.core.errors import RunError, UserError
from srl.core.optional_packages import install_command
from srl.core.spaces import joined_space, narrow_dtype

_OURS = {
    "num_envs": "it is an argument of make_pool",
    "batch_size": "it is an argument of make_pool",
    "num_threads": "give threads=",
    "seed": "give reset(seed=)",
    "env_seed": "give reset(seed=)",
    "max_num_players": "the environment fixes it",
    "gym_reset_return_info": "it has no effect here",
}
"""Options of EnvPool that are none here, and what to do instead."""

_RENDERING = ("from_pixels", "render_mode", "render_width", "render_height", "render_camera_id")
"""Options that EnvPool takes without listing them."""


MOST_STEPS = 2**31 - 1
"""Steps of an episode that EnvPool counts; `max_episode_steps` is below."""


def import_envpool() -> Any:
    """EnvPool itself, which the extra `envpool` brings."""
    try:
        return importlib.import_module("envpool")
    except ModuleNotFoundError as error:
        if error.name != "envpool":
            raise RunError(f"EnvPool cannot be imported: {error}") from error
        raise UserError(f"EnvPool is not installed: {install_command('envpool')}") from None


def make_spec(envpool: Any, name: str, options: dict[str, Any], sizes: dict[str, int]) -> Any:
    """EnvPool's own description of an environment, once name and options are right."""
    known = envpool.list_all_envs()
    if name not in known:
        near = difflib.get_close_matches(name, known, 1, 0.4)
        hint = f"; did you mean envpool:{near[0]}?" if near else ""
        raise UserError(f"EnvPool has no environment {name!r}{hint}")
    try:
        defaults = envpool.make_spec(name).config._asdict()
        for option, value in options.items():
            _check_option(name, option, value, defaults)
        return envpool.make_spec(name, **options, **sizes)
    except UserError:
        raise
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"envpool:{name} cannot be made with {options or sizes}: {reason}"
        ) from None


def _check_option(name: str, option: str, value: Any, defaults: dict[str, Any]) -> None:
    if option in _OURS:
        raise UserError(f"envpool:{name}: {option} is no option: {_OURS[option]}")
    names = [known for known in (*defaults, *_RENDERING) if known not in _OURS]
    if option not in names:
        near = difflib.get_close_matches(option, names, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(names))}"
        raise UserError(f"envpool:{name}: unknown option {option!r}; {hint}")
    default = defaults.get(option)
    fits = (int, float) if isinstance(default, float) else type(default)
    wrong_flag = isinstance(value, bool) != isinstance(default, bool)
    if default is not None and (wrong_flag or not isinstance(value, fits)):
        kind = type(default).__name__
        raise UserError(f"envpool:{name}: option {option!r} is {value!r}; expected a {kind}")
    if option == "max_episode_steps" and not 1 <= value < MOST_STEPS:
        raise UserError(
            f"envpool:{name}: option {option!r} is {value}; expected from 1 to {MOST_STEPS - 1:,}"
        )


def action_key(name: str, spec: Any) -> tuple[str, int]:
    """The name of the one action, and the number of agents that take one at each step."""
    keys = [k for k in spec.action_array_spec if k not in ("env_id", "players.env_id")]
    if len(keys) != 1:
        raise UserError(f"envpool:{name} takes several actions ({', '.join(keys)}); one is allowed")
    agents = spec.config.max_num_players
    if agents > 1 and not keys[0].startswith("players."):
        raise UserError(
            f"envpool:{name}: its {agents} players move in turns, but the agents of a pool act at "
            "the same time"
        )
    return keys[0], agents


def observation_paths(spec: Any) -> list[tuple[tuple[str, ...], str]]:
    """Gives the path in the observation of each EnvPool array, sorted as in Gymnasium's Dict."""
    keys = [key for key in spec.state_array_spec if key.split(":")[0] == "obs"]
    if len(keys) == 1:
        return [((), keys[0])]
    return sorted((tuple(key.replace(":", ".").split(".")[1:]), key) for key in keys)


def nested(parts: dict[tuple[str, ...], Any]) -> Any:
    """Nested dicts by path; the part itself for an empty path."""
    if () in parts:
        return parts[()]
    whole: dict[str, Any] = {}
    for path, part in parts.items():
        inner = whole
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = part
    return whole


def observation_space(spec: Any, paths: list[tuple[tuple[str, ...], str]]) -> gymnasium.Space:
    """The space of one agent's observation."""
    return joined_space(nested({path: space_of(spec.state_array_spec[k]) for path, k in paths}))


def space_of(described: Any, acts: bool = False) -> gymnasium.Space:
    """The space of one agent's array; observed numbers of 64 bits become 32."""
    dtype = np.dtype(described.dtype)
    shape = tuple(n for n in described.shape if n != -1)
    if dtype == np.bool_:
        return spaces.MultiBinary(shape) if shape else spaces.Discrete(2, dtype=np.int8)
    low, high = np.asarray(described.minimum), np.asarray(described.maximum)
    if dtype.kind == "f":
        # Without bounds of its own an array has those of the type, the least positive number first.
        low = np.where(
            (low <= np.finfo(np.float32).min) | (low == np.finfo(dtype).tiny), -np.inf, low
        )
        high = np.where(high >= np.finfo(np.float32).max, np.inf, high)
    narrow = dtype.type if acts and dtype.kind == "f" else narrow_dtype(dtype).type
    low, high = (np.broadcast_to(bound, shape) for bound in (low, high))
    if dtype.kind in "iu" and (acts or not shape):
        count = high.astype(np.int64) - low + 1
        if not shape and count < 2**31:
            return spaces.Discrete(int(count), start=int(low), dtype=narrow)
        if shape:
            return spaces.MultiDiscrete(count, start=low.astype(narrow), dtype=narrow)
    return spaces.Box(low.astype(narrow), high.astype(narrow), shape, narrow)
