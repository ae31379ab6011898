"""Environments of several tasks in one pool: padded spaces, and the number of the task.

A task's environments are a pool of their own. Observations are Dicts: what the tasks observe,
padded with zeros up to the largest; `task`, which counts through the tasks; and, where actions
differ, `action_mask`, which is 0 for choices or numbers that the task does not have.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from srl.algorithms.stretch import Stretch
from srl.core.backends import MIXTURE, backend_of, id_of, task_ids
from srl.core.errors import UserError, expect, expect_number
from srl.core.lazy import jax, jnp
from srl.core.spaces import bounded, corner, joined_space, padded, space_tree
from srl.core.tree import map_tree
from srl.core.types import Array, Specs, Timestep, Tree
from srl.pools.config import EnvConfig, NamedEnv, with_options
from srl.pools.pool import (
    Pool,
    as_actions,
    as_env_ids,
    checked_seed,
    longest_episode,
    seed_offset,
)
from srl.pools.python.padding import common_space
from srl.pools.python.python_pool import copy_rows
from srl.pools.python.simulator import narrow_action, observed_space
from srl.pools.timestep_arrays import Row, slots_of

TASK, MASK, OBSERVATION = "task", "action_mask", "observation"
_LENGTH = struct.Struct("<Q")
_BY_SLOT = ("reward", "terminated", "truncated", "episode_return")


@dataclass(frozen=True)
class Mixture(EnvConfig):
    """Environments of several tasks in one run, which one policy learns.

    Mixture({"run": "native:HalfCheetah-v5", "hop": "native:Hopper-v5"}, shares={"run": 2})
    """

    tasks: Mapping[str, str | EnvConfig | Callable[[], gymnasium.Env]]
    """The environments by the names of their tasks."""
    shares: Mapping[str, int] = field(default_factory=dict)
    """Environments of each task, in turn; 1 by default. 2 of one task give it twice the
    environments of another."""
    only: str = ""
    """The task that all environments have; by default all tasks."""

    def __post_init__(self) -> None:
        """Raises UserError for tasks or shares that make no mixture."""
        good = isinstance(self.tasks, Mapping) and bool(self.tasks)
        expect(good, "tasks", self.tasks, 'environments by name: {"hop": "native:Hopper-v5"}')
        for name, env in self.tasks.items():
            good = isinstance(name, str) and not set(name) & set(".,=/ ") and bool(name)
            expect(good, "a task's name", name, "a word")
            if task_ids(id_of(env)):
                raise UserError(f"task {name!r} is a mixture; name its tasks here instead")
            # The mixture's own id would be read as other tasks.
            good = not set(id_of(env)) & set(",=")
            expect(good, f"tasks[{name!r}]", id_of(env), "an id without , and =")
        for name, share in dict(self.shares).items():
            expect(name in self.tasks, "shares", name, f"one of {', '.join(self.tasks)}")
            expect_number(f"shares[{name!r}]", share, 1, 1000)
        if self.only:
            expect(self.only in self.tasks, "only", self.only, f"one of {', '.join(self.tasks)}")

    @property
    def tasks_of_mixture(self) -> tuple[str | EnvConfig | Callable[[], gymnasium.Env], ...]:
        """The environments of the tasks."""
        return tuple(self.tasks.values())

    @property
    def pool_id(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The id, as a command line has it; a function has none."""
        return MIXTURE + ",".join(f"{name}={id_of(env)}" for name, env in self.tasks.items())

    @property
    def task_of(self) -> tuple[int, ...]:
        """The task of each environment of a period, by its number."""
        names = list(self.tasks)
        if self.only:
            return (names.index(self.only),)
        return tuple(i for i, name in enumerate(names) for _ in range(self.shares.get(name, 1)))

    def with_options(self, options: Mapping[str, Any]) -> Mixture:
        """The mixture with other options: TASK.OPTION of a task, shares, only; others of all tasks.

        Raises:
            UserError: For a task that it does not have.
        """
        options = {self._as_named(name): value for name, value in options.items()}
        own = {name: options[name] for name in ("tasks", "shares", "only") if name in options}
        shares = own.get("shares", {})
        if not isinstance(shares, Mapping):
            own["shares"] = _shares(list(self.tasks), shares)
        mixture, tasks = replace(self, **own), {}
        for name in options.keys() - own.keys():
            task, dot, _ = name.partition(".")
            expect(not dot or task in mixture.tasks, "an option", name, "TASK.OPTION of a task")
        for task, env in mixture.tasks.items():
            given = {n: x for n, x in options.items() if n not in own and "." not in n}
            start = f"{task}."
            given |= {n.removeprefix(start): x for n, x in options.items() if n.startswith(start)}
            tasks[task] = with_options(f"task {task!r}", env, given)
        return replace(mixture, tasks=tasks)

    def _as_named(self, option: str) -> str:
        """TASK.OPTION as the task is named: a command line makes no difference of - and _."""
        first, dot, rest = option.partition(".")
        if not dot or first in self.tasks:
            return option
        plain = {task.replace("-", "_"): task for task in self.tasks}
        return f"{plain.get(first.replace('-', '_'), first)}.{rest}"


