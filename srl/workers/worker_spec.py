"""The command line of a worker process, which is read before anything heavy is imported."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from srl.streams.transport import Transport


@dataclass(frozen=True)
class WorkerSpec:
    """The identity of a worker process and its run; it is passed on the command line, as JSON."""

    folder: str
    fragment: str
    replica: int
    number: int
    """The worker's number in the run, from 1; the same after a restart."""
    incarnation: int
    """Starts of this worker before this one; all of a gang count together."""
    run: int = 0
    """64 random bits that distinguish the processes of this run from those of others."""
    controller: str = ""
    """Address at which the controller is reached."""
    cores: tuple[int, ...] = ()
    """The processors that the worker is pinned to; none if it may run on any."""
    resume: bool = False
    """True to go on from the newest checkpoint."""
    role: str = ""
    """module:function to run in place of what the fragment's nodes ask for."""
    transport: Transport = "host"
    """The transport of the streams between workers."""
    interface: str = ""
    """The address at which other hosts of the run reach this one; empty if there are none."""
    hooks: tuple[str, ...] = ()
    """The events at which those that learn ask the run's hooks, which the controller calls."""
    ledger: int = -1
    """The descriptor of the `Ledger`'s memory; -1 for workers that do not update."""

    @property
    def name(self) -> str:
        """The worker's name in logs and messages, such as `actors-3`."""
        return f"{self.fragment}-{self.replica}"

    def to_json(self) -> str:
        """The spec as text, which `from_json` reads."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> WorkerSpec:
        """The spec that `to_json` wrote."""
        values = json.loads(text)
        lists = {name: tuple(item) for name, item in values.items() if isinstance(item, list)}
        return WorkerSpec(**{**values, **lists})
