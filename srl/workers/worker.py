"""A worker process as its role sees it: what it is, which peers it has, when to stop."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from srl.config.experiment import Experiment
from srl.core.errors import RunError
from srl.core.types import Specs
from srl.loop.busy_time import SecondsByKind
from srl.loop.learning.unroll_ledger import Ledger
from srl.loop.stage import Stage
from srl.loop.wiring import Addresses, Endpoints
from srl.record.specs_json import specs_to_json
from srl.run.hooks import Answer, Asking, Happened
from srl.streams.transport.keys import keys_of
from srl.workers.control import Control, ControlMessage, Start
from srl.workers.worker_spec import WorkerSpec


class WorkerContext:
    """The argument of a role's function: the worker's place, and its connection to the controller.

    A role makes what others connect to, calls `register`, and works until it is done or `stopping`
    is set, calling `progress` from its main loop, also while that waits.
    """

    def __init__(self, spec: WorkerSpec, control: Control, experiment: Experiment) -> None:
        self.experiment, self.plan = experiment, experiment.settled_plan
        self.folder = Path(spec.folder)
        self.fragment, self.replica = spec.fragment, spec.replica
        self.number, self.incarnation = spec.number, spec.incarnation
        self.identity = control.identity
        """The identity with which the worker listens and connects."""
        self.interface = spec.interface or "127.0.0.1"
        """The address at which other hosts reach this one."""
        self.resume = spec.resume
        """True to go on from the newest checkpoint, if there is one."""
        self.stopping = control.stopping
        """A `threading.Event`, set when the worker is to finish and return."""
        self._spec, self._control = spec, control

    @cached_property
    def ledger(self) -> Ledger:
        """The account of unrolls; of workers whose fragment has `learn`."""
        if self._spec.ledger < 0:
            raise RunError(f"{self._spec.name} keeps no account of unrolls: it has no update")
        return Ledger(self._spec.ledger, self.replica)

    @property
    def neighbours(self) -> int:
        """Replicas of the worker on its host, itself among them; 1 where that is not known."""
        return 1 if self._spec.interface else self.plan.fragments[self.fragment].replicas

    def register(self, addresses: dict[str, str], specs: Specs | None = None) -> Start:
        """Reports to the controller where this worker is reached, and waits until it is to begin.

        Args:
            addresses: By a name that its peers know.
            specs: Of its environments, if it steps any; all such workers give the same.

        Raises:
            Drained: If the worker is asked to end instead; leave that to the caller.
        """
        sent = None if specs is None else specs_to_json(specs)
        self._control.send(ControlMessage.HELLO, {"addresses": addresses, "specs": sent})
        return self._control.wait_for_start()

    def endpoints(self) -> Endpoints:
        """The worker's place among the others; streams connect once it has registered."""
        endpoints = Endpoints(
            self.experiment,
            self.fragment,
            self.replica,
            self.identity,
            self.peers,
            self.stopping,
            self._spec.transport,
            self.progress,
            self._control.busy,
            interface=self.interface,
            keys=keys_of(self.folder) if self._spec.interface else None,
            hurried=self._control.hurried,
        )
        self._control.on_start = lambda start: endpoints.fence(start.incarnations)
        return endpoints

    def progress(self, **counters: float) -> None:
        """Marks the main loop as alive; cheap.

        A worker whose loop shows none for `heartbeat_seconds` is taken for hung.

        Args:
            **counters: Totals of this worker, such as steps. Once one has grown, the worker has
                done something: from now on it is watched for hanging, and earlier deaths are
                forgiven.
        """
        self._control.main_loop.alive(**counters)

    def stage(self, stage: Stage) -> None:
        """Reports in which stage the worker is; from STEPPING on it is watched for hanging."""
        self._control.main_loop.enter(stage)

    def on_seconds(self, add: Callable[[SecondsByKind], None]) -> None:
        """Calls `add`, in another thread, with what other workers spend their time on."""
        self._control.on_seconds = add

    def peers(self) -> Addresses:
        """The addresses of the other workers as they are now; any thread may ask."""
        return self._control.peers

    def say(self, text: str) -> None:
        """Shows a line in the terminal."""
        self._control.send(ControlMessage.SAY, {"text": text})

    def hooks(self) -> Asking:
        """Makes a learning worker's access to the run's hooks; replicas get the same answers."""
        events = itertools.count()

        def ask(happened: Happened, settings: Mapping[str, float]) -> Answer:
            number = next(events)
            event = {"happened": happened, "settings": settings, "number": number}
            answer = self._control.wait_for_answer(number, None if self.replica else event)
            return Answer(answer["stop"], answer["settings"])

        return Asking(self._spec.hooks, ask)

    def report(self, metrics: dict[str, Any]) -> None:
        """Sends metrics, which are plain numbers and strings, to the display."""
        self._control.send(ControlMessage.REPORT, metrics)
