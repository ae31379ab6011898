"""Low priority and few threads for background processes, which leave the machine to the run."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

from srl.core.lazy import jax

_SESSION_NICE = 14
"""The nice value of a session, which has a weight of 45 then, and the run's 1024: 4 % of the
machine where the run would take all of it."""


def log_as(name: str) -> None:
    """Sends logs to standard error, which is the process' file."""
    logging.basicConfig(format=f"%(asctime)s %(levelname)s {name} %(name)s: %(message)s")
    logging.getLogger("srl").setLevel(logging.INFO)


def lower_priority(nice: int) -> None:
    """Lets other processes come first, also those of other sessions; `nice` is up to 19."""
    with suppress(OSError):  # a run may have a real-time policy, which would be inherited
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.nice(nice)
    # Linux may divide time among sessions first, each with a priority of its own: see sched(7).
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_SESSION_NICE))


def keep_to_threads(count: int) -> None:
    """Makes JAX start as many threads as for `count` cores, which may then run on any core."""
    cores, others = os.sched_getaffinity(0), set(os.listdir("/proc/self/task"))
    os.sched_setaffinity(0, sorted(cores)[:count])
    jax.devices()
    os.sched_setaffinity(0, cores)
    for thread in set(os.listdir("/proc/self/task")) - others:
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cores)
