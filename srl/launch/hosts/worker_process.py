"""One process of a worker, as the controller sees it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from srl.system.child_process import child_command, crash_dump, ending, process_state, python_stack
from srl.system.started import Offspring
from srl.workers.worker_spec import WorkerSpec


class WorkerProcess:
    """A process, and all that it starts: a group of its own, which Ctrl-C does not reach."""

    def __init__(self, spec: WorkerSpec, log: Path, environment: Mapping[str, str]) -> None:
        """Starts it, with these variables beside those of this process; its output goes to the log.

        Raises:
            OSError: If the log cannot be written, or the machine has no room for a process.
        """
        self._dump = os.memfd_create("srl-dump", os.MFD_CLOEXEC)
        command = child_command(
            "srl.workers.main",
            spec.to_json(),
            options=["-u"],  # what a process that is killed has written is in its log
            dies_with_parent=True,
            dump=self._dump,
        )
        self._offspring = Offspring()
        inherited = [fd for fd in (self._dump, spec.ledger) if fd >= 0]
        try:
            with log.open("ab") as output:
                self._process = self._offspring.start(
                    command,
                    environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=inherited,
                )
        except OSError:
            os.close(self._dump)
            raise
        self.pid = self._process.pid

    @property
    def ended(self) -> bool:
        """True if the process has ended; `reap` must follow."""
        looked = os.WEXITED | os.WNOWAIT | os.WNOHANG
        return os.waitid(os.P_PID, self.pid, looked) is not None

    def state(self) -> str:
        """Describes whether it runs, sleeps or is stopped."""
        return process_state(self.pid)

    def stack(self) -> str:
        """Its Python stack, if it can still write it; a stopped process cannot."""
        return python_stack(self.pid, self._dump)

    def kill(self) -> None:
        """Kills the process and what it has started, stopped or not."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> tuple[int, str, str]:
        """Waits for its end, ends what it left running, and lets go of everything.

        Returns:
            Its exit code, a description of its end, and its stack if it crashed and wrote one.
        """
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        self._offspring.end()
        code = self._process.wait()
        dump = crash_dump(self._dump) if code < 0 else ""
        os.close(self._dump)
        return code, ending(code), dump
