"""What `srl run` asks of an engine: to start processes on some hosts, report their states, stop.

An engine starts one supervisor for each host that a fragment gets, and one controller beside the
fragment that updates, and starts again what was lost with its host. The rest is up to these two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from srl.dataflow.plan import Fragment, Plan
from srl.run_record import RunFolder


@dataclass(frozen=True)
class Part:
    """The hosts that an engine is asked for, for one fragment."""

    fragment: str
    hosts: int
    """The number of supervisors; a machine may have several where they need not be apart."""
    slots: int
    """Workers on each host."""
    cores: int
    """Cores of each host, for its workers."""
    gpus: int
    """GPUs of each host."""
    apart: bool
    """Whether no two of the hosts are the same machine."""
    controls: bool
    """Whether the controller runs beside it, and its hosts begin and end together."""
    evaluates: bool = False
    """Whether it evaluates versions, by itself and not by a supervisor."""

    @property
    def needs_folder(self) -> bool:
        """Whether its hosts have to see the run's folder."""
        return self.controls or self.evaluates


@dataclass(frozen=True)
class Submission:
    """A run, as an engine gets it; in a dry run its folder is not there."""

    plan: Plan
    folder: RunFolder
    name: str
    """The experiment's name."""
    options: Any
    """The options of the command line; each engine reads its own."""
    evaluates: bool = False
    """Whether versions are evaluated while it trains."""

    @property
    def parts(self) -> list[Part]:
        """The parts of the run's plan, the controller's first, and what evaluates versions."""
        return [*parts_of(self.plan), *([_EVALUATOR] if self.evaluates else [])]


_EVALUATOR = Part(
    "evaluator", hosts=1, slots=1, cores=1, gpus=0, apart=False, controls=False, evaluates=True
)


class Engine(Protocol):
    """What the module of an engine offers."""

    def texts(self, run: Submission) -> dict[str, str]:
        """What the engine is given, as it is shown: text by file name, and no secrets in it."""
        ...

    def submit(self, run: Submission) -> dict[str, str]:
        """Gives a run to the engine.

        Returns:
            The engine's names of its jobs, for `states` and `stop`, by what they name.

        Raises:
            UserError: If the engine is out of reach or refuses; then nothing of the run is left
                with it.
        """
        ...

    def states(self, names: Mapping[str, str]) -> set[str]:
        """The states of the jobs that wait or run, such as PENDING.

        Raises:
            RunError: If they have failed.
            UserError: If the engine does not answer.
        """
        ...

    def refused(self, names: Mapping[str, str]) -> str:
        """The error of a host that cannot take part, if only the engine knows it; else empty.

        Raises:
            UserError: If the engine does not answer.
        """
        ...

    def stop(self, names: Mapping[str, str]) -> bool:
        """Has the run end after a checkpoint.

        Returns:
            Whether its controller will record the end; False where it did not run, and never will.

        Raises:
            UserError: If the engine does not answer.
        """
        ...


def parts_of(plan: Plan) -> list[Part]:
    """The parts of a plan, the controller's first."""
    parts = [_part(name, fragment) for name, fragment in plan.fragments.items()]
    return sorted(parts, key=lambda part: not part.controls)


def _part(name: str, fragment: Fragment) -> Part:
    hosts = fragment.hosts or fragment.replicas
    slots = -(-fragment.replicas // hosts)
    cores = max(1, math.ceil(slots * (fragment.cores or 1)))
    gpus = math.ceil(slots * fragment.gpus)
    return Part(name, hosts, slots, cores, gpus, fragment.hosts > 0, "learn" in fragment.nodes)


def names_file(run: Path, engine: str) -> Path:
    """The file of a run's folder with an engine's names of the run's jobs."""
    return run / engine / "jobs.json"


TERMINAL = "terminal"
"""The log, in the run's folder, that holds what the controller shows."""
