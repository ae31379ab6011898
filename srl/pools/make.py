"""Finds the pool for whatever names an environment."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from srl.core.errors import RunError, UserError, expect, expect_number
from srl.core.types import Specs
from srl.pools.config import EnvConfig
from srl.pools.memory_check import SAMPLE, Growth, check_memory
from srl.pools.pool import Pool
from srl.pools.python.own_options import OPTIONS
from srl.pools.python.sources import (
    VectorMaker,
    made_already,
    maker_of,
    source_name,
    vector_maker,
)

_IN_PROCESS = "steps in this process: give workers=N"
EnvSource = str | EnvConfig | Callable[[], gymnasium.Env]
MOST = 2**31 - 1
"""Environments, slots and processes are numbered in int32."""
PROBE_SECONDS = 10.0
"""The most seconds for which a run's start waits for an environment that is made as a probe."""
_PROBE = {"workers": 1, "restarts": 0, "start_timeout": PROBE_SECONDS}
LONGEST_SECONDS = 1e9
"""The longest limit in seconds: the kernel does not wait much longer."""


def make_pool(
    env: EnvSource,
    num_envs: int = 1,
    batch_size: int | None = None,
    threads: int = 0,
    cores: Sequence[int] = (),
    workers: int | None = None,
    *,
    action_repeat: int = 1,
    restarts: int | None = None,
    step_timeout: float | None = None,
    start_timeout: float | None = None,
    **options: Any,
) -> Pool:
    """Makes a pool of `num_envs` environments.

    Args:
        env: What to step:
            - "native:CartPole-v1", or "native:libwalk.so:Walk-v0" of a library;
            - "envpool:Pong-v5";
            - an id of Gymnasium, "CartPole-v1" or "module:Name-v0";
            - a vector environment of Gymnasium's kind, which steps all itself: "vector:CartPole-v1"
              or "vector:module:Name-v0" by an id with a `vector_entry_point`,
              "vector:module:factory", or a callable with a parameter `num_envs` that makes a
              `gymnasium.vector.VectorEnv`;
            - a game of Atari, "atari:Pong", in its usual form (`srl.pools.python.atari`);
            - a module of PettingZoo's parallel kind, "pettingzoo:mpe2.simple_tag_v3", or what makes
              one, "pettingzoo:module:factory";
            - a callable that makes a `gymnasium.Env` or a `pettingzoo.ParallelEnv`, or the dotted
              path to one;
            - an environment written in JAX, "jax:gymnax:CartPole-v1", "jax:brax:ant" or
              "jax:module:maker", which has `srl.pools.functional.environment.FunctionalEnv`;
            - a configuration object.
        num_envs: How many.
        batch_size: How many `recv` gives at a time; all by default.
        threads: Of a native pool or EnvPool's; 0 takes one for each core.
        cores: Of a native pool: pin its threads to these cores, in turn. A synchronous pool's
            first thread is the caller's, which stays free.
        workers: Processes that step environments written in Python; 0 steps them in this process,
            one after the other. By default 0 if `recv` gives all at a time, else one for each core.
        action_repeat: Steps that an environment takes with each action, of which an episode's end
            is the last; their rewards add up. Episodes' lengths count every step. Where an agent
            of several leaves or joins, that is the last step, too (in Python environments).
        restarts: How many times in a row a worker process may die, 3 by default; it is started
            again. One that steps for ten times as long as it took to start ends the row. The
            episodes that it had begun are marked in `Timestep.lost`.
        step_timeout: Seconds that a step, with all its repeats, or reset of one environment may
            take in a worker process, 60 by default.
        start_timeout: Seconds that a worker process may take to make its environments, 300 by
            default.
        options: Passed on to the environment, but for three of an environment in Python:
            - `wrappers`: a list of Gymnasium's or other wrappers, the innermost first, such as
              "TimeLimit(max_episode_steps=100)", "my_module:MyWrapper" or a callable. A vector
              environment takes those of `gymnasium.wrappers.vector`.
            - `metrics`: names of numbers in the info of an episode's last step that become
              statistics of episodes (`srl.pools.python.metrics`), EnvPool's too.
            - `ignore`: parts of a Dict observation that are left out.

    Raises:
        UserError: For an unknown id, an unknown option, or sizes that do not fit.
        RunError: If making an environment raised.
    """
    expect_number("num_envs", num_envs, 1, MOST)
    batch_size = num_envs if batch_size is None else batch_size
    expect_number("batch_size", batch_size, 1, num_envs)
    expect_number("threads", threads, 0, MOST)
    expect_number("action_repeat", action_repeat, 1, MOST)
    if isinstance(env, EnvConfig):
        env, options = env.pool_id, {**env.options(), **options}
    limits = {"restarts": restarts, "step_timeout": step_timeout, "start_timeout": start_timeout}
    limits = {name: limit for name, limit in limits.items() if limit is not None}
    kind, _, name = env.partition(":") if isinstance(env, str) else ("", "", "")
    if not threaded(env):
        given = {"threads": threads} if threads else {}
        given |= {"cores": cores} if len(cores) else {}
        if kind == "jax":
            given |= {} if workers is None else {"workers": workers}
            given |= _own_of_python(options)
            _check_effect(env, given | limits, "steps all its environments in one compiled call")
            from srl.pools.functional.adapters import make_functional
            from srl.pools.functional.pool import FunctionalPool

            made = make_functional(name, options)
            return FunctionalPool(made, num_envs, batch_size, action_repeat, str(env))
        if maker := _vector_maker(env):
            given |= {"workers": workers} if workers else {}
            given |= {"batch_size": batch_size} if batch_size < num_envs else {}
            given |= {"action_repeat": action_repeat} if action_repeat > 1 else {}
            _check_effect(env, given | limits, "steps all its environments at once, by itself")
            from srl.pools.python.vector_env import VectorEnvPool

            return VectorEnvPool(env, maker, num_envs, options)
        _check_effect(env, given, "steps no threads")
        return _python_pool(env, num_envs, batch_size, workers, limits, action_repeat, options)
    given = {} if workers is None else {"workers": workers}
    _check_effect(env, given | limits, "steps on threads: give threads=N")
    given = _own_of_python(options)
    if kind == "envpool":
        given.pop("metrics", None)
    _check_effect(env, given, "is not written in Python")
    if kind == "native":
        from srl.pools.native.pool import NativePool

        if action_repeat > 1:
            options = {**options, "action_repeat": action_repeat}

        def native(num_envs: int, batch_size: int, threads: int = 1) -> Pool:
            return NativePool(name, num_envs, batch_size, threads, options, cores)

        _check_memory(f"{kind}:{name}", num_envs, native)
        return native(num_envs, batch_size, threads)
    from srl.pools.envpool import EnvpoolPool

    def envpool(num_envs: int, batch_size: int, threads: int = 1) -> Pool:
        return EnvpoolPool(name, num_envs, batch_size, threads, options)

    _check_effect(env, {"cores": cores} if len(cores) else {}, "pins by thread_affinity_offset=N")
    repeats = {"action_repeat": action_repeat} if action_repeat > 1 else {}
    _check_effect(env, repeats, "repeats actions by options of its own, such as frame_skip=N")
    _check_memory(f"{kind}:{name}", num_envs, envpool)
    return envpool(num_envs, batch_size, threads)


