"""The role that a worker has anyway, which then tells what it has loaded and how large it is."""

import json
import sys
from pathlib import Path

from srl.workers.roles import role_of

HEAVY = {"jax", "jaxlib", "flax", "optax", "zmq", "tensorboardX", "rich"}


def watched(context):
    """Runs the worker; then writes `told-<worker>` into the run's folder."""
    role = role_of(context.plan.fragments[context.fragment])
    role(context)
    told = {
        "role": role.__name__,
        "modules": sorted(HEAVY & set(sys.modules)),
        "memory": proportional_memory(),
    }
    (context.folder / f"told-{context.fragment}-{context.replica}").write_text(json.dumps(told))


def proportional_memory():
    """Of this process, in MB."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return int(rollup.split("Pss:")[1].split()[0]) / 1024
