"""Finds the pool for whatever names an environment."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from srl.core.backends import BACKENDS, backend_of
from srl.core.errors import UserError, expect, expect_number
from srl.core.types import Specs
from srl.pools.config import EnvConfig, NamedEnv
from srl.pools.pool import Pool
from srl.pools.python.make import IN_PROCESS, MOST
from srl.pools.python.own_options import OPTIONS
from srl.pools.python.sources import (
    VectorMaker,
    check_effect,
    made_already,
    maker_of,
    vector_maker,
)

EnvSource = str | EnvConfig | Callable[[], gymnasium.Env]
PROBE_SECONDS = 10.0
"""The most seconds for which a run's start waits for an environment that is made as a probe."""


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
    """Makes a pool of `num_envs` environments; docs/environments.md describes the options.

    Args:
        env: An id, its prefix one of `srl.core.backends`; a callable that makes a `gymnasium.Env`,
            a `pettingzoo.ParallelEnv` or, by a parameter `num_envs`, a vector environment of
            Gymnasium's; the dotted path to one; or a configuration object.
        num_envs: The number of environments.
        batch_size: The number of environments that `recv` gives at a time; all by default.
        threads: Threads of a native pool or EnvPool's; 0 takes one for each core.
        cores: Cores to pin a native pool's threads to, in turn. A synchronous pool's first thread
            is the caller's, which stays free.
        workers: Processes that step Python environments; 0 steps them in this process, one after
            the other. By default 0 if `recv` gives all at a time, otherwise one for each core.
        action_repeat: Steps with each action, up to an episode's end; their rewards add up.
            Episodes' lengths count every step. In Python environments the repeats also end when
            an agent of several leaves or joins.
        restarts: Deaths in a row that a worker process is allowed, 3 by default, before it has
            stepped for ten times as long as its start took. `Timestep.lost` marks lost episodes.
        step_timeout: Longest seconds of a step, with all its repeats, or of a reset of one
            environment in a worker process, 60 by default.
        start_timeout: Longest seconds until a worker has made its environments, 300 by default.
        options: Options of the environment, and `wrappers`, `metrics`, `ignore` and
            `world_state`.

    Raises:
        UserError: For an unknown id, an unknown option, or sizes that do not fit.
        RunError: If making an environment raised.
    """
    if isinstance(env, EnvConfig):
        env, options = env.pool_id, {**env.options(), **options}
    sizes = _sizes(num_envs, batch_size, threads, action_repeat)
    others = {"cores": cores if len(cores) else None, "workers": workers, "restarts": restarts}
    others |= {"step_timeout": step_timeout, "start_timeout": start_timeout}
    given = sizes | {name: value for name, value in others.items() if value is not None}
    # Some ids without a prefix, and callables, are of vector environments.
    backend = BACKENDS["vector"] if _vector_maker(env) else backend_of(env)
    for name, value in {**given, **{x: options[x] for x in OPTIONS if x in options}}.items():
        if name not in backend.takes:
            check_effect(env, {name: value}, backend.reasons.get(name, backend.lacks))
    return importlib.import_module(backend.module).make(env, num_envs, options, **given)


def _sizes(
    num_envs: int, batch_size: int | None, threads: int, action_repeat: int
) -> dict[str, int]:
    """Checks numbers of `make_pool`, and gives those other than the usual."""
    expect_number("num_envs", num_envs, 1, MOST)
    batch_size = num_envs if batch_size is None else batch_size
    expect_number("batch_size", batch_size, 1, num_envs)
    expect_number("threads", threads, 0, MOST)
    expect_number("action_repeat", action_repeat, 1, MOST)
    numbers = {"batch_size": batch_size, "threads": threads, "action_repeat": action_repeat}
    usual = {"batch_size": num_envs, "threads": 0, "action_repeat": 1}
    return {name: number for name, number in numbers.items() if number != usual[name]}


def _vector_maker(env: EnvSource) -> VectorMaker | None:
    """Gives the maker of a vector environment, None for others; see `vector_maker`."""
    assert not isinstance(env, EnvConfig)
    return _named(vector_maker, env)


def _named(find: Callable[[Any], Any], env: Any) -> Any:
    try:
        return find(env)
    except ModuleNotFoundError as error:
        raise UserError(f"{env!r} cannot be made: {error}") from error


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
            PROBE_SECONDS.

    Raises:
        UserError: Where it cannot be made so.
    """
    backend = backend_of(env)
    if not backend.made_by_python:
        limits: Any = {"step_timeout": step_timeout, "action_repeat": action_repeat}
        threads = 1 if backend.threaded else 0
        with make_pool(env, 1, threads=threads, workers=workers, **limits) as pool:
            return pool.specs
    config = NamedEnv(env) if isinstance(env, str) else env
    name = env.pool_id if isinstance(env, EnvConfig) else env
    if isinstance(config, EnvConfig) and config.tasks_of_mixture:
        for task in config.tasks_of_mixture:
            expect_environment(task, workers, step_timeout, action_repeat)
    elif not _vector_maker(name):
        if not workers and step_timeout is not None:
            check_effect(env, {"step_timeout": step_timeout}, IN_PROCESS)
        if isinstance(name, str):
            _named(maker_of, name)
    if not probe:
        return None
    from srl.pools.probe import probed  # which few need

    return probed(name, env.options() if isinstance(env, EnvConfig) else {}, PROBE_SECONDS)


def main(arguments: Sequence[str]) -> None:
    """Is the process of `probed`, whose socket has the given descriptor."""
    from srl.pools.probe import answer

    answer(int(arguments[0]), make_pool)
