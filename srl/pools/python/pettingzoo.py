"""Environments that follow PettingZoo's parallel interface, with agents that come and go."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from srl.core.errors import UserError
from srl.core.optional_packages import install_command, pip_install
from srl.core.spaces import has_choices, outside, own_action
from srl.core.tree import leaves_of, map_tree
from srl.core.types import Specs, Timestep, Tree
from srl.pools.python.masks import (
    MASK,
    add_mask,
    check_mask,
    expect_no_mask,
    has_mask,
    with_mask,
)
from srl.pools.python.metrics import metric_names, metric_values
from srl.pools.python.padding import common_space, crop
from srl.pools.python.simulator import (
    OF_SEVERAL,
    InvalidOutput,
    Simulator,
    observed_space,
    one_flag,
    one_reward,
    results,
    supported_action,
)
from srl.pools.python.writer import observation_writer


def parallel_maker(path: str) -> Callable[..., Any]:
    """The function that makes an environment, by the path of its module.

    Args:
        path: Of a module with a function `parallel_env`, such as mpe2.simple_tag_v3, or of any
            callable, such as package.module:factory.

    Raises:
        ModuleNotFoundError: If there is no such module.
        UserError: If the module has no such function, or needs PettingZoo and there is none.
    """
    module_path, _, attribute = path.partition(":")
    attribute = attribute or "parallel_env"
    try:
        module = importlib.import_module(module_path)
    except ModuleNotFoundError as error:
        if hint := _what_to_install(module_path, error.name or ""):
            raise UserError(f"{module_path} needs {error.name}: {hint}") from error
        raise
    if hasattr(module, attribute):
        return getattr(module, attribute)
    if attribute == "parallel_env" and hasattr(module, "env"):
        name = module_path.rpartition(".")[2]
        raise UserError(
            f"the agents of {module_path} take turns, as it has no parallel_env; write a function "
            f"that returns turn_based_aec_to_parallel({name}.env()), of "
            "pettingzoo.utils.conversions, and name it: pettingzoo:my_module:my_function"
        )
    raise UserError(
        f"module {module_path} has no {attribute}; name what makes a parallel environment, as "
        f"in pettingzoo:{module_path}:factory"
    )


def _what_to_install(module_path: str, missing: str) -> str:
    """Gives the advice to install an environment's missing module; empty for unknown ones."""
    family = module_path.removeprefix("pettingzoo.").partition(".")[0]
    if missing == "pettingzoo":
        return f"PettingZoo is not installed; try: {install_command('pettingzoo')}"
    if missing == "mpe2":
        return f"it is not installed; try: {pip_install('mpe2')}"
    if module_path.startswith("pettingzoo.") and not missing.startswith("pettingzoo"):
        return f"it is not installed; try: {pip_install(f'pettingzoo[{family}]')}"
    return ""


def is_parallel_env(env: Any) -> bool:
    """Tells if this is an environment of PettingZoo's parallel interface.

    Raises:
        UserError: If it is one whose agents take turns.
    """
    if not hasattr(env, "possible_agents") or not callable(getattr(env, "action_space", None)):
        return False
    if hasattr(env, "agent_iter"):
        raise UserError(
            f"the agents of {env} take turns; make it parallel, where they act together, by "
            "aec_to_parallel or turn_based_aec_to_parallel of pettingzoo.utils.conversions"
        )
    return True


