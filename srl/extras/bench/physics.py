"""The speed of a native environment's physics alone: an upper bound for a pool."""

from __future__ import annotations

from typing import Any

from srl.core.errors import RunError, UserError
from srl.pools.native.core import core
from srl.pools.native.mujoco import core_options


def physics_rate(
    name: str,
    num_envs: int,
    threads: int = 0,
    seconds: float = 5.0,
    hold: int = 1,
    **options: Any,
) -> float:
    """Measures the physics of a MuJoCo environment alone.

    Each thread steps its own environments with random controls and starts them again where the
    environment would, without observations and without waiting for other threads. Hide-and-seek is
    played for this, and its physics is computed once more: the same models, states, controls, locks
    and grips.

    Args:
        name: Such as "Ant-v5".
        num_envs: How many environments, of all threads together.
        threads: 0 takes one for each core.
        seconds: How long to measure.
        hold: Steps for which random controls stay; 1: drawn anew at each.
        options: The environment's.

    Returns:
        Env steps per second.

    Raises:
        UserError: If the environment does not run on MuJoCo, or an option does not fit.
        RunError: If MuJoCo fails.
    """
    try:
        return core.physics_rate(
            name, core_options(name, options), num_envs, threads, seconds, hold
        )
    except ValueError as error:
        raise UserError(f"native:{name}: {error}") from None
    except RuntimeError as error:
        raise RunError(f"native:{name}: {error}") from None
