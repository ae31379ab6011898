"""Environments of Jumanji as functional environments."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.spaces import choice_counts
from srl.core.types import Array, Tree
from srl.pools.functional.environment import Step
from srl.pools.functional.library import PREFIX, box, imported
from srl.pools.python.masks import MASK
from srl.pools.python.world_state import STATE, asked_for_state


class Jumanji:
    """An environment of Jumanji (https://github.com/instadeepai/jumanji).

    An observation with named parts becomes a Dict. A mask with an entry for each combination of
    several choices makes one Discrete action of them. Where several agents get a reward each, they
    are several agents here, too, which see the parts that have a row for each agent, and all of
    other parts; an episode ends when it has ended for all. With the option `world_state` they also
    have the part `state`: all agents' observations. Elsewhere one policy acts for all.
    """

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        """Makes it; options are those of its class, such as time_limit, and of its generator.

        Raises:
            UserError: If there is none of this name, it does not take an option, or its mask
                does not fit its actions.
        """
        jumanji, self._specs = imported("jumanji", "jumanji"), imported("jumanji", "jumanji.specs")
        options = dict(options)
        self._gives_state = asked_for_state(options)
        try:
            self._env = _made(partial(jumanji.make, name), options)
        except ValueError as error:
            raise UserError(f"{PREFIX}jumanji:{name} cannot be made: {error}") from error
        except TypeError as error:
            raise UserError(f"{PREFIX}jumanji:{name} has no such option: {error}") from error
        space = self._space(self._env.observation_spec)
        self.action_space = self._space(self._env.action_spec)
        self._rows = tuple(self._env.reward_spec.shape)  # (A,) of several agents, () of one
        if self._rows:
            self.agents = tuple(f"agent_{i}" for i in range(*self._rows))
            space, self.action_space = self._of_one(space), self._of_one(self.action_space)
        self._choices: tuple[int, ...] = ()  # what one Discrete action stands for
        if isinstance(space, spaces.Dict) and MASK in space.spaces:
            shape = space[MASK].shape or ()
            self._join_choices(shape)
            entries = sum(_counts(self.action_space))
            if math.prod(shape) != entries:
                raise UserError(
                    f"{PREFIX}jumanji:{name} has a mask of shape {shape} for actions in "
                    f"{self.action_space}; expected an entry for each choice of a Discrete or "
                    "MultiDiscrete action, or for each combination of several"
                )
            space = spaces.Dict({**space.spaces, MASK: spaces.MultiBinary(entries)})
        self.observation_space = space
        if self._gives_state:
            if not self._rows or not isinstance(space, spaces.Dict):
                raise UserError(
                    f"{PREFIX}jumanji:{name} has no several agents with observations of named "
                    "parts, so no world_state; leave it out"
                )
            observed = jax.eval_shape(self._env.reset, jax.eval_shape(lambda: jax.random.key(0)))[1]
            shape = jax.eval_shape(self._seen, observed.observation)[STATE].shape[1:]
            seen = spaces.Box(-np.inf, np.inf, shape, np.float32)
            self.observation_space = spaces.Dict({**space.spaces, STATE: seen})

    def reset(self, key: Array) -> tuple[Tree, Tree]:
        """Begins an episode."""
        state, timestep = self._env.reset(key)
        return state, self._seen(timestep.observation)

    def step(self, state: Tree, action: Array, key: Array) -> Step:
        """Takes a step; what is drawn follows from a key in the state."""
        if self._choices:
            action = jnp.stack(jnp.unravel_index(action, self._choices))
        state, timestep = self._env.step(state, action)
        last, alive = timestep.last(), jnp.any(jnp.asarray(timestep.discount) > 0)
        reward = timestep.reward.astype(jnp.float32)
        observation = self._seen(timestep.observation)
        return Step(state, observation, reward, last & ~alive, last & alive)

    def _join_choices(self, mask: tuple[int, ...]) -> None:
        """Makes one choice of several whose mask, of this shape, has an entry for each of all."""
        counts = _counts(self.action_space)
        if len(counts) > 1 and mask == counts:
            self._choices = counts
            self.action_space = spaces.Discrete(math.prod(counts))

    def _of_one(self, space: spaces.Space) -> spaces.Space:
        """Gives one agent's part of a space; all of a part without a row for each agent."""
        if isinstance(space, spaces.Dict):
            return spaces.Dict({name: self._of_one(part) for name, part in space.items()})
        if (space.shape or ())[:1] != self._rows:
            return space
        if isinstance(space, spaces.MultiDiscrete):
            one = np.asarray(space.nvec)[0]
            return spaces.MultiDiscrete(one) if one.shape else spaces.Discrete(int(one))
        if isinstance(space, spaces.MultiBinary):
            return spaces.MultiBinary(space.shape[1:])
        assert isinstance(space, spaces.Box)
        return spaces.Box(space.low[0], space.high[0], dtype=space.dtype.type)

    def _seen(self, observation: Any) -> Tree:
        """Gives the observation, with all agents' parts but their masks where that is asked for."""
        observed = self._observed(observation)
        if not self._gives_state:
            return observed
        parts = jax.tree.leaves({name: x for name, x in observed.items() if name != MASK})
        state = jnp.concatenate([jnp.ravel(x).astype(jnp.float32) for x in parts])
        return {**observed, STATE: jnp.broadcast_to(state, (*self._rows, *state.shape))}

    def _observed(self, observation: Any) -> Tree:
        parts, agents = _parts(observation), self._rows
        if parts is None:
            shape = jnp.shape(observation)
            own = shape[: len(agents)] == agents
            return observation if own else jnp.broadcast_to(observation, (*agents, *shape))
        observed = {name: self._observed(part) for name, part in parts.items()}
        if MASK in observed:
            observed[MASK] = observed[MASK].reshape(*agents, -1)
        return observed

    def _space(self, spec: Any) -> spaces.Space:
        specs = self._specs
        if isinstance(spec, specs.DiscreteArray):
            return spaces.Discrete(int(spec.num_values))
        if isinstance(spec, specs.MultiDiscreteArray):
            return spaces.MultiDiscrete(np.asarray(spec.num_values))
        if not isinstance(spec, specs.Array):
            nested = {name: x for name, x in vars(spec).items() if isinstance(x, specs.Spec)}
            return spaces.Dict([(name, self._space(x)) for name, x in nested.items()])
        dtype, shape = np.dtype(spec.dtype), tuple(spec.shape)
        if np.issubdtype(dtype, np.bool_):
            return spaces.MultiBinary(shape) if shape else spaces.Discrete(2)
        if not isinstance(spec, specs.BoundedArray):
            return spaces.Box(-np.inf, np.inf, shape, dtype.type)
        return box(spec.minimum, spec.maximum, spec)


def _made(make: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Makes an environment; options of its generator change the default one.

    Raises:
        UserError: If an argument of the generator is not known.
    """
    if not options:
        return make()
    generator = getattr(make(), "_generator", None)
    names = inspect.signature(type(generator).__init__).parameters if generator is not None else ()
    own = {name: value for name, value in options.items() if name in names}
    if own:
        for name in names:
            if name != "self" and name not in own:
                own[name] = getattr(generator, name, getattr(generator, f"_{name}", None))
        lost = [name for name, value in own.items() if value is None]
        if lost:
            raise UserError(
                f"the generator {type(generator).__name__} does not tell its {', '.join(lost)}; "
                "give these options as well"
            )
        others = {name: value for name, value in options.items() if name not in own}
        options = {**others, "generator": type(generator)(**own)}
    return make(**options)


def _counts(action: spaces.Space) -> tuple[int, ...]:
    """Counts the values of each choice of an action; gives none for a Box."""
    if not isinstance(action, spaces.Discrete | spaces.MultiDiscrete):
        return ()
    return tuple(map(int, choice_counts(action).ravel()))


def _parts(observation: Any) -> Mapping[str, Any] | None:
    """The parts of a NamedTuple or a dataclass; None of an array."""
    if hasattr(observation, "_asdict"):
        return observation._asdict()
    return getattr(observation, "__dict__", None) if not hasattr(observation, "shape") else None
