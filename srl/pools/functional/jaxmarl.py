"""Environments of JaxMARL as functional environments."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.spaces import padded
from srl.core.types import Array, Tree
from srl.pools.functional.environment import Step
from srl.pools.functional.library import PREFIX, gymnax_space, imported, unbounded
from srl.pools.python.masks import MASK, num_choices, with_mask
from srl.pools.python.padding import common_space
from srl.pools.python.simulator import with_part
from srl.pools.python.world_state import STATE, asked_for_state

_MASKS = ("get_avail_actions", "get_legal_moves")


class JaxMARL:
    """An environment of JaxMARL (https://github.com/FLAIROX/JaxMARL), with several agents.

    Agents whose spaces differ in size are padded to be alike. Where the environment gives masks of
    Discrete actions, or agents have different numbers of them, observations are Dicts with the
    parts `observation` and `action_mask`; the option `world_state` adds the part `state`, which is
    the same for all agents: the environment's own, if it has one, else all agents' observations.
    The option `shaped_reward` is the weight of the helping rewards that Overcooked gives apart,
    0 by default. What ends at `max_steps` is truncated.
    """

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        """Makes it; options are those of its class, such as max_steps.

        Raises:
            UserError: If there is none of this name, it does not take an option, it begins episodes
                by itself, or its spaces are not supported.
        """
        jaxmarl, full = imported("jaxmarl", "jaxmarl"), f"{PREFIX}jaxmarl:{name}"
        options = dict(options)
        self._gives_state = asked_for_state(options)
        self._shaped = float(options.pop("shaped_reward", 0.0))
        try:
            self._env = jaxmarl.make(name, **_maps(name, options))
        except (KeyError, ValueError, ImportError) as error:
            raise UserError(f"{full} cannot be made: {error}") from error
        except TypeError as error:
            raise UserError(f"{full} does not take these options: {error}") from error
        if getattr(self._env, "auto_reset", False):
            raise UserError(f"{full} begins episodes by itself; add the option auto_reset=False")
        self._limit: int | None = getattr(self._env, "max_steps", None)
        self.agents = tuple(self._env.agents)
        key = jax.eval_shape(lambda: jax.random.key(0))
        observed, state = jax.eval_shape(self._env.reset, key)
        if not isinstance(observed, dict) or not set(self.agents) <= set(observed):
            raise UserError(f"{full} does not give observations by the names of its agents")
        if self._shaped and not self._helps(state, key):
            raise UserError(f"{full} gives no shaped_reward; leave out this option")
        # Traced, as some environments declare other shapes than they give.
        own = {agent: unbounded(observed[agent]) for agent in self.agents}
        actions = {agent: gymnax_space(self._env.action_space(agent)) for agent in self.agents}
        self.action_space = common_space(actions, "action", full)
        self._discrete = isinstance(self.action_space, spaces.Discrete)
        self._masks = self._mask_method(state) if self._discrete else None
        differ = self._discrete and any(space != self.action_space for space in actions.values())
        self._masked = self._masks is not None or differ
        self._unpadded = common_space(own, "observation", full).shape or ()
        if self._gives_state:
            shape = jax.eval_shape(self._state_of, observed).shape
            seen = spaces.Box(-np.inf, np.inf, shape, np.float32)
            own = {agent: with_part(own[agent], STATE, seen) for agent in self.agents}
        if self._masked:
            own = {agent: with_mask(own[agent], actions[agent]) for agent in self.agents}
        self.observation_space = common_space(own, "observation", full)
        self._actions = actions
        pairs = tuple(zip(own.values(), actions.values(), strict=True))
        common = (self.observation_space, self.action_space)
        self.agent_spaces = () if all(pair == common for pair in pairs) else pairs

    def reset(self, key: Array) -> tuple[Tree, Tree]:
        """Begins an episode; the state counts its steps."""
        observations, state = self._env.reset(key)
        return (state, jnp.int32(0)), self._observed(observations, state)

    def step(self, state: Tree, action: Array, key: Array) -> Step:
        """Takes a step; an agent's action beyond its own number of them counts as its last one."""
        before, steps = state
        actions = {agent: self._own_action(agent, action[i]) for i, agent in enumerate(self.agents)}
        observations, after, rewards, dones, infos = self._env.step_env(key, before, actions)
        ended = jnp.stack([dones[agent] | dones["__all__"] for agent in self.agents])
        steps = steps + 1
        timed_out = jnp.bool_(False) if self._limit is None else steps >= self._limit
        if self._shaped:
            helping = infos["shaped_reward"]
            rewards = {agent: rewards[agent] + self._shaped * helping[agent] for agent in helping}
        reward = jnp.stack([jnp.asarray(rewards[agent], jnp.float32) for agent in self.agents])
        observed = self._observed(observations, after)
        return Step((after, steps), observed, reward, ended & ~timed_out, ended & timed_out)

    def _helps(self, state: Tree, key: Array) -> bool:
        """Tells if steps give helping rewards apart."""
        action = self._env.action_space(self.agents[0]).sample
        actions = dict.fromkeys(self.agents, jax.eval_shape(action, key))
        return "shaped_reward" in jax.eval_shape(self._env.step_env, key, state, actions)[-1]

    def _mask_method(self, state: Tree) -> Any:
        """The method that gives masks, as the environments have two; None without."""
        for name in _MASKS:
            method = getattr(self._env, name, None)
            try:
                masks = method and jax.eval_shape(method, state)
            except NotImplementedError:
                continue
            if isinstance(masks, dict) and set(self.agents) <= set(masks):
                return method
        return None

    def _own_action(self, agent: str, action: Array) -> Array:
        space = self._actions[agent]
        if isinstance(space, spaces.Discrete):
            return jnp.minimum(action, int(space.n) - 1)
        return action[tuple(slice(size) for size in space.shape or ())]

    def _observed(self, observations: Tree, state: Tree) -> Tree:
        """Gives those of all agents, [A, ...], padded with zeros."""
        joined = jnp.stack([padded(observations[x], self._unpadded, jnp) for x in self.agents])
        parts = {"observation": joined}
        if self._gives_state:
            parts[STATE] = jnp.stack([self._state_of(observations)] * len(self.agents))
        if not self._masked:
            return parts if self._gives_state else joined
        assert isinstance(self.action_space, spaces.Discrete)
        given = self._masks(state) if self._masks else {}
        own = [given[x] if given else jnp.ones(num_choices(self._actions[x])) for x in self.agents]
        count = (int(self.action_space.n),)
        return {**parts, MASK: jnp.stack([padded(x, count, jnp) for x in own])}

    def _state_of(self, observations: Tree) -> Array:
        """The environment's own state, else all agents' observations one after the other."""
        given = observations.get("world_state")
        if given is None:
            given = jnp.concatenate([jnp.ravel(observations[agent]) for agent in self.agents])
        return jnp.ravel(given).astype(jnp.float32)


def _maps(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options with SMAX's and Overcooked's maps in place of their names."""
    if isinstance(scenario := options.get("scenario"), str):
        smax = imported("jaxmarl", "jaxmarl.environments.smax")
        return {**options, "scenario": smax.map_name_to_scenario(scenario)}
    if name == "overcooked" and isinstance(layout := options.get("layout"), str):
        layouts = imported("jaxmarl", "jaxmarl.environments.overcooked").overcooked_layouts
        if layout not in layouts:
            raise UserError(f"overcooked has no layout {layout!r}; it has {', '.join(layouts)}")
        return {**options, "layout": layouts[layout]}
    return options
