"""Environments that follow Gymnasium's interface, one agent each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import gymnasium

from srl.core.errors import UserError
from srl.core.spaces import has_choices, space_tree
from srl.core.tree import map_tree
from srl.core.types import Specs, Timestep, Tree
from srl.pools.python.masks import (
    MASK,
    add_mask,
    check_mask,
    expect_no_mask,
    has_mask,
    mask_method,
    with_mask,
)
from srl.pools.python.metrics import metric_names, metric_values
from srl.pools.python.simulator import (
    NUMBERS,
    OF_ONE,
    Simulator,
    mentions,
    observed_space,
    one_flag,
    one_reward,
    results,
    supported_action,
)
from srl.pools.python.writer import observation_writer


class GymnasiumSimulator(Simulator):
    """A `gymnasium.Env`.

    Masks of allowed actions that it gives by a method `action_masks()` or in its infos become a
    part of the observation (`srl.pools.python.masks`). Whether infos hold masks shows at a reset
    only, so an environment whose source names them is reset once when it is made; others are left
    alone.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        name: str,
        masked: bool | None = None,
        metrics: Sequence[str] = (),
    ) -> None:
        """Takes an environment that messages call `name`.

        Without `masked`, this finds out whether its infos hold masks. `metrics` are further numbers
        of its infos than those that it declares (`srl.pools.python.metrics`).

        Raises:
            UserError: If its spaces, or its masks, are not supported.
        """
        self._action = action = supported_action(space_of(env, "action_space"), name)
        observed = observed_space(space_of(env, "observation_space"), name)
        check_mask(observed, action, name)
        self._observes_mask = has_mask(observed)
        self._method = None if self._observes_mask else mask_method(env, action, name)
        elsewhere = self._observes_mask or self._method is not None
        self.masked = not elsewhere and (_gives_masks(env, action) if masked is None else masked)
        self._adds_mask = self.masked or self._method is not None
        self.specs = Specs(
            observation=with_mask(observed, action) if self._adds_mask else observed,
            action=action,
            agents=("agent",),
            statistics=metric_names(env, metrics, name),
            max_episode_steps=env.spec.max_episode_steps if env.spec else None,
        )
        self._metrics = self.specs.statistics
        self._env = env
        self._step = env.step
        nested = isinstance(space_tree(action), dict | tuple)
        self._only = partial(map_tree, itemgetter(0)) if nested else itemgetter(0)
        self._write = observation_writer(self.specs.observation)

    def reset(self, seed: int | None, rows: Timestep, env: int) -> None:
        """Starts an episode; see the base class."""
        observation, info = results(self._env.reset(seed=seed), "reset", OF_ONE)
        self._write(self._with_mask(observation, info, "reset"), rows.observation, env)
        if self._metrics:
            rows.statistics[env] = metric_values(info, self._metrics)
        rows.reward[env] = 0
        rows.terminated[env] = rows.truncated[env] = False

    def step(self, actions: Tree, rows: Timestep, env: int) -> None:
        """Acts; see the base class."""
        given = results(self._step(self._only(actions)), "step", OF_ONE)
        observation, reward, terminated, truncated, info = given
        if reward.__class__ not in NUMBERS:
            reward = one_reward(reward)
        rows.reward[env] = reward
        rows.terminated[env], rows.truncated[env] = one_flag(terminated), one_flag(truncated)
        if self._metrics:
            rows.statistics[env] = metric_values(info, self._metrics)
        if info or self._adds_mask:
            observation = self._with_mask(observation, info, "step")
        self._write(observation, rows.observation, env)

    def _with_mask(self, observation: Any, info: Any, call: str) -> Any:
        """Adds the mask to the observation, where the environment gives it elsewhere.

        Raises:
            InvalidOutput: For a mask that the spaces do not promise.
        """
        if self._adds_mask:
            mask = self._method() if self._method else info.get(MASK)
            return add_mask(observation, mask, self._action)
        if info and not self._observes_mask:
            expect_no_mask(info, call, self._action)
        return observation


def space_of(env: gymnasium.Env | gymnasium.vector.VectorEnv, kind: str) -> gymnasium.Space:
    """The environment's `action_space`, `observation_space`, or one of a single environment.

    Raises:
        UserError: If its class has none.
    """
    space = getattr(env, kind, None)
    if isinstance(space, gymnasium.Space):
        return space
    name = type(env.unwrapped).__name__
    given = f"has no {kind}" if space is None else f"has {kind} {space!r:.60}"
    raise UserError(f"{name} {given}; set self.{kind} to a gymnasium.spaces.Space in its __init__")


def _gives_masks(env: gymnasium.Env, action: gymnasium.Space) -> bool:
    """Tells if infos hold masks; no space shows that, so the environment is reset once."""
    if not has_choices(action) or not mentions(env, MASK):
        return False
    try:
        _, info = env.reset(seed=0)
        return MASK in info
    except (Exception, SystemExit):  # reported at the first reset that is asked for
        return False
