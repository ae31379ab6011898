"""Trained policies that act in a user's program, without a pool or an environment.

agent = srl.load("runs/cartpole")
action, memory = agent.act(observation)

They need the run's folder and JAX, but not Gymnasium. Attention on CPUs calls srl's C++ module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from srl.algorithms.privileged import policy_specs, visible
from srl.core.config_values import made_from
from srl.core.errors import UserError, expect, expect_number
from srl.core.lazy import jax, jnp
from srl.core.settings import MOST_SEED
from srl.core.spaces import (
    Space,
    narrow_dtype,
    outside,
    own_action,
    padded,
    shaped_like,
    space_tree,
    spaces,
)
from srl.core.tree import leaves_of, map_tree, names_of
from srl.core.types import Array, Tree
from srl.loop.acting.trained import acting_policy_set, trained_policies
from srl.record.checkpoint import Checkpoints
from srl.record.run_record import (
    RunFolder,
    find_run,
    read_config,
    read_specs,
    recorded_algorithm,
    settings_importer,
)
from srl.record.trust import is_own

MASK = "action_mask"


def load(
    run_dir: Path | str, version: int | str | None = None, *, seed: int = 0, trust: bool = False
) -> Agent:
    """Loads the policies of a run's checkpoint.

    Algorithms and networks that srl ships are loaded from any folder. Others are code, which runs
    only if the user has made the run, or trusts its folder (docs/security.md).

    Args:
        run_dir: The run's folder, or a folder of runs, for the newest of them.
        version: The checkpoint's version, or "best"; the newest by default.
        seed: The seed of sampled actions.
        trust: True imports all modules that another person's folder names.

    Raises:
        UserError: If there is no run or no such checkpoint, or if a part of its algorithm cannot,
            or may not, be imported.
    """
    expect_number("seed", seed, 0, MOST_SEED)
    return Agent(find_run(run_dir, trained=True), version, seed, trust)


class Agent:
    """The policies of a run, for each agent of its environments."""

    def __init__(
        self, folder: RunFolder, version: int | str | None, seed: int, trust: bool
    ) -> None:
        config = read_config(folder)
        values = config["experiment"]
        trusted = trust or is_own(config)
        algorithm = recorded_algorithm(folder, config, trusted=trusted)
        self._privileged = tuple(algorithm.privileged)
        self.specs = specs = policy_specs(read_specs(folder), self._privileged)
        """The specs of the run's environments, without privileged keys."""
        policies, num_envs = values.get("policies"), values.get("num_envs")
        good = isinstance(policies, dict) and isinstance(num_envs, int)
        expect(
            good, f"{folder.config}: policies and num_envs", (policies, num_envs), "what a run has"
        )
        policies = made_from(policies, import_module=settings_importer(folder))
        policy_set = acting_policy_set(algorithm, policies, specs, num_envs)
        self.policies, counts = trained_policies(
            policy_set, Checkpoints(folder.checkpoints), version
        )
        """The acting part of each policy, by the policy's name."""
        self.instances = policy_set.instances
        """The functions of each policy."""
        self.path = folder.path
        """The run's folder."""
        self.version = counts["updates"]
        """The checkpoint's version: the updates that have led to it."""
        self.env_steps = counts["env_steps"]
        """Steps of environments that have led to it."""
        self.agents = specs.agents
        """The names of the environments' agents."""
        env = values.get("env")
        env_name = (env.get("id") or env.get("type")) if isinstance(env, dict) else env
        self._about = f"{type(algorithm).__name__} on {env_name}"
        self._key, self._calls = jax.random.key(seed), 0
        self._policy_of = {specs.agents[i]: n for n, own in policy_set.members.items() for i in own}
        self._greedy = {name: jax.jit(i.act_greedy) for name, i in policy_set.instances.items()}
        self._drawn = {name: jax.jit(partial(_draw, i)) for name, i in policy_set.instances.items()}

    def __repr__(self) -> str:
        if len(self.agents) == 1:
            spaces_text = f"{self.observation_space()} -> {self.action_space()}"
        else:
            spaces_text = f"agents {', '.join(self.agents)}"
        return (
            f"<Agent {self._about}, policies {', '.join(self.policies)}, version {self.version} "
            f"({self.env_steps:,} env steps), {spaces_text}>"
        )

    def observation_space(self, agent: str | None = None) -> Space:
        """Gives an agent's observation space, with action masks; by default the only agent's."""
        return self._spaces(agent)[0]

    def action_space(self, agent: str | None = None) -> Space:
        """Gives an agent's action space; by default the only agent's."""
        return self._spaces(agent)[1]

    def act(
        self,
        observation: Any,
        memory: Any = None,
        deterministic: bool = True,
        *,
        action_mask: Any = None,
    ) -> tuple[Any, Any]:
        """Chooses actions.

        With several agents, arguments and results are dicts by agent, as in PettingZoo, without
        absent agents.

        Args:
            observation: The observation of one environment, or of N, with a leading axis of N.
            memory: The memory from the last step; None at the start of an episode. In a batch, the
                rows of starting episodes must be zeros.
            deterministic: True takes the most probable actions, False samples them.
            action_mask: 1 for each allowed action, or None for all; needed if the environment
                gives masks in its infos or by a method. Agents that only have different numbers of
                actions need none.

        Returns:
            The actions, as the environment takes them, and the memory for the next step, which is
            None without memory.

        Raises:
            UserError: If something is missing, or of another shape or type than in training.
        """
        if len(self.agents) == 1:
            return self._act(self.agents[0], "", observation, memory, deterministic, action_mask)
        given = {"observation": observation, "memory": memory, "action_mask": action_mask}
        for name, by_agent in given.items():
            if by_agent is not None or name == "observation":
                self._expect_agents(name, by_agent)
        memories, masks = memory or {}, action_mask or {}
        decided = {
            agent: self._act(
                agent, f" of {agent}", own, memories.get(agent), deterministic, masks.get(agent)
            )
            for agent, own in observation.items()
        }
        actions = {agent: action for agent, (action, _) in decided.items()}
        return actions, {agent: following for agent, (_, following) in decided.items()}

    def _act(
        self, agent: str, of: str, observation: Any, memory: Any, deterministic: bool, mask: Any
    ) -> tuple[Any, Any]:
        """The action of one agent, or of one agent in each of N environments."""
        space, action_space = self._spaces(agent)
        observation = visible(observation, self._privileged)
        numbers = [action for _, action in self.specs.agent_spaces]
        own_masks = any(action != numbers[0] for action in numbers)  # srl's, of padded actions
        observation = _with_mask(observation, mask, space, of, optional=own_masks)
        rows, single = _rows(observation, space, f"observation{of}")
        common = space_tree(self.specs.observation)
        rows = map_tree(lambda leaf, x: padded(x, leaf.shape), common, rows)
        count = len(leaves_of(rows)[0])
        name = self._policy_of.get(agent, "")
        if not name:
            raise UserError(
                f"{agent} was played by a fixed policy of another run, which the config.json of "
                f"{self.path} names; load that run for it"
            )
        instance, policy = self.instances[name], self.policies[name]
        remembered = self._memory(instance.initial_memory(count), memory, single, of)
        if deterministic:
            decision = self._greedy[name](policy, rows, remembered)
        else:
            self._calls += 1
            key = jax.random.fold_in(self._key, self._calls)
            decision = self._drawn[name](policy, rows, remembered, key)
        action = instance.env_action(map_tree(np.asarray, decision.action))
        action = own_action(action_space, action)
        following = decision.memory if jax.tree.leaves(decision.memory) else None
        if single:
            action, following = jax.tree.map(lambda x: x[0], (action, following))
        return action, following

    def _memory(self, start: Tree, memory: Any, single: bool, of: str) -> Tree:
        """The memory of each row, which has to be of the form in which an episode starts."""
        if memory is None:
            return start
        try:
            rows = jax.tree.map(jnp.asarray, memory)
            rows = jax.tree.map(lambda x: x[None], rows) if single else rows
        except (TypeError, ValueError):  # of what is no array
            rows = None
        wanted, given = (jax.tree.map(lambda x: (x.shape, x.dtype), tree) for tree in (start, rows))
        if wanted != given:
            raise UserError(
                f"the memory{of} is not what act has returned for as many observations: give that, "
                "or None at the begin of an episode"
            )
        return rows

    def _spaces(self, agent: str | None) -> tuple[Space, Space]:
        if agent is None and len(self.agents) == 1:
            agent = self.agents[0]
        expect(agent in self.agents, "agent", agent, f"one of {', '.join(self.agents)}")
        if self.specs.agent_spaces:
            return self.specs.agent_spaces[self.agents.index(str(agent))]
        return self.specs.observation, self.specs.action

    def _expect_agents(self, name: str, by_agent: Any) -> None:
        names = ", ".join(self.agents)
        if not isinstance(by_agent, Mapping):
            raise UserError(
                f"{name} is {type(by_agent).__name__}; expected a dict by agent: {names}"
            )
        if unknown := [agent for agent in by_agent if agent not in self.agents]:
            raise UserError(f"{name} has {unknown[0]!r}, which is no agent; there are {names}")