class PettingZooSimulator(Simulator):
    """A `pettingzoo.ParallelEnv`.

    Agents whose spaces differ in size are padded to be alike (`srl.pools.python.padding`), and
    `specs.agent_spaces` holds their own. Where their Discrete actions differ in number, and where
    the environment gives masks in its infos, the observation is a Dict with an `action_mask` of
    allowed actions (MultiBinary): it gets one, or becomes one with the parts `observation` and
    `action_mask`.

    An agent that an environment no longer has is terminated, one that it does not have yet is
    truncated, with observations of zeros. One that leaves and is flagged neither
    terminated nor truncated is truncated.
    """

    def __init__(
        self, env: Any, name: str, masked: bool | None = None, metrics: Sequence[str] = ()
    ) -> None:
        """Takes an environment that messages call `name`.

        Without `masked`, this finds out whether its infos hold masks. `metrics` are further numbers
        of its infos than those that it declares (`srl.pools.python.metrics`); each is the mean over
        the agents of what they gave last.

        Raises:
            UserError: If its spaces, or its masks, are not supported, or cannot be padded to be
                alike.
        """
        self._env = env
        self._agents: list[Any] = list(env.possible_agents)
        if not self._agents:
            raise UserError(f"{name} has no possible_agents")
        names = tuple(str(agent) for agent in self._agents)
        if len(set(names)) < len(names):
            raise UserError(f"{name}: possible_agents {list(names)} have the same name twice")
        actions = {
            own: supported_action(env.action_space(agent), f"{name}: {own}")
            for own, agent in zip(names, self._agents, strict=True)
        }
        observed = {
            own: observed_space(env.observation_space(agent), f"{name}: {own}")
            for own, agent in zip(names, self._agents, strict=True)
        }
        action = common_space(actions, "action", name)
        for own in names:
            check_mask(observed[own], actions[own], f"{name}: {own}")
        self._observes_mask = any(map(has_mask, observed.values()))
        self.masked = not self._observes_mask and has_choices(action)
        if self.masked:
            self.masked = self._gives_masks() if masked is None else masked
        differ = isinstance(action, spaces.Discrete) and any(a != action for a in actions.values())
        self._adds_mask = self.masked or (differ and not self._observes_mask)
        if self._adds_mask:
            observed = {own: with_mask(observed[own], actions[own]) for own in names}
        observation = common_space(observed, "observation", name)
        own = tuple(zip(observed.values(), actions.values(), strict=True))
        alike = all(pair == (observation, action) for pair in own)
        self.specs = Specs(
            observation,
            action,
            names,
            statistics=metric_names(env, metrics, name),
            agent_spaces=() if alike else own,
        )
        self._values = np.zeros((len(names), len(self.specs.statistics)), np.float32)
        self._own = own
        self._writers = [
            observation_writer(space, f"{agent}'s observation") for agent, space in observed.items()
        ]
        self._padded = [space != observation for space in observed.values()]
        self._joined = np.zeros(len(names), bool)
        self._done = np.zeros(len(names), bool)

    def _gives_masks(self) -> bool:
        """Tells if infos hold masks; no space shows that, so the environment is reset once."""
        _, infos = self._env.reset(seed=0)
        return any(MASK in (info or ()) for info in (infos or {}).values())

    def reset(self, seed: int | None, rows: Timestep, env: int) -> None:
        """Starts an episode; see the base class."""
        observations, infos = results(self._env.reset(seed=seed), "reset", OF_SEVERAL)
        if not self._env.agents:
            raise InvalidOutput("has no agents after a reset")
        self._joined[:] = self._done[:] = False
        self._values[:] = np.nan
        nothing: dict[Any, Any] = {}
        self._write(set(), (observations, nothing, nothing, nothing, infos), rows, env)

    def step(self, actions: Tree, rows: Timestep, env: int) -> None:
        """Acts; see the base class."""
        acting = set(self._env.agents)
        chosen = {
            agent: self._own_action(i, map_tree(lambda x, i=i: x[i], actions))
            for i, agent in enumerate(self._agents)
            if agent in acting
        }
        given = results(self._env.step(chosen), "step", OF_SEVERAL)
        self._write(acting, given, rows, env)

    def _own_action(self, index: int, action: Tree) -> Any:
        """An action without what it was padded with."""
        space = self._own[index][1]
        if isinstance(space, spaces.Discrete) and outside(action, space):
            raise UserError(
                f"the action {action} of {self.specs.agents[index]} is not in {space}; "
                "observation['action_mask'] marks the actions that are"
            )
        return own_action(space, action)

    def _write(self, acting: set[Any], given: Any, rows: Timestep, env: int) -> None:
        """Writes what a call gave: a row for each agent, be it there or not."""
        for what, by_agent in zip(OF_SEVERAL, given, strict=True):
            if not isinstance(by_agent, Mapping):
                kind = type(by_agent).__name__
                raise InvalidOutput(f"gave {what} as {kind}; expected a dict by agent")
        observations, rewards, terminations, truncations, infos = given
        staying = set(self._env.agents)
        if unknown := staying.difference(self._agents):
            raise InvalidOutput(
                f"has agents {sorted(map(str, unknown))}, which are no possible_agents"
            )
        for i, agent in enumerate(self._agents):
            slot = env * len(self._agents) + i
            rows.reward[slot] = one_reward(rewards.get(agent, 0)) if agent in acting else 0
            terminated = one_flag(terminations.get(agent, False))
            truncated = one_flag(truncations.get(agent, False))
            present = agent in staying or (agent in acting and agent in observations)
            if present and not (self._done[i] and (terminated or truncated)):
                if agent not in observations:
                    raise InvalidOutput(
                        f"gave no observation of {agent}, which is among its agents"
                    )
                self._observe(i, observations[agent], infos.get(agent) or {}, rows, slot)
                self._joined[i] = True
                truncated = truncated or (agent not in staying and not terminated)
            else:
                for array in leaves_of(rows.observation):
                    array[slot] = 0
                terminated, truncated = bool(self._joined[i]), not self._joined[i]
            self._done[i] = terminated or truncated
            rows.terminated[slot], rows.truncated[slot] = terminated, truncated
        if self.specs.statistics:
            self._write_metrics(infos, rows, env)

    def _write_metrics(self, infos: Mapping[Any, Any], rows: Timestep, env: int) -> None:
        for i, agent in enumerate(self._agents):
            given = np.array(metric_values(infos.get(agent), self.specs.statistics), np.float32)
            np.copyto(self._values[i], given, where=~np.isnan(given))
        there = ~np.isnan(self._values)
        sums, counts = np.where(there, self._values, 0).sum(0), there.sum(0)
        rows.statistics[env] = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)

    def _observe(
        self, i: int, value: Any, info: Mapping[str, Any], rows: Timestep, slot: int
    ) -> None:
        space, action = self._own[i]
        if self._adds_mask:
            value = add_mask(value, info.get(MASK), action)
        elif info and not self._observes_mask:
            expect_no_mask(info, "a step", action)
        memory: Tree = rows.observation
        if self._padded[i]:
            memory, slot = crop(space, memory, slice(slot, slot + 1)), 0
        self._writers[i](value, memory, slot)
