"""One process of a run on a host that Ray has chosen, with what it has to find there.

Ray starts a `Place` again, elsewhere, when its host is lost, and repeats the call that it was in.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import subprocess
import sys
from typing import Any

from srl.launch.engine import TERMINAL, Part
from srl.launch.folder import RunFolder
from srl.launch.host_words import read_address, write_address
from srl.launch.packed_run import PackedRun

_LOOK_SECONDS = 2.0  # for a controller that is somewhere else now
# Ends with the process that started it, even if that is killed.
_BOOTSTRAP = """\
import runpy, sys
from srl.child_process import die_with
die_with(int(sys.argv.pop(1)))
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


class Place:
    """An actor of Ray's. Its calls run beside each other."""

    def __init__(self, run: PackedRun) -> None:
        """Starts nothing yet."""
        self._run = run
        self._process: subprocess.Popen[bytes] | None = None

    def stranger(self) -> str:
        """The name of this host if it does not see the run's folder; else empty."""
        return "" if self._run.seen else socket.gethostname()

    def serve(self) -> int:
        """Runs the controller to the end of the run; gives its exit code."""
        folder = self._run.home
        return self._to_the_end(folder, TERMINAL, "serve", str(folder.path))

    def supervise(self, part: Part, number: int, controller: Any) -> int:
        """Runs the supervisor of this host to the end of the run; gives its exit code.

        Args:
            part: Whose workers this host is for.
            number: Of the host among those of the part.
            controller: The place of the controller, which is asked where it is from hosts that do
                not see the run's folder.
        """
        folder = self._run.home if self._run.seen else self._run.unpack()
        asked = None if self._run.seen else controller
        log, words = f"ray-{part.fragment}-{number}", (part.fragment, str(part.slots))
        return self._to_the_end(folder, log, "supervisor", str(folder.path), *words, asked=asked)

    def address(self) -> str | None:
        """Where the controller that runs here is reached; None if it has not told yet."""
        return read_address(self._run.home.path)

    def stop(self) -> None:
        """Has the process that runs here end in good order."""
        if self._process is not None:
            self._process.terminate()

    def _to_the_end(
        self, folder: RunFolder, log: str, module: str, *words: str, asked: Any = None
    ) -> int:
        """Runs a module of this package until it ends of itself; one that is killed, again."""
        command = [sys.executable, "-c", _BOOTSTRAP, str(os.getpid()), f"srl.launch.{module}"]
        code: int | None = None
        while code is None or (code < 0 and code != -signal.SIGTERM):
            with folder.log(log).open("ab") as output:
                self._process = subprocess.Popen([*command, *words], stdout=output, stderr=output)
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