def _vector_maker(env: EnvSource) -> VectorMaker | None:
    """Gives the maker of a vector environment, None for others; see `vector_maker`."""
    assert not isinstance(env, EnvConfig)
    try:
        return vector_maker(env)
    except ModuleNotFoundError as error:
        raise UserError(f"{env!r} cannot be made: {error}") from error


def _check_memory(name: str, num_envs: int, make: Callable[[int, int], Pool]) -> None:
    """Makes and resets a few environments, to check that memory holds them all."""
    if num_envs <= SAMPLE:
        return
    with make(1, 1):  # what the first one loads is there for all
        growth = Growth()
        with make(SAMPLE, SAMPLE) as some:
            some.reset(seed=0)
            check_memory(name, num_envs, growth.nbytes, SAMPLE)


def expect_source(name: str, env: Any) -> None:
    """Raises UserError where the setting of this name is nothing that a pool is made of."""
    if isinstance(env, type) and issubclass(env, EnvConfig):
        raise UserError(f"{name} is the class {env.__name__}; call it: {env.__name__}()")
    if made := made_already(env):
        raise UserError(f"{name} is {made}")
    good = bool(env) if isinstance(env, str) else callable(env) or isinstance(env, EnvConfig)
    expect(good, name, env, "an id, a callable that makes an environment, or its config")