def mixture_of(env: Any) -> Mixture | None:
    """The mixture that an environment is, by its configuration or its id; None of any other."""
    id = env if isinstance(env, str) else getattr(env, "id", "")
    if not (tasks := task_ids(id)):
        return env if isinstance(env, Mixture) else None
    if len(tasks) <= id.count(","):
        raise UserError(f"two tasks of {id} have the same name; give names: {MIXTURE}NAME=ID,...")
    return Mixture(tasks).with_options(env.arguments if isinstance(env, NamedEnv) else {})


def fewest_environments(env: Any) -> int:
    """The fewest environments in which each task of a mixture has its share; 1 of any other."""
    mixture = mixture_of(env)
    return len(mixture.task_of) if mixture else 1


def _shares(names: Sequence[str], given: Any) -> dict[str, int]:
    """Numbers between commas, as a command line has them."""
    parts = str(given).split(",")
    good = len(parts) == len(names) and all(part.strip().isdecimal() for part in parts)
    expect(good, "shares", given, f"{len(names)} numbers, one for each of {', '.join(names)}")
    return dict(zip(names, map(int, parts), strict=True))


def _of_32_bits(space: gymnasium.Space) -> gymnasium.Space:
    """Gives a space with choices of 32 bits, as pools count them in any language."""

    def narrow(leaf: gymnasium.Space) -> gymnasium.Space:
        if isinstance(leaf, spaces.Discrete):
            return spaces.Discrete(int(leaf.n), start=int(leaf.start), dtype=np.int32)
        if isinstance(leaf, spaces.MultiDiscrete):
            return spaces.MultiDiscrete(leaf.nvec, start=leaf.start, dtype=np.int32)
        return leaf

    return joined_space(map_tree(narrow, space_tree(space)))


class _Part:
    """A task's environments, and their place among all."""

    def __init__(self, pool: Pool, number: int, envs: np.ndarray) -> None:
        self.pool, self.number, self.envs = pool, number, envs
        self.slots = slots_of(envs, len(pool.specs.agents))
        observation = _of_32_bits(observed_space(pool.specs.observation, "mixture"))
        self.action = _of_32_bits(narrow_action(pool.specs.action))
        """The action space, of 32 bits as the observations, so that tasks' spaces compare."""
        self.named = isinstance(observation, spaces.Dict)
        parts = dict(observation.spaces) if isinstance(observation, spaces.Dict) else None
        self.mask_space = parts.pop(MASK, None) if parts else None
        """The space of the task's own masks."""
        self.space = spaces.Dict(parts) if parts else spaces.Dict({OBSERVATION: observation})
        """The space of what the task observes, without masks."""
        self.row = pool.rows(1)[0]

    def observed(self, observation: Tree) -> Tree:
        """An observation of the task in its `space`."""
        if not self.named:
            return {OBSERVATION: observation}
        return {name: part for name, part in observation.items() if name != MASK}