def _draw(instance: Any, policy: Any, rows: Tree, memory: Tree, key: Array) -> Any:
    count = len(leaves_of(rows)[0])
    slots = jnp.arange(count, dtype=jnp.int32)
    return instance.act(policy, rows, memory, jax.random.split(key, count), slots)


def _with_mask(observation: Any, mask: Any, space: Space, of: str, *, optional: bool) -> Any:
    """An observation with its mask where policies look for it, as pools put it there."""
    masked = isinstance(space, spaces.Dict) and MASK in space.spaces
    if not masked:
        if mask is not None:
            raise UserError(
                f"action_mask{of} is given, but the policies were trained without masks: leave it "
                "out"
            )
        return observation
    assert isinstance(space, spaces.Dict)
    if isinstance(observation, Mapping) and MASK in observation:
        if mask is not None:
            raise UserError(f"the observation{of} has an action_mask already; leave one out")
        return observation
    if mask is None and not optional:
        raise UserError(
            f"the policies were trained with masks of actions, and the observation{of} has none: "
            f"give action_mask=, {_size(space[MASK])} numbers, 1 for allowed"
        )
    if isinstance(mask, tuple | list) and isinstance(space[MASK], spaces.MultiBinary):
        parts = [np.asarray(part) for part in mask]
        mask = np.concatenate(parts, axis=-1) if parts and parts[0].ndim else np.asarray(mask)
    others = set(space.spaces) - {MASK}
    if others == {"observation"} and not (
        isinstance(observation, Mapping) and others == set(observation)
    ):
        observation = {"observation": observation}
    if not isinstance(observation, Mapping):
        raise UserError(
            f"the observation{of} is {type(observation).__name__}; expected a dict of "
            f"{', '.join(sorted(others))}"
        )
    if mask is None:
        seen = spaces.Dict({name: space[name] for name in others})
        rows, single = _rows(observation, seen, f"observation{of}")
        lead = () if single else (len(leaves_of(rows)[0]),)
        mask = np.ones((*lead, _size(space[MASK])), np.int8)
    return {**observation, MASK: mask}


