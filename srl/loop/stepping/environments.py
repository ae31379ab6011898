"""The pools of a worker's groups of environments."""

from __future__ import annotations

import os
from functools import partial

from srl.config.experiment import Experiment
from srl.core.backends import backend_of
from srl.loop.wiring import Endpoints
from srl.pools import Pool, make_pool
from srl.pools.lessons import LessonPool
from srl.system.cores import cores_to_fill


def environments_text(group: int, each: int) -> str:
    """The numbers of the environments of a group of `each`, as text."""
    first, last = group * each, (group + 1) * each - 1
    return f"environments {first} to {last}" if last > first else f"environment {first}"


def make_pools(endpoints: Endpoints, beside: int = 0) -> list[Pool]:
    """The pools of an actor: one of each group, or one of all environments that step as ready.

    So many groups step at the same time in this process; by default the actor's.
    """
    share = endpoints.share("step", endpoints.replica)
    each, beside = endpoints.group_envs, beside or len(share)
    if endpoints.steps_as_ready:
        return [make_group(endpoints.experiment, each * len(share))]
    return [make_group(endpoints.experiment, each, beside) for _ in share]


def make_group(experiment: Experiment, num_envs: int, beside: int = 1) -> Pool:
    """A pool of `num_envs` of an experiment's environments.

    So many groups `beside` each other step at the same time in this process, and share its cores.
    """
    threads = experiment.threads
    share = max(1, cores_to_fill() // beside)
    if not threads and backend_of(experiment.env).threaded and share < len(os.sched_getaffinity(0)):
        threads = share
    makers = [
        partial(
            make_pool,
            env,
            threads=threads,
            workers=experiment.workers,
            step_timeout=experiment.step_timeout,
            action_repeat=experiment.action_repeat,
        )
        for env in experiment.lesson_envs
    ]
    return LessonPool(makers, num_envs) if len(makers) > 1 else makers[0](num_envs)