class MixturePool(Pool):
    """Pools of several tasks as one; environment i has the task of its place in a period."""

    def __init__(self, mixture: Mixture, pools: Sequence[Pool], num_envs: int) -> None:
        """Takes the pools, which are closed with this.

        Args:
            mixture: Of these tasks.
            pools: Of each task as many environments as it has of these, or one, where it has none.
            num_envs: Of all tasks.

        Raises:
            UserError: If spaces are of different kinds.
        """
        self.num_envs = self.batch_size = num_envs
        names, tasks = list(mixture.tasks), np.resize(mixture.task_of, num_envs)
        self._all = [_Part(pool, k, np.flatnonzero(tasks == k)) for k, pool in enumerate(pools)]
        self._parts = [part for part in self._all if len(part.envs)]
        self._token, first = object(), pools[0].specs
        for name, pool in zip(names, pools, strict=True):
            if pool.specs.agents != first.agents:
                agents, others = ", ".join(pool.specs.agents), ", ".join(first.agents)
                raise UserError(
                    f"{name} has agents {agents}, and {names[0]} {others}; a mixture's tasks have "
                    "the same agents"
                )
        self._layout = layout = _Layout.of(dict(zip(names, self._all, strict=True)))
        self.specs = Specs(
            observation=layout.observation,
            action=layout.action,
            agents=first.agents,
            statistics=tuple(dict.fromkeys(n for p in pools for n in p.specs.statistics)),
            max_episode_steps=longest_episode(pool.specs for pool in pools),
            tasks=tuple(names),
            task_of=mixture.task_of,
        )
        self.saves_exactly = all(part.pool.saves_exactly for part in self._parts)
        self._order = np.argsort(np.concatenate([part.envs for part in self._parts]))
        self._slot_order = np.argsort(np.concatenate([part.slots for part in self._parts]))

    def reset(
        self, seed: int | None = None, into: Row | None = None, mask: np.ndarray | None = None
    ) -> Timestep:
        """Starts new episodes; see the base class.

        Seeds differ from those of other pools: environment i of a task with c environments in each
        period of P is seeded with a number that follows from the task, from `seed` and from
        (seed + i) // P. Seeds of 31 bits give seeds of 32.
        """
        self._check_row(into)
        ids, seed = self._masked(mask, into), checked_seed(seed)
        for part in self._parts:
            own = np.isin(part.envs, ids)
            if own.any():
                first = self._seed_of(part, seed)
                part.pool.reset(first, part.row, None if own.all() else own)
        return self._given(into, None if mask is None else ids)

    def _seed_of(self, part: _Part, seed: int | None) -> int | None:
        """The seed of a task's first environment: the same however a run's are divided in groups.

        Groups begin at multiples of the period, by which the seeds they are given differ.
        """
        if seed is None:
            return None
        period = len(self.specs.task_of)
        share = self.specs.task_of.count(part.number)
        offset = seed_offset(f"task {part.number} of {seed % period}")
        return (seed // period * share + offset) % 2**64

    def step(self, actions: Tree, into: Row | None = None) -> Timestep:
        """Steps all environments; see the base class."""
        self._check_row(into)
        slots = self.num_envs * len(self.specs.agents)
        given = as_actions(actions, self.specs.action, slots)
        for part in self._parts:
            part.pool.step(self._layout.own_action(part, given), part.row)
        self.skew = sum(part.pool.skew for part in self._parts)
        return self._given(into, None)

    def render(self, env_id: int) -> np.ndarray:
        """A picture of one environment."""
        as_env_ids([env_id], self.num_envs)
        part = next(part for part in self._parts if env_id in part.envs)
        return part.pool.render(int(np.flatnonzero(part.envs == env_id)[0]))

    def xla(self) -> MixtureXla:
        """The pool's calls for use inside `jax.jit`."""
        return MixtureXla(self, [part.pool.xla() for part in self._parts])

    def save(self) -> bytes:
        """The states of all tasks' environments, each behind its length."""
        states = [part.pool.save() for part in self._parts]
        return b"".join(_LENGTH.pack(len(state)) + state for state in states)

    def restore(self, state: bytes) -> None:
        """Goes on from a saved state."""
        for part in self._parts if state else ():
            if len(state) < _LENGTH.size:
                raise UserError("the state is of a mixture of fewer tasks, or is damaged")
            (length,) = _LENGTH.unpack_from(state)
            own, state = state[_LENGTH.size : _LENGTH.size + length], state[_LENGTH.size + length :]
            part.pool.restore(own)

    def close(self) -> None:
        """Closes the pools."""
        for part in self._all:
            part.pool.close()
            self.close_failure = self.close_failure or part.pool.close_failure

    def _given(self, into: Row | None, ids: np.ndarray | None) -> Timestep:
        """The present timesteps of all tasks, in the row if there is one, there only of `ids`."""
        joined = self.joined([part.row.timestep for part in self._parts], np)
        if into is None:
            return joined
        copy_rows(joined, into.timestep, ids, len(self.specs.agents))
        return into.timestep

    def joined(self, timesteps: Sequence[Timestep], xp: Any) -> Timestep:
        """The timestep of all environments, of each task's.

        Args:
            timesteps: Of the tasks that have environments.
            xp: numpy or jax.numpy.
        """

        def together(arrays: Sequence[Array], order: np.ndarray) -> Array:
            return xp.concatenate(arrays, 0)[order]

        named = {
            name: together([getattr(t, name) for t in timesteps], self._slot_order)
            for name in _BY_SLOT
        }
        pairs = list(zip(self._parts, timesteps, strict=True))
        padded = [self._layout.padded(part, t.observation, xp) for part, t in pairs]
        statistics = [self._statistics(part, t.statistics, xp) for part, t in pairs]
        return Timestep(
            observation=map_tree(lambda *x: together(x, self._slot_order), *padded),
            episode_length=together([t.episode_length for t in timesteps], self._order),
            statistics=together(statistics, self._order),
            env_id=xp.arange(self.num_envs, dtype=np.int32),
            lost=together([t.lost for t in timesteps], self._order),
            **named,
        )

    def _statistics(self, part: _Part, own: Array, xp: Any) -> Array:
        """A task's statistics in the columns of all; NaN in those that it does not have."""
        names = part.pool.specs.statistics
        missing = xp.full(own.shape[:1], np.nan, np.float32)
        columns = [own[:, names.index(n)] if n in names else missing for n in self.specs.statistics]
        return xp.stack(columns, -1) if columns else own


class MixtureXla:
    """The calls of a mixture inside a compiled program; a state is a tuple of the tasks' states."""

    def __init__(self, pool: MixturePool, parts: Sequence[Any]) -> None:
        self._pool, self._parts = pool, parts

    def init(self) -> tuple[Any, ...]:
        """The state in which the pools stand."""
        return tuple(part.init() for part in self._parts)

    @property
    def progress(self) -> int:
        """A number that changes with each step that a program takes, where it is known."""
        return sum(part.progress for part in self._parts)

    def keep(self, state: tuple[Any, ...]) -> None:
        """Lets the pools go on from the state that a program has led to."""
        for part, own in zip(self._parts, state, strict=True):
            part.keep(own)

    def step(self, state: tuple[Any, ...], actions: Tree) -> tuple[tuple[Any, ...], Timestep]:
        """Steps all environments: actions [B, ...]."""
        pool, actions = self._pool, jax.lax.stop_gradient(actions)
        stepped = [
            xla.step(own, pool._layout.own_action(part, actions))
            for xla, own, part in zip(self._parts, state, pool._parts, strict=True)
        ]
        return tuple(x for x, _ in stepped), pool.joined([t for _, t in stepped], jnp)


@dataclass(frozen=True)
class _Layout:
    """The spaces of all tasks, and each task's place in them."""

    observation: spaces.Dict
    action: gymnasium.Space
    masks: Sequence[np.ndarray] = ()
    """Each task's mask, bool [size]; none where all tasks have the same actions."""
    stretches: Sequence[Stretch] = ()
    """Functions from [-1, 1] to each task's bounds, where bounded numbers differ."""

    @staticmethod
    def of(parts: Mapping[str, _Part]) -> _Layout:
        """The layout for tasks by name.

        Raises:
            UserError: If spaces are of different kinds.
        """
        observed = common_space({n: p.space for n, p in parts.items()}, "observation", "mixture")
        assert isinstance(observed, spaces.Dict)
        if TASK in observed.spaces:
            raise UserError(f"the tasks observe {TASK!r}, the name of a mixture's own key")
        found = {**observed.spaces, TASK: spaces.Discrete(len(parts))}
        actions = {name: part.action for name, part in parts.items()}
        own_masks = any(part.mask_space is not None for part in parts.values())
        first, layout = next(iter(actions.values())), _Layout(observed, spaces.Discrete(1))
        if all(space == first for space in actions.values()) and not own_masks:
            return replace(layout, observation=spaces.Dict(found), action=first)
        for name, part in parts.items():
            if part.mask_space is not None and len(part.mask_space.shape or ()) != 1:
                raise UserError(f"{name} has masks {part.mask_space}; a mixture takes flat ones")
        action = common_space(actions, "action", "mixture")
        if isinstance(action, spaces.Discrete):
            counts = [int(getattr(space, "n", 0)) for space in actions.values()]
            masks = [np.arange(int(action.n)) < n for n in counts]
        elif isinstance(action, spaces.Box) and not own_masks:
            masks = [np.zeros(action.shape, bool) for _ in actions]
            for mask, space in zip(masks, actions.values(), strict=True):
                mask[corner(space)] = True
            own = [part.pool.specs.action for part in parts.values()]
            boxes = [space for space in own if isinstance(space, spaces.Box)]
            if all(bounded(box).all() for box in boxes):
                action = spaces.Box(-1.0, 1.0, action.shape, np.float32)
                layout = replace(layout, stretches=[Stretch(box) for box in boxes])
        else:
            raise UserError(
                f"the tasks' actions are {action}, with masks or of different sizes; a mixture "
                "takes Discrete actions so, and Boxes without masks"
            )
        found[MASK] = spaces.MultiBinary(masks[0].size)
        given = {"observation": spaces.Dict(found), "action": action}
        return replace(layout, **given, masks=[mask.ravel() for mask in masks])

    def padded(self, part: _Part, observation: Tree, xp: Any) -> Tree:
        """A task's observations [b, ...] as all have them."""

        def grown(space: gymnasium.Space, x: Array) -> Array:
            return padded(x, space.shape or (), xp)

        own, rows = part.observed(observation), len(part.slots)
        found = {n: map_tree(grown, space_tree(self.observation[n]), own[n]) for n in own}
        found[TASK] = xp.full((rows,), part.number, np.int32)
        if self.masks:
            mask = xp.asarray(np.broadcast_to(self.masks[part.number], (rows, len(self.masks[0]))))
            if part.mask_space is not None:
                mask = padded(observation[MASK].astype(bool), mask.shape[1:], xp)
            found[MASK] = mask.astype(np.int8)
        return {name: found[name] for name in self.observation.spaces}

    def own_action(self, part: _Part, actions: Tree) -> Tree:
        """A task's part of the actions [B, ...], in its own space."""
        rows = map_tree(lambda x: x[part.slots], actions)
        if not self.masks or isinstance(self.action, spaces.Discrete):
            return rows
        cut = rows[(slice(None), *corner(part.pool.specs.action))]
        if self.stretches:
            return self.stretches[part.number](cut)
        own = part.pool.specs.action
        assert isinstance(own, spaces.Box)
        return cut.clip(own.low, own.high)


def make(source: str, num_envs: int, options: dict[str, Any], **given: Any) -> MixturePool:
    """Makes a pool of a mixture; see `make_pool`."""
    from srl.pools.make import make_pool

    mixture = mixture_of(NamedEnv(source, options))
    assert mixture is not None
    counts = np.bincount(np.resize(mixture.task_of, num_envs), minlength=len(mixture.tasks))
    pools: list[Pool] = []
    try:
        for env, count in zip(mixture.tasks.values(), counts.tolist(), strict=True):
            takes = backend_of(env).takes
            own = {name: value for name, value in given.items() if name in takes}
            pools.append(make_pool(env, max(1, count), **own))
        return MixturePool(mixture, pools, num_envs)
    except BaseException:
        for pool in pools:
            pool.close()
        raise
