"""One environment written in Python, as pools step it."""

from __future__ import annotations

import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from srl.core.errors import UserError, formatted
from srl.core.spaces import (
    has_choices,
    inner_bounds,
    joined_space,
    limits,
    narrow_dtype,
    space_tree,
)
from srl.core.tree import leaves_of, map_tree
from srl.core.types import Specs, Timestep, Tree
from srl.pools.timestep_arrays import ARRAY_SPACES


class Simulator(ABC):
    """An environment of A agents that writes its results into a pool's rows.

    `rows` has a row for each environment of the pool and A slots for each, environment-major:
    environment `env` writes the observation, reward, terminated and truncated of its agent `a` at
    slot `env * A + a` and its statistics, if it keeps any, at `env`. The other fields are the
    pool's. A slot whose agent is not there is written too: `terminated` from the agent's last step
    on until the episode ends, `truncated` before it joins. The episode of the environment ends
    where all its slots are flagged; it is reset then and never stepped before a reset.

    Whatever these methods raise is reported with the environment's index, and the environment is
    reset next; `InvalidOutput` is for results that the specs do not allow.
    """

    _env: Any  # what the subclass steps, with methods `render` and `close`

    specs: Specs
    """The specs of what is written, so with numbers of at most 32 bits."""
    masked: bool = False
    """True if the environment gives masks of allowed actions in its infos."""

    @abstractmethod
    def reset(self, seed: int | None, rows: Timestep, env: int) -> None:
        """Starts an episode and writes its first observations, with rewards of 0.

        Args:
            seed: None continues the present random stream.
            rows: Where to write.
            env: Which of the rows.
        """

    @abstractmethod
    def step(self, actions: Tree, rows: Timestep, env: int) -> None:
        """Acts and writes what follows.

        Args:
            actions: [A, ...], within the action space, in its dtypes; the simulator may keep them.
            rows: Where to write.
            env: Which of the rows.
        """

    def render(self) -> np.ndarray:
        """The environment's own picture of its state; needs render_mode="rgb_array"."""
        return np.asarray(self._env.render())

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()


class InvalidOutput(Exception):
    """An environment gave something that its specs do not allow; the text begins with `gave`."""


def signature_hint(call: str, error: BaseException) -> str:
    """Gives the expected signature where `reset` is Gym's of before 0.26; else an empty text."""
    old = call == "reset" and isinstance(error, TypeError) and "keyword argument" in str(error)
    return "; expected reset(self, *, seed=None, options=None)" if old else ""


NUMBERS = (float, int, np.float64, np.float32)


def one_reward(given: Any) -> Any:
    """Gives a reward as one number, be it the only one of an array.

    Raises:
        InvalidOutput: If it is no number, or several.
    """
    if given.__class__ in NUMBERS:
        return given
    array = as_numpy(given)
    if array.dtype.kind not in "biuf":
        raise InvalidOutput(f"gave the reward {given!r:.60}; expected a number")
    if array.size != 1:
        raise InvalidOutput(f"gave {array.size} numbers as the reward; {WEIGH}")
    return array.item()


def as_numpy(given: Any) -> np.ndarray:
    """Gives an array of NumPy; one of None for parts of unequal lengths."""
    try:
        return np.asarray(given)
    except ValueError:
        return np.asarray(None)


WEIGH = (
    "expected one: add them up with weights in a wrapper, such as "
    "mo_gymnasium.wrappers:LinearReward"
)


def one_flag(given: Any) -> Any:
    """Gives a truth value, be it the only one of an array.

    Raises:
        InvalidOutput: If it is none, or several.
    """
    if given.__class__ is bool or given.__class__ is np.bool_:
        return given
    array = as_numpy(given)
    if array.size != 1 or array.dtype.kind not in "biuf" or array.item() not in (0, 1):
        raise InvalidOutput(f"gave {given!r:.60} as terminated or truncated; expected a bool")
    return array.item()


OF_ONE = ("observation", "reward", "terminated", "truncated", "info")
OF_SEVERAL = ("observations", "rewards", "terminations", "truncations", "infos")
"""The results of a step; the first and the last are those of a reset."""


def results(given: Any, call: str, names: Sequence[str]) -> Any:
    """Gives the results of a call; raises InvalidOutput where there are more or fewer.

    A list at a reset is an observation alone, as in Gym before 0.26.
    """
    kinds, expected = (tuple | list, names) if call == "step" else (tuple, (names[0], names[-1]))
    if not isinstance(given, kinds):
        what = type(given).__name__
    elif len(given) != len(expected):
        what = f"{len(given)} values"
    else:
        return given
    raise InvalidOutput(f"gave {what} at {call}; expected ({', '.join(expected)})")


def with_part(observation: gymnasium.Space, name: str, part: gymnasium.Space) -> spaces.Dict:
    """The space of observations with a further part, also of those that are no Dict."""
    named = isinstance(observation, spaces.Dict)
    parts = observation.spaces if named else {"observation": observation}
    return spaces.Dict([*parts.items(), (name, part)])


def add_part(observation: Any, name: str, part: Any) -> dict[str, Any]:
    """An observation with a further part, in the space that `with_part` gives."""
    named = isinstance(observation, Mapping)
    return {**(observation if named else {"observation": observation}), name: part}


class Rendered(NamedTuple):
    """The result of rendering an environment."""

    picture: np.ndarray | None
    failure: str = ""
    """The traceback, where rendering raised."""
    missing: str = ""
    """The package to install first, where one is missing."""


