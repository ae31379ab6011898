"""One process of a run on a host that Ray has chosen, with what it has to find there.

Ray starts a `HostProcess` again, elsewhere, when its host is lost, and repeats the interrupted
call.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from srl.core.errors import UserError
from srl.launch.engines.engine import TERMINAL, Part
from srl.launch.engines.packed_run import PackedRun
from srl.record.run_record import RunFolder
from srl.run.status import read_address, write_address, write_outcome
from srl.run.terminal import INTERRUPTED
from srl.streams.transport.keys import VARIABLE
from srl.system.child_process import child_command

_SUPERVISOR = "srl.launch.hosts.supervisor"
_LOOK_SECONDS = 2.0  # for a controller that is somewhere else now
_AGAIN_SECONDS = 0.2  # before a process that was killed is started again
_PAUSE_SECONDS = 5.0  # before a supervisor that failed is; it doubles each time
_LONGEST_PAUSE_SECONDS = 400.0
_LONG_SECONDS = 600.0  # of work, after which the pause is short again
_ENDS = (0, 1, 2, 75, 143)  # of a supervisor: done, cannot begin, mistaken, no controller, stopped
_LOG_BYTES = 2000  # of a supervisor that gave up


def config_hash(folder: RunFolder) -> str:
    """Distinguishes this run's folder from another's at the same path; empty if there is none."""
    try:
        return hashlib.sha256(folder.config.read_bytes()).hexdigest()
    except OSError:
        return ""


class HostProcess:
    """An actor of Ray's. Its calls run beside each other."""

    def __init__(self, folder: str, config: str) -> None:
        """Takes the run's folder, where it can be seen, and its `config_hash`; starts nothing."""
        self._folder = RunFolder(Path(folder))
        self._seen = config_hash(self._folder) == config
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped, self._starting = threading.Event(), threading.Lock()

    def trouble(self) -> str:
        """Why this host can neither control, train nor evaluate; empty if it can."""
        if not self._seen:
            return (
                f"{socket.gethostname()} cannot see the run's folder, {self._folder.path}, which "
                "the trainer and the controller need: give a --run-dir that they share with this "
                """machine, or start Ray on the hosts that see it with --resources '{"NAME": 1}' """
                "and give --ray-resource NAME"
            )
        try:
            self.packed()
        except UserError as error:
            return f"{socket.gethostname()}: {error}"
        return ""

    def packed(self) -> PackedRun:
        """The run for hosts that do not see its folder; to be called on one that sees it."""
        return PackedRun.of(self._folder)

    def serve(self) -> str:
        """Runs the controller to the end of the run; gives the error if this host cannot."""
        if trouble := self.trouble():
            return trouble
        code = self._to_the_end(self._folder, TERMINAL, "srl.launch.engines.controller_main")
        if self._stopped.is_set() and (code is None or code < 0):  # it could not note that itself
            write_outcome(self._folder.path, INTERRUPTED)
        return ""

    def supervise(self, part: Part, number: int, controller: Any) -> str:
        """Runs the supervisor of this host to the end of the run.

        Args:
            part: Whose workers this host is for.
            number: Of the host among those of the part.
            controller: The actor of the controller, of which hosts that do not see the run's
                folder ask the controller's address.

        Returns:
            The supervisor's error if the run cannot have this host any more; else empty.
        """
        if part.needs_folder and (trouble := self.trouble()):
            return trouble
        log, arguments = f"ray-{part.fragment}-{number}", (part.fragment, str(part.slots))
        folder = self._folder
        if part.evaluates:
            self._to_the_end(folder, log, "srl.launch.engines.evaluator_main")
            return ""
        if self._seen:
            code = self._to_the_end(folder, log, _SUPERVISOR, *arguments)
        else:
            ray: Any = importlib.import_module("ray")
            run = ray.get(controller.packed.remote())
            folder, keys = run.unpack(), {VARIABLE: run.keys}
            code = self._to_the_end(
                folder, log, _SUPERVISOR, *arguments, variables=keys, asked=controller
            )
        text = folder.log(log).read_text(errors="replace")[-_LOG_BYTES:]
        ended = code in (None, 0, 75, 143) or self._stopped.is_set()
        return "" if ended else f"{socket.gethostname()}: {text}"

    def address(self) -> str | None:
        """The address of the controller that runs here; None before it listens."""
        return read_address(self._folder.path)

    def say(self, text: str) -> None:
        """Shows a line where the run is followed."""
        with self._folder.log(TERMINAL).open("a") as terminal:
            terminal.write(f"srl: {text}\n")

    def stop(self) -> None:
        """Has the process that runs here end in good order."""
        with self._starting:
            self._stopped.set()
            if self._process is not None:
                self._process.send_signal(signal.SIGUSR1)

    def _to_the_end(
        self,
        folder: RunFolder,
        log: str,
        module: str,
        *arguments: str,
        variables: Mapping[str, str] | None = None,
        asked: Any = None,
    ) -> int | None:
        """Runs a module of srl until it ends of itself; one that is killed, again.

        Gives its exit code, or a signal's number below 0; None if it was stopped before it began.
        """
        # It ends with this process, even if that is killed.
        command = child_command(module, str(folder.path), *arguments, dies_with_parent=True)
        environment = os.environ | (variables or {})
        code, pause, begun = None, _PAUSE_SECONDS, time.monotonic()
        lasting = module == _SUPERVISOR
        while not self._stopped.is_set() and (code is None or _again(code, pause, lasting=lasting)):
            if code is not None:
                pause = _PAUSE_SECONDS if time.monotonic() > begun + _LONG_SECONDS else pause
                self._stopped.wait(_AGAIN_SECONDS if code < 0 else pause)
                pause = pause if code < 0 else 2 * pause
            begun = time.monotonic()
            with self._starting, folder.log(log).open("ab") as output:
                if self._stopped.is_set():
                    break
                self._process = subprocess.Popen(
                    command, stdout=output, stderr=output, env=environment
                )
            while (code := self._process.poll()) is None:
                if asked is not None:
                    _learn_address(folder, asked)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_LOOK_SECONDS)
        return code


def _again(code: int, pause: float, *, lasting: bool) -> bool:
    """Tells if a process that ended with a code is started again, perhaps after a pause.

    Args:
        code: Its exit code, or a signal's number below 0.
        pause: The next pause, in seconds.
        lasting: Whether it is a supervisor, whose trouble may be its host's, and end.
    """
    if code < 0:
        return code != -signal.SIGTERM
    return lasting and code not in _ENDS and pause < _LONGEST_PAUSE_SECONDS


def _learn_address(folder: RunFolder, controller: Any) -> None:
    """Writes into a host's own folder what the controller has written into the run's."""
    ray: Any = importlib.import_module("ray")
    try:
        address = ray.get(controller.address.remote(), timeout=_LOOK_SECONDS)
    except ray.exceptions.RayError:  # it is being started again
        return
    if address not in (None, read_address(folder.path)):
        write_address(folder.path, address)
