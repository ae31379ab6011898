"""A worker process, from its start to its end; the controller starts it."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from srl.errors import Unwritable, UserError, explained
from srl.workers.worker_spec import WorkerSpec

if TYPE_CHECKING:
    from srl.workers.control import Control

_SUMMARY, _TEXT = 1_000, 100_000  # characters of an exception, and of what explains it


def main(words: Sequence[str]) -> int:
    """Does what the orders say, from registering to stopping.

    Args:
        words: The orders, as JSON.

    Returns:
        The exit code: 0 when the work is done or was stopped, 1 after an exception.
    """
    orders = WorkerSpec.from_json(words[0])
    if orders.cores:  # before anything is loaded that counts them
        os.sched_setaffinity(0, orders.cores)
    from srl.workers.control import Control, Drained, Kind

    control = Control(orders)
    _log_to(control, orders.name)
    try:
        with suppress(Drained):
            _work(orders, control)
        control.send(Kind.STOPPED, {})
        return 0
    except (Exception, SystemExit) as error:
        _tell(error, control)
        return 1
    finally:
        control.close()


def _work(orders: WorkerSpec, control: Control) -> None:
    from srl.run.recorded import recorded_experiment
    from srl.workers.roles import named_role, role_of
    from srl.workers.worker import Context

    context = Context(orders, control, recorded_experiment(Path(orders.folder)))
    if orders.role:
        role = named_role(orders.role)
    else:
        role = role_of(context.plan.fragments[orders.fragment])
    role(context)


def _tell(error: BaseException, control: Control) -> None:
    from srl.streams import Disconnected
    from srl.workers.control import Kind

    with suppress(OSError):  # its file may be on a full disk
        sys.stderr.write("".join(traceback.format_exception(error)))
    by_user, by_peer = isinstance(error, UserError), isinstance(error, Disconnected)
    final = isinstance(error, Unwritable)
    summary = f"{type(error).__name__}: {error}"[:_SUMMARY]
    text = str(error) if final else explained(error)[-_TEXT:]
    causes = {"by_user": by_user, "by_peer": by_peer, "final": final}
    told = {"summary": summary, "text": text, **causes}
    control.send(Kind.FAILED, told)


class _Terminal(logging.Handler):
    """Shows warnings in the controller's terminal."""

    def __init__(self, control: Control, name: str) -> None:
        super().__init__(logging.WARNING)
        self._control, self._name = control, name

    def emit(self, record: logging.LogRecord) -> None:
        from srl.workers.control import Kind

        self._control.send(Kind.SAY, {"text": f"{self._name}: {record.getMessage()}"})


def _log_to(control: Control, name: str) -> None:
    """Logs go to standard error, which is the worker's file; warnings to the terminal too."""
    form = f"%(asctime)s %(levelname)s {name} %(name)s: %(message)s"
    logging.basicConfig(format=form)
    logging.getLogger("srl").setLevel(logging.INFO)
    logging.getLogger().addHandler(_Terminal(control, name))
