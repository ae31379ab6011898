"""What `srl run` asks of an engine: start these processes on some hosts, tell how they are, stop.

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
from srl.run.folder import RunFolder


@dataclass(frozen=True)
class Part:
    """What is asked for one fragment."""

    fragment: str
    hosts: int
    """That run a supervisor; a machine may pass for several where they need not be apart."""
    slots: int
    """Workers on each."""
    cores: int
    """Of each host, for its workers."""
    gpus: int
    """Of each host."""
    apart: bool
    """Whether no two of the hosts are the same machine."""
    controls: bool
    """Whether the controller runs beside it, and its hosts begin and end together."""


@dataclass(frozen=True)
class Submission:
    """A run, as an engine gets it."""

    plan: Plan
    folder: RunFolder
    name: str
    """Of the experiment."""
    options: Any
    """Of the command line; each engine reads its own."""
    files: Mapping[str, str]
    """With which the folder begins, by name; in a dry run it is not there."""

    @property
    def parts(self) -> list[Part]:
        """What to ask for, the controller's first."""
        return parts_of(self.plan)


class Engine(Protocol):
    """What the module of an engine offers."""

    def texts(self, run: Submission) -> dict[str, str]:
        """What the engine is given, as it is shown: text by file name, and no secrets in it."""
        ...

    def submit(self, run: Submission) -> dict[str, str]:
        """Gives a run to the engine.

        Returns:
            How the engine calls it, for `states` and `stop`: names by what they name.

        Raises:
            UserError: If the engine is out of reach or refuses; then nothing of the run is left
                with it.
        """
        ...

    def states(self, names: Mapping[str, str]) -> set[str]:
        """How the run's parts are, such as PENDING, for those that wait or run; else nothing."""
        ...

    def refused(self, names: Mapping[str, str]) -> str:
        """Which host cannot take part, why, and what to do, if only the engine knows; or nothing.

        Raises:
            UserError: If the engine does not answer.
        """
        ...

    def stop(self, names: Mapping[str, str]) -> bool:
        """Has the run end after a checkpoint.

        Returns:
            Whether it will say how it ended; not where its controller did not run, and now never
            will.

        Raises:
            UserError: If the engine does not answer.
        """
        ...


def parts_of(plan: Plan) -> list[Part]:
    """What to ask for, the controller's first."""
    made = [_part(name, fragment) for name, fragment in plan.fragments.items()]
    if not any(part.controls for part in made):
        raise AssertionError("every plan updates somewhere")
    return sorted(made, key=lambda part: not part.controls)


def _part(name: str, fragment: Fragment) -> Part:
    hosts = fragment.hosts or fragment.replicas
    slots = -(-fragment.replicas // hosts)
    cores = max(1, math.ceil(slots * (fragment.cores or 1)))
    gpus = math.ceil(slots * fragment.gpus)
    return Part(name, hosts, slots, cores, gpus, fragment.hosts > 0, "update" in fragment.placed)


def names_file(run: Path, engine: str) -> Path:
    """Where a run's folder tells how an engine calls what it was given."""
    return run / engine / "jobs.json"


TERMINAL = "terminal"
"""The log, in the run's folder, that holds what the controller shows."""