def rendered(render: Callable[[], np.ndarray]) -> Rendered:
    """Calls what renders an environment."""
    try:
        return Rendered(render())
    except (gymnasium.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        return Rendered(None, missing=str(error))
    except (Exception, SystemExit) as error:
        return Rendered(None, formatted(error))


def mentions(env: Any, word: str) -> bool:
    """Tells if a module that defines the environment, a base or a wrapper, has this word.

    Also true where a module's source cannot be read, as in a notebook.
    """
    layers = [env]
    while len(layers) < _MOST_LAYERS and (inner := _inner(layers[-1])) is not None:
        layers.append(inner)
    modules = {kind.__module__ for layer in layers for kind in type(layer).__mro__} - {"builtins"}
    return any(word in _source(module, word) for module in modules)


_MOST_LAYERS = 100


def _inner(layer: Any) -> Any:
    """The environment within a wrapper, or the first of a vector of them; None of others."""
    with suppress(Exception):  # of an attribute that is computed
        return getattr(layer, "env", None) or next(iter(getattr(layer, "envs", ())), None)
    return None


def _source(module: str, otherwise: str) -> str:
    try:
        return inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return otherwise


def observed_space(space: gymnasium.Space, name: str) -> gymnasium.Space:
    """The space of what a pool gives: numbers of 64 bits become 32.

    Raises:
        UserError: If some parts of a Dict are no arrays of numbers, as texts are; they are named.
    """
    parts = space.spaces if isinstance(space, spaces.Dict) else {}
    if wrong := [part for part, own in parts.items() if not _is_numbers(own)]:
        kind = type(parts[wrong[0]]).__name__
        raise UserError(
            f"{name}: observation[{wrong[0]!r}] is a space of {kind}, and policies see numbers "
            f"only; leave it out by --env.ignore {','.join(wrong)} (ignore={wrong}), or wrap the "
            "environment"
        )
    return joined_space(map_tree(narrowed, space_tree(space)))


def _is_numbers(space: gymnasium.Space) -> bool:
    return all(isinstance(leaf, ARRAY_SPACES) for leaf in leaves_of(space_tree(space)))


def narrowed(leaf: gymnasium.Space) -> gymnasium.Space:
    """Gives a leaf with numbers of 32 bits; raises UserError if its bounds do not fit these."""
    if not isinstance(leaf, spaces.Box):
        return _expect_narrow(leaf)
    if narrow_dtype(leaf.dtype) == leaf.dtype:
        return leaf
    dtype = narrow_dtype(leaf.dtype).type
    info, wide = _extremes(dtype), _extremes(leaf.dtype)
    for bound, own in ((leaf.low, wide.min), (leaf.high, wide.max)):
        stated = np.isfinite(bound) & (bound != own)  # a type's own extremes stand for no bound
        if (stated & ((bound < info.min) | (bound > info.max))).any():
            raise _too_wide(leaf, np.dtype(dtype), "numbers of float32")
    low, high = (
        np.where(np.isinf(bound), bound, np.clip(bound, info.min, info.max)).astype(dtype)
        for bound in (leaf.low, leaf.high)
    )
    return spaces.Box(low, high, leaf.shape, dtype)


def _expect_narrow(leaf: gymnasium.Space) -> gymnasium.Space:
    """The space of choices itself; raises UserError if 32 bits do not hold them."""
    if isinstance(leaf, spaces.Discrete | spaces.MultiDiscrete):
        info = np.iinfo(narrow_dtype(leaf.dtype))
        low, high = limits(leaf)
        if np.min(low) < info.min or np.max(high) > info.max:
            raise _too_wide(leaf, info.dtype, "numbers from 0")
    return leaf


def _too_wide(leaf: gymnasium.Space, dtype: np.dtype, wanted: str) -> UserError:
    return UserError(
        f"the space {leaf} has values that {dtype} does not hold, and pools give 32 bits: turn "
        f"them in a wrapper, such as gymnasium.wrappers.TransformObservation, into {wanted}"
    )


def narrow_action(space: gymnasium.Space) -> gymnasium.Space:
    """Gives a space of actions of at most 32 bits, none of them beyond the bounds."""

    def narrow(leaf: gymnasium.Space) -> gymnasium.Space:
        if not isinstance(leaf, spaces.Box) or np.dtype(leaf.dtype) != np.float64:
            return narrowed(leaf)
        return spaces.Box(*inner_bounds(leaf, np.float32), dtype=np.float32)

    return joined_space(map_tree(narrow, space_tree(space)))


def _extremes(dtype: Any) -> Any:
    return np.iinfo(dtype) if np.issubdtype(dtype, np.integer) else np.finfo(dtype)


def supported_action(space: gymnasium.Space, name: str) -> gymnasium.Space:
    """The space itself.

    Raises:
        UserError: If pools cannot take such actions.
    """
    leaves = leaves_of(space_tree(space))
    for leaf in leaves:
        if not (isinstance(leaf, spaces.Box) or has_choices(leaf)):
            raise UserError(
                f"{name}: action space {leaf} is not supported; there may be Box, Discrete, "
                "MultiDiscrete, MultiBinary, and Dict and Tuple of these: wrap the environment"
            )
        if np.dtype(leaf.dtype).kind == "b":
            raise UserError(f"{name}: action space {leaf} has truth values; give MultiBinary")
    if not leaves or any(0 in (leaf.shape or ()) for leaf in leaves):
        raise UserError(f"{name}: action space {space} holds no number; give it at least one")
    return space
