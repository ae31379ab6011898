"""What a worker process is told on its command line. Read before anything heavy is imported."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from srl.streams.transport import Transport


@dataclass(frozen=True)
class WorkerSpec:
    """What a worker process is told on its command line, as JSON."""

    folder: str
    """The run's."""
    fragment: str
    replica: int
    number: int
    """Of the worker among all of the run, from 1; the same after a restart."""
    incarnation: int
    """Starts of this worker before this one; all of a gang count together."""
    run: int = 0
    """64 random bits that tell the processes of this run from those of others."""
    controller: str = ""
    """Address at which the controller is reached."""
    cores: tuple[int, ...] = ()
    """Processors to stay on; none for wherever there is room."""
    resume: bool = False
    """Whether to go on from the newest checkpoint."""
    role: str = ""
    """module:function to run in place of what the fragment's nodes ask for."""
    transport: Transport = "host"
    """Of the streams between workers."""
    interface: str = ""
    """Address of this host at which other hosts of the run reach it; none if there are none."""
    ledger: int = -1
    """Descriptor of the `Ledger`, for workers that update."""

    @property
    def name(self) -> str:
        """What people call the worker."""
        return f"{self.fragment}-{self.replica}"

    def to_json(self) -> str:
        """As `from_json` takes it."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> WorkerSpec:
        """The orders that `to_json` wrote."""
        values = json.loads(text)
        return WorkerSpec(**{**values, "cores": tuple(values["cores"])})
