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
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from srl.core.errors import UserError
from srl.launch.engines.engine import TERMINAL, Part
from srl.launch.engines.packed_run import PackedRun
from srl.record.run_record import RunFolder
from srl.run.status import read_address, write_address
from srl.streams.transport.keys import VARIABLE
from srl.system.child_process import child_command

_SUPERVISOR = "srl.launch.hosts.supervisor"
_LOOK_SECONDS = 2.0  # for a controller that is somewhere else now
_AGAIN_SECONDS = 0.2  # before a process that was killed is started again
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
        self._to_the_end(self._folder, TERMINAL, "srl.launch.engines.controller_main")
        return ""

    def supervise(self, part: Part, number: int, controller: Any) -> str:
        """Runs the supervisor of this host to the end of the run.

        Args:
            part: Whose workers this host is for.
            number: Of the host among those of the part.
            controller: The actor of the controller, of which hosts that do not see the run's
                folder ask the controller's address.

        Returns:
            The supervisor's error if the run cannot have this host; else empty.
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
        return f"{socket.gethostname()}: {text}" if code == 2 else ""

    def address(self) -> str | None:
        """The address of the controller that runs here; None before it listens."""
        return read_address(self._folder.path)

    def say(self, text: str) -> None:
        """Shows a line where the run is followed."""
        with self._folder.log(TERMINAL).open("a") as terminal:
            terminal.write(f"srl: {text}\n")

    def stop(self) -> None:
        """Has the process that runs here end in good order."""
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
    ) -> int:
        """Runs a module of srl until it ends of itself; one that is killed, again."""
        # It ends with this process, even if that is killed.
        command = child_command(module, str(folder.path), *arguments, dies_with_parent=True)
        environment = os.environ | (variables or {})
        code: int | None = None
        while code is None or (code < 0 and code != -signal.SIGTERM):
            if code is not None:
                time.sleep(_AGAIN_SECONDS)
            with folder.log(log).open("ab") as output:
                self._process = subprocess.Popen(
                    command, stdout=output, stderr=output, env=environment
                )
            while (code := self._process.poll()) is None:
                if asked is not None:
                    _learn_address(folder, asked)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_LOOK_SECONDS)
        return code


def _learn_address(folder: RunFolder, controller: Any) -> None:
    """Writes into a host's own folder what the controller has written into the run's."""
    ray: Any = importlib.import_module("ray")
    try:
        address = ray.get(controller.address.remote(), timeout=_LOOK_SECONDS)
    except ray.exceptions.RayError:  # it is being started again
        return
    if address not in (None, read_address(folder.path)):
        write_address(folder.path, address)
