"""The engine interface of `srl run`: start processes on some hosts, report their states, stop.

An engine starts one supervisor for each host that a fragment gets, and one controller with the
fragment that updates, and restarts those lost with their host. The rest is up to these two.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from srl.core.errors import UserError
from srl.dataflow.plan import Fragment, Plan
from srl.launch.engines.needs import EVALUATOR, MIB, usual_cores
from srl.record.files import parse_json, write_output
from srl.record.json_shape import fits
from srl.record.run_record import RunFolder


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
    apart: bool
    """True if no two of the hosts are the same machine."""
    controls: bool
    """True if the controller runs with it, and its hosts begin and end together."""
    evaluates: bool = False
    """True if it evaluates versions, by itself and not by a supervisor."""
    memory: int = 0
    """Bytes of each host, for its workers and its supervisor; 0 where nothing is known."""
    least_cores: int = 0
    """Cores that will do where a node has few; 0 if the plan names `cores`."""

    @property
    def needs_folder(self) -> bool:
        """True if its hosts have to see the run's folder."""
        return self.controls or self.evaluates


@dataclass(frozen=True)
class Submission:
    """A run, as an engine gets it; in a dry run its folder is not there."""

    plan: Plan
    folder: RunFolder
    name: str
    options: Any
    """The options of the command line; each engine reads its own."""
    evaluates: bool = False
    """True if versions are evaluated while it trains."""
    memory: Mapping[str, int] = field(default_factory=dict)
    """Bytes of each worker, by fragment, and of the evaluator."""

    @property
    def parts(self) -> list[Part]:
        """The parts of the run's plan, the controller's first, and what evaluates versions.

        Their cores are those for large nodes; see `needs.fitted`.
        """
        evaluator = _part(EVALUATOR, None, self.memory)
        return [*parts_of(self.plan, self.memory), *([evaluator] if self.evaluates else [])]


class Engine(Protocol):
    """The interface of an engine's module."""

    def texts(self, run: Submission) -> dict[str, str]:
        """Gives the texts for the engine, to be shown: by file name, and no secrets in them."""
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


_NO_MEMORY: Mapping[str, int] = {}
_SUPERVISOR, _CONTROLLER = 128 * MIB, 256 * MIB


def parts_of(plan: Plan, memory: Mapping[str, int] = _NO_MEMORY) -> list[Part]:
    """The parts of a plan, the controller's first; `memory` has bytes of a worker, by fragment."""
    parts = [_part(name, fragment, memory) for name, fragment in plan.fragments.items()]
    return sorted(parts, key=lambda part: not part.controls)


def _part(name: str, fragment: Fragment | None, memory: Mapping[str, int]) -> Part:
    """The part for a fragment; for what evaluates versions without one."""
    evaluates, fragment, usual = fragment is None, fragment or Fragment(()), usual_cores(fragment)
    hosts = fragment.hosts or fragment.replicas
    slots = -(-fragment.replicas // hosts)
    controls, each = "learn" in fragment.nodes, memory.get(name, 0)
    here = _SUPERVISOR + (_CONTROLLER if controls else 0)
    return Part(
        name,
        hosts,
        slots,
        cores=max(1, math.ceil(slots * (fragment.cores or usual))),
        gpus=math.ceil(slots * fragment.gpus),
        apart=fragment.hosts > 0,
        controls=controls,
        evaluates=evaluates,
        memory=slots * each + here if each else 0,
        least_cores=0 if fragment.cores else slots,
    )


def names_file(folder: Path, engine: str) -> Path:
    """The file with an engine's names of the jobs of a run, or of a sweep, in its folder."""
    return folder / engine / "jobs.json"


def read_names(file: Path, whose: str) -> dict[str, str]:
    """An engine's names of jobs, by what they name; none where there is no file.

    Args:
        file: See `names_file`.
        whose: The owner of the jobs, in messages: run or sweep.

    Raises:
        UserError: If the file is damaged.
    """
    try:
        names = parse_json(file.read_bytes())
        if not fits(names, {str: str}) or not names:
            raise ValueError("it is no object of texts")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UserError(
            f"{file} does not hold the names of the {whose}'s jobs any more ({error}); if they "
            "have ended, remove it"
        ) from error
    return names


def write_names(file: Path, names: Mapping[str, str]) -> None:
    """Writes names of jobs, for `read_names`; makes the folder."""
    file.parent.mkdir(exist_ok=True)
    write_output(file, (json.dumps(names) + "\n").encode())


TERMINAL = "terminal"
"""The log, in the run's folder, that holds what the controller shows."""
