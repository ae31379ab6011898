"""Starts a process that works beside a run, restarts it when it dies, and ends it."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from srl.system.supervised import Child, Ended

logger = logging.getLogger(__name__)

URGENT = "urgent"
"""The argument, after the run's folder, of a process that need not rest."""

_MOST_DEATHS = 5
_PAUSE_SECONDS = 5.0
_LOOK_SECONDS = 0.5


class BackgroundProcess:
    """Keeps a process running for as long as this is entered; the run continues whatever it does.

    The process' exit code is 2 for an error that another start would not fix.
    """

    def __init__(
        self,
        name: str,
        module: str,
        run: Path,
        show: Callable[[str], None],
        *,
        without: str,
        nice: int = 19,
        urgent: Callable[[], bool] = lambda: False,
        on_given_up: Callable[[], None] = lambda: None,
    ) -> None:
        """Starts nothing yet.

        Args:
            name: Of the process, in messages and of its log.
            module: Its `main` is called with the run's folder.
            run: The run's folder.
            show: Shows a line of text.
            without: What the run lacks without the process, such as "versions are not rated".
            nice: How low its priority is, from 0, which is the run's and starts it with URGENT.
            urgent: Whether the run waits for the process by now. Then it is killed and started anew
                with a nice of 0, as none can raise a priority that it has lowered.
            on_given_up: Called when it is not started again, though the run goes on.
        """
        self._name, self._module, self._run_folder = name, module, run
        self._log, self._show, self._without = run / "logs" / f"{name}.log", show, without
        self._urgent, self._on_given_up = urgent, on_given_up
        self._nice = nice
        self._ending = threading.Event()
        self._child: Child | None = None
        self._lock = threading.Lock()
        # The kernel kills the process when the thread that began it ends: this one does last.
        self._thread = threading.Thread(target=self._keep, name=name, daemon=True)

    def __enter__(self) -> BackgroundProcess:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._ending.set()
            if self._child is not None:
                self._child.kill()  # what it writes is there whole, or not at all
        self._thread.join()

    def _keep(self) -> None:
        deaths = 0
        while True:
            try:
                ended = self._run()
            except OSError as error:
                return self._give_up(f"could not be started ({error}); {self._without}")
            if self._ending.is_set():
                return None
            if ended is None:
                continue
            deaths += 1
            if ended.dump:
                logger.info("the %s crashed:\n%s", self._name, ended.dump)
            if ended.code == 2:
                return self._give_up(f"cannot play here{self._reason()}; {self._without}")
            if deaths == _MOST_DEATHS:
                return self._give_up(f"{ended.how}; {self._without} any longer")
            self._report(f"{ended.how}; it is started again")
            if self._ending.wait(_PAUSE_SECONDS):
                return None

    def _run(self) -> Ended | None:
        """Runs the process to its end; gives None where it has become urgent, or is not wanted."""
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
        environment = {
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": flags,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        if self._urgent():
            self._nice = 0
        urgent = [] if self._nice else [URGENT]
        with self._log.open("ab") as log:
            with self._lock:
                if self._ending.is_set():
                    return None
                child = self._child = Child(
                    self._module,
                    *(str(self._run_folder), *urgent),
                    environment=environment,
                    stdout=log,
                    stderr=log,
                    dies_with_parent=True,
                    nice=self._nice,
                )
        with child:
            while not child.wait(_LOOK_SECONDS):
                if self._nice and self._urgent():
                    return None
            return child.reap()

    def _reason(self) -> str:
        """The error that the process ended with, which is the last line of its log."""
        with contextlib.suppress(OSError):
            lines = self._log.read_text(errors="replace").strip().splitlines()
            return f" ({lines[-1]})" if lines else ""
        return ""

    def _give_up(self, what: str) -> None:
        self._report(what)
        self._on_given_up()

    def _report(self, what: str) -> None:
        logger.info("the %s %s; its log is %s", self._name, what, self._log)
        with contextlib.suppress(Exception):
            self._show(f"the {self._name} {what}; its log is {self._log}")