def expect_environment(
    env: EnvSource,
    workers: int | None = None,
    step_timeout: float | None = None,
    action_repeat: int = 1,
    *,
    probe: bool = False,
) -> Specs | None:
    """Gives an environment's specs, as far as they are known quickly; else None.

    One that steps on threads, or in JAX, is made once. Of one written in Python, only what its id
    names is looked up: making it may take long or hang, and is watched where it is done.

    Args:
        env: As for `make_pool`; so are the next three.
        workers: These.
        step_timeout: This.
        action_repeat: This.
        probe: Whether one written in Python is made, too: in another process, for at most
            PROBE_SECONDS. A vector environment, which has no such process, is made in this one.

    Raises:
        UserError: Where it cannot be made so.
    """
    if threaded(env) or functional(env):
        limits: Any = {"step_timeout": step_timeout, "action_repeat": action_repeat}
        threads = 1 if threaded(env) else 0
        with make_pool(env, 1, threads=threads, workers=workers, **limits) as pool:
            return pool.specs
    name = env.pool_id if isinstance(env, EnvConfig) else env
    if _vector_maker(name):
        return _probed(env) if probe else None
    if not workers and step_timeout is not None:
        _check_effect(env, {"step_timeout": step_timeout}, _IN_PROCESS)
    if isinstance(name, str):
        try:
            maker_of(name)
        except ModuleNotFoundError as error:
            raise UserError(f"{name!r} cannot be made: {error}") from error
    return _probed(env, **_PROBE) if probe else None


def _probed(env: EnvSource, **process: Any) -> Specs | None:
    """Makes an environment once; None where that fails, which the run's own workers explain."""
    try:
        with make_pool(env, 1, **process) as pool:
            return pool.specs
    except RunError:
        return None


def threaded(env: EnvSource) -> bool:
    """Tells if the pool steps this environment on its own threads, so that `threads` applies."""
    name = env.pool_id if isinstance(env, EnvConfig) else env
    return isinstance(name, str) and name.startswith(("native:", "envpool:"))


def outside_module(env: EnvSource) -> str:
    """The module or library, other than srl and its libraries, of which an environment is made.

    Args:
        env: As for `make_pool`; a callable counts as its module.

    Returns:
        Its name, as the id has it; empty where there is none.
    """
    if isinstance(env, EnvConfig):
        wrappers = env.options().get("wrappers", ())
        named = next((text for text in wrappers if not isinstance(text, str) or ":" in text), "")
        return str(named) or outside_module(env.pool_id)
    if not isinstance(env, str):
        return env.__module__
    kind, _, name = env.partition(":")
    if kind in ("native", "envpool", "atari"):
        return name if re.search(r"[:/]|\.so$", name) else ""
    if kind == "jax":
        from srl.pools.functional.adapters import LIBRARIES

        library = name.partition(":")[0]
        return "" if library in LIBRARIES else library
    plain = env.removeprefix("vector:")
    known = plain in gymnasium.registry or re.fullmatch(r"[\w/-]+", plain)
    return "" if known else plain


def functional(env: EnvSource) -> bool:
    """Tells if this environment is written in JAX."""
    name = env.pool_id if isinstance(env, EnvConfig) else env
    return isinstance(name, str) and name.startswith("jax:")


def _python_pool(
    env: EnvSource,
    num_envs: int,
    batch_size: int,
    workers: int | None,
    limits: dict[str, Any],
    action_repeat: int,
    options: dict[str, Any],
) -> Pool:
    if workers is None:
        workers = 0 if batch_size == num_envs else len(os.sched_getaffinity(0))
    expect_number("workers", workers, 0, MOST)
    for limit, least, most in (
        ("restarts", 0, math.inf),
        ("step_timeout", 1e-3, LONGEST_SECONDS),
        ("start_timeout", 1e-3, LONGEST_SECONDS),
    ):
        if limit in limits:
            expect_number(limit, limits[limit], least, most)
    if workers == 0:
        from srl.pools.python.serial import SerialPool

        _check_effect(env, limits, _IN_PROCESS)
        return SerialPool(env, num_envs, batch_size, options, action_repeat)
    from srl.pools.python.processes.pool import ProcessPool

    return ProcessPool(env, num_envs, batch_size, workers, options, action_repeat, **limits)


def _own_of_python(options: dict[str, Any]) -> dict[str, Any]:
    """The options that only environments in Python have."""
    return {name: options[name] for name in OPTIONS if name in options}


def _check_effect(env: EnvSource, given: dict[str, Any], reason: str) -> None:
    """Checks that no setting is given that would have no effect."""
    for name, value in given.items():
        raise UserError(f"{name}={value} does nothing for {source_name(env)}, which {reason}")
