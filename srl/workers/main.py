"""A worker process, from its start to its end; the controller starts it."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from srl.core.errors import Final, UserError, described, explained, formatted
from srl.workers.worker_spec import WorkerSpec

if TYPE_CHECKING:
    from srl.workers.control import Control

_SUMMARY, _TEXT = 1_000, 100_000  # characters of an exception, and of what explains it


def main(argv: Sequence[str]) -> int:
    """Runs a worker from registering to stopping.

    Args:
        argv: Its `WorkerSpec`, as JSON.

    Returns:
        The exit code: 0 when the work is done or was stopped, 1 after an exception.
    """
    spec = WorkerSpec.from_json(argv[0])
    if spec.cores:  # before anything is loaded that counts them
        os.sched_setaffinity(0, spec.cores)
    from srl.workers.control import Control, ControlMessage, Drained

    if spec.interface and spec.ledger >= 0:
        # An engine that takes a host away sends TERM to all processes; to one that learns its
        # supervisor says what to do.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    control = Control(spec)
    _log_to(control, spec.name)
    try:
        with suppress(Drained):
            _work(spec, control)
        control.send(ControlMessage.STOPPED, {})
        return 0
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        _report(error, control)
        return 1
    finally:
        control.close()


def _work(spec: WorkerSpec, control: Control) -> None:
    from srl.run.folder import recorded_experiment
    from srl.workers.roles import named_role, role_of
    from srl.workers.worker import WorkerContext

    context = WorkerContext(spec, control, recorded_experiment(Path(spec.folder)))
    if spec.role:
        role = named_role(spec.role)
    else:
        role = role_of(context.plan.fragments[spec.fragment])
    role(context)
    if "step" not in context.plan.fragments[spec.fragment].nodes:
        # Spares it Python's last collection, 0.3 s with JAX. Environments may need that: what
        # one of them leaves open is closed with it.
        gc.freeze()


def _report(error: BaseException, control: Control) -> None:
    from srl.streams.transport import Disconnected
    from srl.workers.control import ControlMessage

    with suppress(OSError):  # its file may be on a full disk
        sys.stderr.write(f"{formatted(error)}\n")
    by_user, by_peer = isinstance(error, UserError), isinstance(error, Disconnected)
    final = isinstance(error, Final)
    summary = described(error)[:_SUMMARY]
    text = str(error) if final else explained(error)[-_TEXT:]
    causes = {"by_user": by_user, "by_peer": by_peer, "final": final}
    control.send(ControlMessage.FAILED, {"summary": summary, "text": text, **causes})


class _Terminal(logging.Handler):
    """Shows warnings in the controller's terminal."""

    def __init__(self, control: Control, name: str) -> None:
        super().__init__(logging.WARNING)
        self._control, self._name = control, name

    def emit(self, record: logging.LogRecord) -> None:
        from srl.workers.control import ControlMessage

        self._control.send(ControlMessage.SAY, {"text": f"{self._name}: {record.getMessage()}"})


def _log_to(control: Control, name: str) -> None:
    """Sends logs to standard error, which is the worker's file; warnings to the terminal too."""
    from srl.system.background.priority import log_as

    log_as(name)
    logging.getLogger().addHandler(_Terminal(control, name))
