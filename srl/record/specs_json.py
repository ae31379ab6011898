"""Specs as JSON, for a process that steps environments to send them to another."""

from __future__ import annotations

import base64
import binascii
import math
from typing import Any

import numpy as np

from srl.core.errors import RunError
from srl.core.spaces import Space, spaces
from srl.core.types import Specs

_MOST_NUMBERS = 1 << 26  # in one space: what is read may come from a broken sender
_DEEPEST = 32


def specs_to_json(specs: Specs) -> dict[str, Any]:
    """The specs as a value that `json.dumps` takes; `specs_from_json` gives them back.

    Raises:
        RunError: For a space that is none of those that pools support.
    """
    return {
        "observation": _to_json(specs.observation),
        "action": _to_json(specs.action),
        "agents": list(specs.agents),
        "statistics": list(specs.statistics),
        "max_episode_steps": specs.max_episode_steps,
        "agent_spaces": [[_to_json(o), _to_json(a)] for o, a in specs.agent_spaces],
        "tasks": list(specs.tasks),
        "task_of": list(specs.task_of),
    }


def specs_from_json(value: Any) -> Specs:
    """The specs that `specs_to_json` made `value` of.

    Raises:
        RunError: If it is anything else.
    """
    try:
        limit = value["max_episode_steps"]
        tasks = _strings(value.get("tasks", []))  # which earlier runs do not have
        return Specs(
            observation=_from_json(value["observation"]),
            action=_from_json(value["action"]),
            agents=_strings(value["agents"]),
            statistics=_strings(value["statistics"]),
            max_episode_steps=None if limit is None else int(limit),
            agent_spaces=tuple(
                (_from_json(observation), _from_json(action))
                for observation, action in value["agent_spaces"]
            ),
            tasks=tasks,
            task_of=_places(value.get("task_of", []), len(tasks)),
        )
    except (AssertionError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise RunError(f"these are no specs of environments: {error!r}") from error


def _to_json(space: Space) -> dict[str, Any]:
    if isinstance(space, spaces.Dict):
        return {"type": "Dict", "parts": [[k, _to_json(part)] for k, part in space.items()]}
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "parts": [_to_json(part) for part in space]}
    if isinstance(space, spaces.Box):
        bounds = {"low": _packed(space.low), "high": _packed(space.high)}
        return {"type": "Box", "shape": list(space.shape), "dtype": space.dtype.str, **bounds}
    if isinstance(space, spaces.Discrete):
        dtype = np.dtype(space.dtype).str
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": dtype}
    if isinstance(space, spaces.MultiDiscrete):
        numbers = {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
        return {"type": "MultiDiscrete", "dtype": np.dtype(space.dtype).str, **numbers}
    if isinstance(space, spaces.MultiBinary):
        n = space.n if isinstance(space.n, int | np.integer) else None
        return {"type": "MultiBinary", "n": list(space.shape) if n is None else int(n)}
    raise RunError(f"the space {space} cannot be sent to another process; wrap the environment")


def _from_json(value: Any, depth: int = 0) -> Space:
    if depth > _DEEPEST:
        raise ValueError("the spaces are nested too deeply")
    match value["type"]:
        case "Dict":  # pairs keep their order; a dict's keys would be sorted
            parts = [(str(name), _from_json(part, depth + 1)) for name, part in value["parts"]]
            return spaces.Dict(parts)
        case "Tuple":
            return spaces.Tuple([_from_json(part, depth + 1) for part in value["parts"]])
        case "MultiBinary":
            n = value["n"]
            return spaces.MultiBinary(_shape(n) if isinstance(n, list) else _shape([n])[0])
    dtype = _dtype(value["dtype"])
    match value["type"]:
        case "Box":
            shape = _shape(value["shape"])
            low, high = (_unpacked(value[bound], shape, dtype) for bound in ("low", "high"))
            return spaces.Box(low, high, shape, dtype.type)
        case "Discrete":
            return spaces.Discrete(value["n"], start=value["start"], dtype=dtype.type)
        case "MultiDiscrete":
            nvec, start = (np.array(value[name], dtype) for name in ("nvec", "start"))
            return spaces.MultiDiscrete(nvec, dtype=dtype.type, start=start)
    raise ValueError(f"there is no space {value['type']!r}")


def _packed(bounds: np.ndarray) -> str:
    """The bytes of an array, or of one number where they are all the same; infinities as well."""
    same = bounds.size > 0 and (bounds == bounds.flat[0]).all()
    return base64.b64encode((bounds.flat[:1] if same else bounds).tobytes()).decode()


def _unpacked(text: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    try:
        numbers = np.frombuffer(base64.b64decode(text, validate=True), dtype)
    except binascii.Error as error:
        raise ValueError(f"bounds of a space: {error}") from error
    return np.broadcast_to(numbers[0], shape) if numbers.size == 1 else numbers.reshape(shape)


def _shape(value: Any) -> tuple[int, ...]:
    shape = tuple(int(length) for length in value)
    if min(shape, default=0) < 0 or math.prod(shape) > _MOST_NUMBERS:
        raise ValueError(f"shape {shape} of a space")
    return shape


def _places(value: Any, tasks: int) -> tuple[int, ...]:
    """The numbers of tasks, of which there are `tasks`."""
    places = tuple(int(number) for number in value)
    if bool(places) != bool(tasks) or not all(0 <= number < tasks for number in places):
        raise ValueError(f"environments of the tasks {places}, of {tasks}")
    return places


def _dtype(value: Any) -> np.dtype:
    dtype = np.dtype(str(value))
    if dtype.kind not in "biuf":
        raise ValueError(f"dtype {dtype} of a space")
    return dtype


def _strings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"names {value!r}")
    return tuple(value)
