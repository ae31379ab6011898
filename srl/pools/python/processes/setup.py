"""The message, sent through a pipe, that a worker process makes its environments from."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import cloudpickle
import gymnasium

from srl.core.errors import UserError
from srl.pools.python.sources import SimulatorSource, source_name


def pack_setup(
    source: SimulatorSource, options: dict[str, Any], num_envs: int, action_repeat: int
) -> bytes:
    """Pickles what all environments of a pool are made from.

    Raises:
        UserError: If that cannot be pickled.
    """
    # An id may be known to this process alone.
    spec = gymnasium.registry.get(source) if isinstance(source, str) else None
    # Modules that no other process can import, such as an experiment file's, go along by value.
    modules = {id(m): m for m in list(sys.modules.values()) if isinstance(m, type(sys))}.values()
    alien = [m for m in modules if getattr(m, "__spec__", 0) is None]
    by_value = [m for m in alien if m.__name__ != "__main__"]
    registered = []
    try:
        for module in by_value:
            cloudpickle.register_pickle_by_value(module)
            registered.append(module)
        return cloudpickle.dumps((spec, source, options, num_envs, action_repeat))
    except Exception as error:
        raise UserError(
            f"{source_name(source)} cannot be sent to a worker process: {error}; let the callable "
            "make what cannot be pickled itself, or step in this process with workers=0"
        ) from error
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


def unpack_setup(setup: bytes) -> tuple[SimulatorSource, dict[str, Any], int, int]:
    """The arguments of `pack_setup`, in another process of the same run."""
    spec, *arguments = pickle.loads(setup)
    if spec is not None:
        gymnasium.registry.setdefault(spec.id, spec)
    source, options, num_envs, action_repeat = arguments
    return source, options, num_envs, action_repeat
