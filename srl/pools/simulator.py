"""One environment written in Python, as pools step it."""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from srl.errors import RunError, UserError
from srl.pools.pool import empty_observation, narrow_dtype
from srl.pools.room import SAMPLE, Growth, refuse_too_many
from srl.types import Specs, Timestep, Tree


class Simulator(ABC):
    """An environment of A agents that writes its results into a pool's rows.

    `rows` has a row for each environment of the pool and A slots for each, environment-major:
    environment `env` writes the observation, reward, terminated and truncated of its agent `a` at
    slot `env * A + a` and its statistics, if it keeps any, at `env`. The other fields are the
    pool's. A slot whose agent is not there is written too: `terminated` from the agent's last step
    on until the episode ends, `truncated` before it joins. The episode of the environment ends
    where all its slots are flagged; it is reset then and never stepped before a reset.

    Whatever these methods raise is told with the environment's index, and the environment is reset
    next; `Misfit` is for results that do not fit the specs.
    """

    specs: Specs
    """Of what is written, so with numbers of at most 32 bits."""
    masked: bool = False
    """Whether the environment gives masks of allowed actions in its infos."""

    @abstractmethod
    def reset(self, seed: int | None, rows: Timestep, env: int) -> None:
        """Starts an episode and writes its first observations, with rewards of 0.

        Args:
            seed: None goes on with the present stream of chance.
            rows: Where to write.
            env: Which of the rows.
        """

    @abstractmethod
    def step(self, actions: np.ndarray, rows: Timestep, env: int) -> None:
        """Acts and writes what follows.

        Args:
            actions: [A, ...], of the action space's dtype and within it; the simulator may keep it.
            rows: Where to write.
            env: Which of the rows.
        """

    def render(self) -> np.ndarray:
        """A picture of the environment as it stands, uint8 [height, width, 3]."""
        raise UserError(f"{type(self).__name__} renders nothing")

    def close(self) -> None:
        """Lets go of what the environment holds."""
        return None


_PETTINGZOO = "pettingzoo:"

SimulatorSource = str | Callable[..., Any]
"""An id of Gymnasium, a dotted path to a callable, or a callable that makes an environment."""


class UnknownOption(UserError):
    """An environment was given an option that it does not take."""


def source_name(source: SimulatorSource) -> str:
    """What messages call the environment."""
    return source if isinstance(source, str) else getattr(source, "__name__", repr(source))


def make_simulator(
    source: SimulatorSource, index: int, options: dict[str, Any], masked: bool | None = None
) -> Simulator:
    """Makes environment `index` of a pool.

    Args:
        source: What makes it.
        index: Its own.
        options: Passed on to it.
        masked: Whether it gives masks of allowed actions in its infos; None finds out.

    Raises:
        UserError: For an unknown id, a missing module, or what is no environment.
        UnknownOption: If it does not take one of the options.
        RunError: If making it raised, with the cause.
    """
    from srl.pools.gymnasium import GymnasiumSimulator
    from srl.pools.pettingzoo import PettingZooSimulator, is_parallel_env

    name = source_name(source)
    try:
        made = _make(source, options)
        if is_parallel_env(made):
            return PettingZooSimulator(made, name, masked)
    except UserError:
        raise
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        raise UserError(f"{name!r} cannot be made: {error}") from error
    except (Exception, SystemExit) as error:
        if unknown := _unknown_option(error, options):
            raise UnknownOption(
                f"{name} has no option {unknown!r}; {_hint(unknown, source)}"
            ) from error
        raise RunError(
            f"{name}: making environment {index} raised {type(error).__name__}: {error}"
        ) from error
    if isinstance(made, gymnasium.Env):
        return GymnasiumSimulator(made, name, masked)
    raise UserError(
        f"{name} made {type(made).__name__}; expected a gymnasium.Env or a pettingzoo.ParallelEnv"
    )


