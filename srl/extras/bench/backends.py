"""Backends that step environments: srl's pools, and the peers that `srl bench pool --vs` names."""

from __future__ import annotations

import itertools
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from srl.core.errors import RunError, UserError
from srl.extras.bench.actions import BATCHES, STICKY_STEPS, random_actions
from srl.extras.bench.rounds import in_turns
from srl.pools import make_pool
from srl.pools.native.mujoco import core_options
from srl.pools.native.pool import core
from srl.pools.python.sources import VectorMaker, make_environment, vector_maker


@dataclass(frozen=True)
class Case:
    """The environments to step, and the settings of the backend."""

    env: str
    """Without the prefix that names a backend: CartPole-v1."""
    num_envs: int
    batch_size: int
    """Fewer than `num_envs`: asynchronous, where the backend can."""
    threads: int = 0
    """0 takes one for each core."""
    workers: int = 0
    """Processes, of the backend `processes`; 0 takes one for each core."""
    cores: tuple[int, ...] = ()
    """Cores to which the backend `native` pins its threads; none by default."""
    options: dict[str, Any] = field(default_factory=dict)
    sticky: bool = False
    """True if random actions are held for STICKY_STEPS steps."""

    @property
    def synchronous(self) -> bool:
        """True if each batch holds all environments."""
        return self.batch_size == self.num_envs


class Stepper:
    """Environments that are ready to be stepped, with random actions drawn beforehand."""

    def __init__(
        self,
        exchange: Callable[[np.ndarray], Any],
        action_space: gymnasium.Space,
        close: Callable[[], Any],
        batch_size: int,
        threads: int = 1,
        agents: int = 1,
    ) -> None:
        """Wraps a call.

        Args:
            exchange: Steps `batch_size` environments with actions [batch_size * agents, ...].
            action_space: Of one agent.
            close: Ends the environments.
            batch_size: How many environments a call steps.
            threads: Or processes, that step them.
            agents: In each environment.
        """
        self.action_space, self.close = action_space, close
        self.batch_size, self.threads, self.agents = batch_size, threads, agents
        self.way = ""
        """The name of its way of stepping, the fastest of several; empty where it has none."""
        self._exchange = exchange
        self._actions: list[np.ndarray] = []
        self._calls_per_second = 0.0

    def load(self, actions: Sequence[np.ndarray]) -> None:
        """Takes the actions of all environments, [num_envs * agents, ...] for each call."""
        slots, dtype = self.batch_size * self.agents, self.action_space.dtype
        self._actions = [np.ascontiguousarray(a[:slots], dtype) for a in actions]

    def rate(self, seconds: float) -> float:
        """Steps for about `seconds`; gives env steps per second."""
        if not self._calls_per_second:  # the first time: how many calls that is
            self._calls_per_second = 1 / self._time(1)
            while (taken := self._time(calls := self._calls(seconds / 4))) < seconds / 8:
                self._calls_per_second = max(calls / taken, 2 * self._calls_per_second)
            self._calls_per_second = calls / taken
        calls = self._calls(seconds)
        taken = self._time(calls)
        self._calls_per_second = calls / taken
        return calls * self.batch_size / taken

    def _calls(self, seconds: float) -> int:
        return max(1, round(seconds * self._calls_per_second))

    def _time(self, calls: int) -> float:
        exchange = self._exchange
        actions = itertools.islice(itertools.cycle(self._actions), calls)
        start = time.perf_counter()
        for action in actions:
            exchange(action)
        return time.perf_counter() - start


class BarePhysics:
    """The physics of a native MuJoCo environment alone: what a pool could reach at best.

    Each thread steps its own environments with random controls and starts them again where the
    environment would, without observations and without waiting for other threads. Hide-and-seek is
    played for this, and its physics is computed once more: the same models, states, controls, locks
    and grips.
    """

    action_space = None
    agents = 1
    way = ""

    def __init__(self, case: Case) -> None:
        self.threads = case.threads or _cores()
        self.batch_size = case.num_envs
        self._case = case
        self.rate(1e-3)  # an environment without physics is an error at once

    def rate(self, seconds: float) -> float:
        """Env steps per second in about `seconds`.

        Raises:
            UserError: If the environment does not run on MuJoCo, or an option does not fit.
            RunError: If MuJoCo fails.
        """
        case, hold = self._case, STICKY_STEPS if self._case.sticky else 1
        options = core_options(case.env, case.options)
        try:
            return core.physics_rate(case.env, options, case.num_envs, self.threads, seconds, hold)
        except ValueError as error:
            raise UserError(f"native:{case.env}: {error}") from None
        except RuntimeError as error:
            raise RunError(f"native:{case.env}: {error}") from None

    def close(self) -> None:
        """Nothing is held between measurements."""


Side = Stepper | BarePhysics


def split_env(env: str) -> tuple[str, str]:
    """The backend that an environment's id names, and the id without it."""
    prefix, colon, rest = env.partition(":")
    backends = {"native": "native", "envpool": "srl-envpool"}
    return (backends[prefix], rest) if colon and prefix in backends else ("serial", env)


def _cores() -> int:
    return os.cpu_count() or 1


# ---- srl's own pools ----


def _native(case: Case) -> Side:
    settings = {"threads": case.threads, "cores": case.cores}
    return _pool(case, f"native:{case.env}", **settings, **case.options)


def _srl_envpool(case: Case) -> Side:
    return _pool(case, f"envpool:{case.env}", threads=case.threads, **_pinned(case))


def _serial(case: Case) -> Side:
    return _pool(case, case.env, workers=0, **case.options)


def _processes(case: Case) -> Side:
    workers = case.workers or min(_cores(), case.num_envs)
    side = _pool(case, case.env, workers=workers, **case.options)
    side.threads = workers
    return side


