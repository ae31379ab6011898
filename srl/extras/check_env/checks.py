"""All checks of an environment, in this process."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from srl.config.experiment import environment_ids
from srl.core.backends import BACKENDS, MIXTURE
from srl.core.errors import SrlError, UserError, described
from srl.core.tree import map_tree
from srl.extras.check_env.gymnasium_checks import GymnasiumChecks
from srl.extras.check_env.pool_checks import PoolChecks
from srl.extras.check_env.report import Fault, Finding, Settings, Watch, draw_action, run_checks
from srl.pools import make_pool
from srl.pools.python.sources import make_environment, named_maker, refuse_options, vector_maker
from srl.system.search_path import add_folder

_POOLS = tuple(f"{prefix}:" for prefix in BACKENDS if prefix)
"""Prefixes of what is checked through a pool's interface."""
_NAMING = "srl check-env MODULE:FACTORY"


def findings(settings: Settings, watch: Watch) -> Iterator[str | Finding]:
    """Checks an environment; gives the name of each check, and then what it finds.

    Raises:
        UserError: If there is no such environment.
    """
    env, options = settings.env, settings.options
    add_folder(Path.cwd())
    source = env if env.startswith(_POOLS) else _source(env)
    batched = vector_maker(source) is not None
    if batched or env.startswith(_POOLS):
        pools = PoolChecks(lambda n: make_pool(source, n, **options), settings, watch, batched)
        yield from run_checks(pools.checks(), pools.needed)
        return

    def make() -> Any:
        try:
            return make_environment(source, options)
        except TypeError as error:
            refuse_options(error, source, options)
            raise

    single = GymnasiumChecks(make, settings, watch)
    checks = {**single.checks(), "pool": lambda: _in_pools(source, settings, watch)}
    with warnings.catch_warnings():  # Gymnasium's own checks report the same
        warnings.simplefilter("ignore")
        yield from run_checks(checks, single.needed)


def _source(env: str) -> Any:
    """Finds the maker of one environment: a callable, or an id of Gymnasium."""
    if Path(env).is_file():
        ids = environment_ids(Path(env))
        hint = " or ".join(f"srl check-env {name}" for name in ids)
        raise UserError(f"{env} is a file; name what makes an environment: {hint or _NAMING}")
    if env.startswith(MIXTURE):
        raise UserError(f"{env} is a mixture: check the environment of each task")
    module = env.rpartition(":")[0]
    try:
        found = named_maker(env)
        if module and not found:  # the id is registered by it
            importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(f"{env}: {error}; run from the folder that holds it") from None
    if callable(found):
        return found
    try:
        gymnasium.spec(env.rpartition(":")[2])
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        raise UserError(
            f"{env!r} is neither an environment id nor module:factory: {error}"
        ) from None
    return env


def _in_pools(source: Any, settings: Settings, watch: Watch) -> Iterator[Finding]:
    """Checks that the environment steps in a pool, in this process and in a worker process."""
    options, seed = settings.options, settings.seed
    _play_in_pool(source, options, seed, watch)
    yield Finding("pool", "ok", "steps in a pool of 2")
    _play_in_pool(settings.env, {**options, "workers": 1}, seed, watch)
    text = "steps in a worker process, which makes it itself: nothing need be pickled"
    yield Finding("pool", "ok", text)


def _play_in_pool(source: Any, options: dict[str, Any], seed: int, watch: Watch) -> None:
    try:
        watch(making=True)
        with make_pool(source, 2, **options) as pool:
            watch()
            timestep = pool.reset(seed)
            rng = np.random.default_rng(seed)
            for _ in range(3):
                seen = timestep.observation
                masks = seen.get("action_mask") if isinstance(seen, dict) else None
                rows = (None, None) if masks is None else masks
                actions = [draw_action(pool.specs.action, mask, rng) for mask in rows]
                watch()
                timestep = pool.step(map_tree(lambda *rows: np.stack(rows), *actions))
    except SrlError as error:
        raise Fault(f"a pool of it refuses: {error}") from error
    except (Exception, KeyboardInterrupt) as error:
        raise Fault(f"a pool of it raised {described(error)}") from error