def make_simulators(
    source: SimulatorSource, indices: range, options: dict[str, Any], num_envs: int
) -> list[Simulator]:
    """Makes some of a pool's environments, all alike; `num_envs` are in the whole pool.

    Raises:
        UserError: As `make_simulator`, if their spaces differ, or if memory holds not so many.
        RunError: If making one raised, with the cause.
    """
    made: list[Simulator] = []
    growth = Growth()
    try:
        for index in indices:
            masked = made[0].masked if made else None
            made.append(make_simulator(source, index, options, masked))
            refuse_unlike(made[0].specs, indices[0], made[-1].specs, index, source_name(source))
            if len(made) == 1:  # what the first one loads is there for all
                growth = Growth()
            elif len(made) == SAMPLE + 1:
                refuse_too_many(source_name(source), num_envs, growth.nbytes, SAMPLE)
    except BaseException:
        for simulator in made:
            simulator.close()
        raise
    return made


def refuse_unlike(first: Specs, first_index: int, other: Specs, index: int, name: str) -> None:
    """Raises UserError where two environments of a pool differ in what they give and take."""
    if found := difference(first, other):
        kind, mine, others = found
        raise UserError(
            f"{name}: environment {index} has {kind} {others}, but environment {first_index} "
            f"has {mine}; all copies must be alike"
        )


def difference(first: Specs, other: Specs) -> tuple[str, Any, Any] | None:
    """The first thing in which environments differ, by name, and what either has; None if alike."""
    for field in ("observation", "action", "agents", "agent_spaces", "statistics"):
        mine, others = getattr(first, field), getattr(other, field)
        if mine != others:
            return f"{field} space" if field in ("observation", "action") else field, mine, others
    return None


class Rendered(NamedTuple):
    """What came of rendering an environment."""

    picture: np.ndarray | None
    failure: str = ""
    """The traceback, where rendering raised."""
    missing: str = ""
    """Which package has to be installed first, where one is missing."""