def _size(space: Space) -> int:
    return sum(math.prod(leaf.shape or ()) for leaf in leaves_of(space_tree(space)))


def _rows(observation: Any, space: Space, path: str) -> tuple[Tree, bool]:
    """An observation as arrays [N, ...] of the dtypes that pools give, and whether it is one."""
    tree = shaped_like(observation, space_tree(space), path, _array)
    arrays, leaves = leaves_of(tree), leaves_of(space_tree(space))
    names = leaves_of(names_of(space_tree(space)))
    single = arrays[0].ndim <= len(leaves[0].shape)
    count = 1 if single else len(arrays[0])
    if not count:
        raise UserError(f"{path} has no rows; expected one observation, or N > 0 of them")
    for array, leaf, name in zip(arrays, leaves, names, strict=True):
        lead = () if single else (count,)
        if array.shape != (*lead, *leaf.shape):
            where = f"{path}, {name}," if name else path
            raise UserError(
                f"{where} has shape {array.shape}; expected {leaf.shape}, or {('N', *leaf.shape)} "
                f"of a batch with one N for all".replace("'N'", "N")
            )
    return map_tree(lambda x: x[None] if single else x, tree), single


def _array(value: Any, space: Space, path: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:  # its parts are of unequal lengths
        array = np.asarray(None)
    if array.dtype.kind == "O":
        pair = isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict)
        reset = ": env.reset() gives an observation and infos, of which the first is meant"
        raise UserError(
            f"{path} is {type(value).__name__}{reset if pair else ''}; expected an array of {space}"
        )
    dtype = narrow_dtype(space.dtype)
    if array.dtype.kind not in ("iubf" if dtype.kind == "f" else "iub"):
        raise UserError(f"{path} has dtype {array.dtype}; expected {dtype}, of {space}")
    if dtype.kind != "f" and (wrong := _outside(array, space)) is not None:
        raise UserError(f"{path} has the value {wrong}, which is not in {space}")
    return array.astype(dtype)


def _outside(array: np.ndarray, space: Space) -> Any:
    """A number that is beyond the limits of its space; None where there is none."""
    assert space.shape is not None
    if array.shape[array.ndim - len(space.shape) :] != space.shape:
        return None  # which is reported by its shape
    beyond = outside(array, space)
    return array[beyond][0] if beyond.any() else None
