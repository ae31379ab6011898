"""Starts the process that rates a run's versions, restarts it when it dies, and ends it."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from srl.experiment import Experiment
from srl.system.child_process import child_command, ending

logger = logging.getLogger(__name__)

_NAME = "rater"
_MOST_DEATHS = 5
_PAUSE_SECONDS = 5.0


class RaterProcess:
    """Keeps the rater running for as long as it is entered; the run continues whatever it does."""

    def __init__(self, experiment: Experiment, run: Path, show: Callable[[str], None]) -> None:
        """Starts nothing yet, and never anything if the experiment rates no versions."""
        settings = experiment.self_play
        self._wanted = settings is not None and settings.evaluate > 0
        self._run_folder, self._log, self._show = run, run / "logs" / f"{_NAME}.log", show
        self._ending = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        # The kernel kills the process when the thread that began it ends: this one does last.
        self._thread = threading.Thread(target=self._keep, name=_NAME, daemon=True)

    def __enter__(self) -> RaterProcess:
        if self._wanted:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._ending.set()
            if self._process is not None:
                self._process.kill()  # what it writes is there whole, or not at all
        if self._thread.ident is not None:
            self._thread.join()

    def _keep(self) -> None:
        """Starts the rater, and starts it again when it has died."""
        for death in range(1, _MOST_DEATHS + 1):
            try:
                code = self._run()
            except OSError as error:
                return self._report(f"could not be started ({error}); versions are not rated")
            if self._ending.is_set():
                return None
            if code == 2:
                return self._report("cannot play here; versions are not rated")
            last = death == _MOST_DEATHS
            consequence = "versions are no longer rated" if last else "it is started again"
            self._report(f"{ending(code)}; {consequence}")
            if last or self._ending.wait(_PAUSE_SECONDS):
                return None
        return None

    def _run(self) -> int:
        """Runs the rater to its end; gives its exit code."""
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
        environment = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": flags,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        command = child_command("srl.self_play.rater", str(self._run_folder), dies_with_parent=True)
        with self._log.open("ab") as log:
            with self._lock:
                if self._ending.is_set():
                    return 0
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,  # Ctrl-C is for the run
                )
            return self._process.wait()

    def _report(self, what: str) -> None:
        logger.warning("the rater %s; its log is %s", what, self._log)
        with contextlib.suppress(Exception):
            self._show(f"the rater {what}; its log is {self._log}")
