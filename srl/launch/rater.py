"""The process beside a run that rates its versions: its start, its deaths, its end."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import threading
from collections.abc import Callable

from srl.experiment import Experiment
from srl.run.folder import RunFolder
from srl.system.child_process import child_command, ending

logger = logging.getLogger(__name__)

_NAME = "rater"
_DEATHS = 5
_PAUSE_SECONDS = 5.0


class RaterBeside:
    """Keeps the rater running for as long as it is entered; the run goes on whatever it does."""

    def __init__(
        self, experiment: Experiment, folder: RunFolder, say: Callable[[str], None]
    ) -> None:
        """Starts nothing yet.

        Args:
            experiment: Whether its versions are rated, its self-play says.
            folder: Of the run.
            say: Shows a line.
        """
        settings = experiment.self_play
        self._wanted = settings is not None and settings.evaluate > 0
        self._folder, self._say = folder, say
        self._ending = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        # The kernel kills the process when the thread that began it ends: this one does last.
        self._thread = threading.Thread(target=self._keep, name=_NAME, daemon=True)

    def __enter__(self) -> RaterBeside:
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
        """Starts it, and again when it has died."""
        for death in range(1, _DEATHS + 1):
            try:
                code = self._run()
            except OSError as error:
                return self._report(f"could not be started ({error}); versions are not rated")
            if self._ending.is_set():
                return None
            if code == 2:
                return self._report("cannot play here; versions are not rated")
            last = death == _DEATHS
            consequence = "versions are no longer rated" if last else "it is started again"
            self._report(f"{ending(code)}; {consequence}")
            if last or self._ending.wait(_PAUSE_SECONDS):
                return None
        return None

    def _run(self) -> int:
        """Runs it to its end; gives its exit code."""
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
        environment = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": flags,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        folder = str(self._folder.path)
        command = child_command("srl.evaluate.rater", folder, dies_with_parent=True)
        with self._folder.log(_NAME).open("ab") as log:
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
        logger.warning("the rater %s; its log is %s", what, self._folder.log(_NAME))
        with contextlib.suppress(Exception):
            self._say(f"the rater {what}; its log is {self._folder.log(_NAME)}")
