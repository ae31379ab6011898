"""The work of a background process that plays versions of a run: its start and its pace."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from srl.config.experiment import Experiment
from srl.core.backends import backend_of
from srl.core.errors import UserError
from srl.evaluation.background import beside
from srl.pools import Pool, make_pool
from srl.run.folder import recorded_experiment
from srl.system.background.cpu_limit import CpuLimit, cores_granted
from srl.system.background.priority import keep_to_threads, log_as
from srl.system.background.process import URGENT
from srl.system.compilation import keep_compiled_programs


def keep_playing(
    name: str,
    argv: Sequence[str],
    make: Callable[[Path, Experiment, CpuLimit], Any],
    poll_seconds: float,
) -> int:
    """Plays until the parent ends, with one thread and its share of the processors' time.

    Args:
        name: Of the process, in `beside` and in the log.
        argv: The run's folder, and URGENT if it need not rest.
        make: Makes an object with `play`, False if there is nothing to play now, and `close`.
        poll_seconds: The time between two looks for something to play.

    Returns:
        The exit code 2, for an error that another start would not fix.
    """
    log_as(name)
    try:
        folder = Path(argv[0])
        experiment = recorded_experiment(folder)
        share = 1.0 if URGENT in argv else beside(experiment)[name].share
        cpu_limit = CpuLimit(share, cores_granted())
        keep_compiled_programs()
        keep_to_threads(1)
        with closing(make(folder, experiment, cpu_limit)) as games:
            while True:
                if not games.play():
                    time.sleep(poll_seconds)
                cpu_limit.rest()
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return 2


def one_thread_pool(env: Any, num_envs: int, action_repeat: int) -> Pool:
    """Makes environments that this thread steps."""
    threads = 1 if backend_of(env).threaded else 0
    return make_pool(env, num_envs, threads=threads, action_repeat=action_repeat)
