"""The acting half of a run, as the run drives it; see `local`, `remote` and `threads`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from srl.config.experiment import Experiment
from srl.core.types import Specs, Tree
from srl.loop import projection
from srl.loop.wiring import Endpoints
from srl.pools import Pool, make_pool
from srl.pools.lessons import LessonPool
from srl.pools.make import threaded
from srl.streams.batch import Batch
from srl.system.cores import cores_to_fill

if TYPE_CHECKING:
    from srl.loop.learning.learner import Learner


class Environments(projection.Environments, Protocol):
    """The source of a run's unrolls, from its start to its end."""

    worker: str
    """The kind of worker that this is in; its time is reported under this name."""
    replica: int
    replicas: int
    """Workers that learn together, and which of them this is."""
    resumes_exactly: bool
    """False where environments cannot be saved and restart their episodes."""

    @property
    def calls_one_program(self) -> bool:
        """True if one thread calls the worker's programs, so that no two run at once."""
        ...

    def make(self) -> Specs:
        """Makes what environments there are here; gives the specs of all."""
        ...

    def slots(self, specs: Specs) -> range:
        """The slots that are learned from here, by their numbers in the run."""
        ...

    def prepare(self, learner: Learner, alive: Callable[[], None]) -> Sequence[Batch]:
        """Takes the memory of batches, and gives those of the first pass, still empty.

        Args:
            learner: That learns from them.
            alive: Called when there is progress: before each step of environments here, or
                each compiled unroll.
        """
        ...

    def begin(self) -> None:
        """Makes ready for the first pass, after everything is compiled."""

    @property
    def awaited(self) -> str:
        """The event waited for now, such as "environments 0 to 7 to step", where that is known."""
        ...

    @property
    def account(self) -> str:
        """The account of all unrolls, where they pass a stream in this process."""
        ...

    def report(self) -> dict[str, Any]:
        """Metrics since the last report."""
        ...

    def states(self) -> Mapping[int, Tree]:
        """The state of every group that is learned from here, between two passes."""
        ...

    def restore(self, states: Mapping[int, Tree]) -> None:
        """Lets groups go on from the states of all, or anew where there is none that fits."""

    def close(self) -> None:
        """Lets go of all that was made."""


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
    if not threads and threaded(experiment.env) and share < len(os.sched_getaffinity(0)):
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