def rendered(simulator: Simulator) -> Rendered:
    """Renders an environment."""
    try:
        return Rendered(np.asarray(simulator.render()))
    except (gymnasium.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        return Rendered(None, missing=str(error))
    except (Exception, SystemExit) as error:
        return Rendered(None, "".join(traceback.format_exception(error)))


def _make(source: SimulatorSource, options: dict[str, Any]) -> Any:
    if not isinstance(source, str):
        if not callable(source):
            raise UserError(f"{source!r} is no environment; expected an id or a callable")
        return source(**options)
    return maker_of(source)(**options)


def _unknown_option(error: BaseException, options: dict[str, Any]) -> str:
    """The option that what makes the environment does not take; empty if that is not the error."""
    found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    return found[1] if found and isinstance(error, TypeError) and found[1] in options else ""


def _hint(unknown: str, source: SimulatorSource) -> str:
    """The options that there are, the nearest first."""
    known = _known_options(source)
    near = difflib.get_close_matches(unknown, known, 1, 0.5)
    if near:
        return f"did you mean {near[0]}?"
    return f"it has {', '.join(known)}" if known else "its signature names none"


def _known_options(source: SimulatorSource) -> list[str]:
    """The keywords of what makes an environment, as far as its signature names them."""
    maker: Any = source
    if isinstance(source, str):
        if source.startswith(_PETTINGZOO) or named_maker(source):
            maker = maker_of(source)
        else:
            try:
                maker = gymnasium.spec(source.rpartition(":")[2]).entry_point
            except gymnasium.error.Error:  # an id without a version
                return []
        if isinstance(maker, str):
            maker = gymnasium.envs.registration.load_env_creator(maker)
    try:
        parameters = inspect.signature(maker).parameters.values()
    except ValueError:  # of a class that is written in C
        return []
    fixed = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [p.name for p in parameters if p.kind not in fixed]


def named_maker(source: str) -> Callable[..., Any] | None:
    """What "module:factory" or "module.factory" names; None for an id of Gymnasium's.

    Raises:
        ModuleNotFoundError: If there is no such module, or no such name in it.
    """
    if source in gymnasium.registry or not (
        parts := re.fullmatch(r"(\w+(?:\.\w+)*)([.:])(\w[\w-]*)", source)
    ):
        return None
    module, colon, name = parts[1], parts[2] == ":", parts[3]
    maker = getattr(importlib.import_module(module), name, None)
    if maker is None and colon:  # "module:Name-v0": importing the module registers the id
        return None
    if maker is None:
        raise ModuleNotFoundError(f"{module} has no {name}")
    return maker


def maker_of(source: str) -> Callable[..., Any]:
    """What makes the environment that an id or a dotted path names; nothing is made.

    Raises:
        UserError: If it names nothing, with the nearest name that there is.
        ModuleNotFoundError: If there is no such module.
    """
    if source.startswith(_PETTINGZOO):
        from srl.pools.pettingzoo import parallel_maker

        return parallel_maker(source.removeprefix(_PETTINGZOO))
    if maker := named_maker(source):
        return maker
    _expect_registered(source)

    def make(**options: Any) -> gymnasium.Env:
        # Pools check every observation and action themselves.
        return gymnasium.make(source, **{"disable_env_checker": True, **options})

    return make


def _expect_registered(source: str) -> None:
    """Raises UserError unless Gymnasium knows the id; a module that it names is imported."""
    module, _, name = source.rpartition(":")
    if module:
        importlib.import_module(module)
    known = list(gymnasium.registry)
    if name in known or any(other.startswith(f"{name}-v") for other in known):  # of any version
        return
    near = difflib.get_close_matches(name, known, 1, 0.7)
    if re.sub(r"-v\d+$", "", name) in {re.sub(r"-v\d+$", "", other) for other in known}:
        try:
            gymnasium.spec(name)  # which knows what became of this version
        except gymnasium.error.Error as error:
            raise UserError(f"{source!r} cannot be made: {error}") from error
    if near:
        hint = f"did you mean {near[0]}?"
    elif module:
        hint = f"the module {module} has no such name either"
    else:
        hint = (
            "nor is there such a file; experiment files end in .py, and ids of others than "
            "Gymnasium have a prefix, as native:CartPole-v1 or my_module:MyEnv-v0"
        )
    raise UserError(f"Gymnasium has no environment {name!r}; {hint}")


# ---- what may be observed and done ----


def narrowed(space: gymnasium.Space) -> gymnasium.Space:
    """The space of what a pool gives: numbers of 64 bits become 32."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: narrowed(part) for name, part in space.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([narrowed(part) for part in space])
    if isinstance(space, spaces.Box) and narrow_dtype(space.dtype) != space.dtype:
        dtype = narrow_dtype(space.dtype).type
        info = np.iinfo(dtype) if np.issubdtype(dtype, np.integer) else np.finfo(dtype)
        low, high = (np.clip(b, info.min, info.max) for b in (space.low, space.high))
        low, high = (
            np.where(np.isinf(space.low), space.low, low),
            np.where(np.isinf(space.high), space.high, high),
        )
        return spaces.Box(low.astype(dtype), high.astype(dtype), space.shape, dtype)
    return space


def supported_action(space: gymnasium.Space, name: str) -> gymnasium.Space:
    """The space itself.

    Raises:
        UserError: If pools cannot take such actions.
    """
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete):
        return space
    raise UserError(
        f"{name}: action space {space} is not supported; there may be Box, Discrete or "
        "MultiDiscrete: wrap the environment"
    )


def outside(array: np.ndarray, space: gymnasium.Space) -> np.ndarray:
    """Where integers are not among those of their space: bool, of the array's shape."""
    if isinstance(space, spaces.Box):
        return (array < space.low) | (array > space.high)
    if isinstance(space, spaces.MultiBinary):
        return (array < 0) | (array > 1)
    assert isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
    count = space.n if isinstance(space, spaces.Discrete) else space.nvec
    return (array < space.start) | (array >= space.start + count)


# ---- observations into rows ----


class Misfit(Exception):
    """An environment gave something that its specs do not say; the text begins with `gave`."""


Writer = Callable[[Any, Tree, int], None]
"""Copies a value into one row of a tree of arrays; raises `Misfit` where it does not fit."""


def observation_writer(space: gymnasium.Space, path: str = "observation") -> Writer:
    """Makes the function that writes observations of a space.

    Args:
        space: A supported one, as in `Specs.observation`.
        path: What messages call the value.

    Raises:
        UserError: If the space is not supported.
    """
    if isinstance(space, spaces.Dict):
        return _dict_writer(space, path)
    if isinstance(space, spaces.Tuple):
        return _tuple_writer(space, path)
    empty_observation(space, (0,))  # refuses what is no array
    return _array_writer(space, path)


def _misfit(path: str, given: object, expected: object) -> Misfit:
    return Misfit(
        f"gave {path} of {given}, but its observation space says {expected}; mend the environment "
        "or its observation_space"
    )


def _dict_writer(space: spaces.Dict, path: str) -> Writer:
    parts = [(name, observation_writer(s, f"{path}[{name!r}]")) for name, s in space.items()]
    names = {name for name, _ in parts}

    def write(value: Any, memory: Tree, row: int) -> None:
        if not isinstance(value, dict) or value.keys() != names:
            given = sorted(value) if isinstance(value, dict) else type(value).__name__
            raise _misfit(path, given, f"a dict of {sorted(names)}")
        for name, write_part in parts:
            write_part(value[name], memory[name], row)

    return write


def _tuple_writer(space: spaces.Tuple, path: str) -> Writer:
    parts = [observation_writer(part, f"{path}[{k}]") for k, part in enumerate(space)]

    def write(value: Any, memory: Tree, row: int) -> None:
        if not isinstance(value, tuple | list) or len(value) != len(parts):
            raise _misfit(path, type(value).__name__, f"{len(parts)} parts")
        for write_part, part, part_memory in zip(parts, value, memory, strict=True):
            write_part(part, part_memory, row)

    return write


def _array_writer(space: gymnasium.Space, path: str) -> Writer:
    shape, dtype = space.shape, narrow_dtype(space.dtype)
    floats = dtype.kind == "f"
    copied = _copied(space, dtype)

    def fitted(value: Any) -> np.ndarray:
        try:
            array = np.asarray(value)
        except ValueError:  # its parts are of unequal lengths
            array = np.asarray(None)
        if array.shape != shape:
            raise _misfit(path, f"shape {array.shape}", f"shape {shape}")
        if array.dtype.kind not in ("iubf" if floats else "iub"):
            raise _misfit(path, f"dtype {array.dtype}", f"dtype {dtype}")
        if not floats and (wrong := outside(array, space)).any():
            raise _misfit(path, f"value {array[wrong][0]}", space)
        return array

    def write(value: Any, memory: np.ndarray, row: int) -> None:
        # The quick way is for what needs no more than a copy; the rest is looked at closely.
        if value.__class__ is not np.ndarray or value.shape != shape or value.dtype not in copied:
            value = fitted(value)
        memory[row] = value

    if not isinstance(space, spaces.Discrete):
        return write
    first, end = int(space.start), int(space.start + space.n)

    def write_number(value: Any, memory: np.ndarray, row: int) -> None:
        if value.__class__ not in _INTEGERS or not first <= value < end:
            value = fitted(value)
        memory[row] = value

    return write_number


_INTEGERS = (int, np.int64, np.int32)


def _copied(space: gymnasium.Space, dtype: np.dtype) -> tuple[np.dtype, ...]:
    """The dtypes of arrays that fit a space if their shapes do."""
    if dtype.kind == "f":
        return np.dtype(np.float32), np.dtype(np.float64)
    if isinstance(space, spaces.Box) and dtype.kind in "iu":
        info = np.iinfo(dtype)
        if (space.low <= info.min).all() and (space.high >= info.max).all():
            return (dtype,)
    return ()