def _pool(case: Case, env: str, **settings: Any) -> Side:
    pool = make_pool(env, case.num_envs, case.batch_size, **settings)

    def exchange(actions: np.ndarray) -> None:
        timestep = pool.recv()
        pool.send(actions, timestep.env_id)

    if case.synchronous:
        pool.reset(seed=0)
    else:
        pool.async_reset(seed=0)
    threads, agents = getattr(pool, "threads", 1), len(pool.specs.agents)
    step = pool.step if case.synchronous else exchange
    return Stepper(step, pool.specs.action, pool.close, pool.batch_size, threads, agents)


# ---- peers ----


def _pinned(case: Case) -> dict[str, Any]:
    """EnvPool's options, with its threads bound to cores where it is faster so."""
    if case.synchronous and case.threads != 1:
        return {"thread_affinity_offset": 0} | case.options
    return case.options


def _envpool(case: Case) -> Side:
    """EnvPool as is fastest: with the case's threads or one, in its batches or those of a half."""
    ways = {"": case}
    if case.threads != 1:
        ways["1 thread"] = replace(case, threads=1)
    if case.synchronous and case.num_envs > 1:
        ways["async"] = replace(case, batch_size=case.num_envs // 2)
    return fastest(case, {name: _one_envpool(way) for name, way in ways.items()})


def fastest(case: Case, ways: Mapping[str, Stepper]) -> Stepper:
    """Measures ways of stepping a case's environments in turns; ends all but the fastest."""
    for side in ways.values():
        slots = case.num_envs * side.agents
        side.load(random_actions(side.action_space, slots, BATCHES, case.sticky))
    rates = in_turns(
        {f" ({name or 'as asked'})": side.rate for name, side in ways.items()}, 1.0, 2, case.env
    )
    speeds = dict(zip(ways, map(max, rates.values()), strict=True))
    best = max(speeds, key=speeds.__getitem__)
    for name, side in ways.items():
        if name != best:
            side.close()
    ways[best].way = best
    return ways[best]


def _one_envpool(case: Case) -> Stepper:
    """EnvPool as its own documentation uses it, without srl's interface."""
    from srl.pools.envpool_specs import import_envpool, make_spec

    envpool, options = import_envpool(), _pinned(case)
    sizes = {"num_envs": case.num_envs, "batch_size": case.batch_size, "num_threads": case.threads}
    spec = make_spec(envpool, case.env, options, sizes)
    env = envpool.make_gymnasium(case.env, seed=0, **sizes, **options)
    with warnings.catch_warnings():  # of bounds that lose precision; both spaces are kept
        warnings.simplefilter("ignore")
        space = env.action_space
        _ = env.observation_space

    def exchange(actions: np.ndarray) -> None:
        *_, info = env.recv()
        env.send(actions, info["env_id"])

    if case.synchronous:
        env.reset()
    else:
        env.async_reset()
    step = env.step if case.synchronous else exchange
    threads = case.threads or min(_cores(), case.batch_size)
    return Stepper(step, space, env.close, case.batch_size, threads, spec.config.max_num_players)


def _gymnasium(case: Case, mode: str = "") -> Side:
    """Gymnasium's vector environment: the environment's own where there is one, else serial."""
    makers = [partial(_environment, case)] * case.num_envs
    try:
        if not mode and (own := _vector_maker(case.env)):
            env = own(num_envs=case.num_envs, **case.options)
        elif mode == "async":
            # Not forked from this process, in which the threads of another pool may run.
            env = AsyncVectorEnv(makers, shared_memory=True, context="forkserver")
        else:
            env = SyncVectorEnv(makers)
    except (gymnasium.error.Error, ModuleNotFoundError, UserError) as error:
        raise UserError(f"Gymnasium cannot make {case.env!r}: {error}") from error
    env.reset(seed=0)
    threads = case.num_envs if mode == "async" else 1
    return Stepper(env.step, env.single_action_space, env.close, case.num_envs, threads)


def _vector_maker(env: str) -> VectorMaker | None:
    for source in (env, f"vector:{env}"):
        with suppress(UserError):
            if maker := vector_maker(source):
                return maker
    return None


def _environment(case: Case) -> gymnasium.Env:
    """One environment, as srl's pools make it."""
    if vector_maker(case.env):
        raise UserError(f"{case.env} has a vector environment alone; compare with gymnasium")
    env = make_environment(case.env, case.options)
    if not isinstance(env, gymnasium.Env):
        raise UserError(f"{case.env} is no environment with Gymnasium's interface")
    return env


def _bare(case: Case) -> Side:
    """Gymnasium environments stepped by a loop that does nothing else."""
    envs = [_environment(case) for _ in range(case.num_envs)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    ended = [False] * len(envs)

    def step(actions: np.ndarray) -> None:
        for k, env in enumerate(envs):
            if ended[k]:
                env.reset()
                ended[k] = False
            else:
                _, _, terminated, truncated, _ = env.step(actions[k])
                ended[k] = terminated or truncated

    def close() -> None:
        for env in envs:
            env.close()

    return Stepper(step, envs[0].action_space, close, case.num_envs)


BACKENDS: dict[str, Callable[[Case], Side]] = {
    "native": _native,
    "srl-envpool": _srl_envpool,
    "serial": _serial,
    "processes": _processes,
    "envpool": _envpool,
    "gymnasium": _gymnasium,
    "gymnasium-sync": lambda case: _gymnasium(case, "sync"),
    "gymnasium-async": lambda case: _gymnasium(case, "async"),
    "bare": _bare,
    "physics": BarePhysics,
}
"""Name -> what makes its environments and resets them.

Each raises UserError for an environment that the backend does not have.
"""
