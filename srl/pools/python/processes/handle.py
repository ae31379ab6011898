"""One worker process of a pool, as the pool's process sees it."""

from __future__ import annotations

import logging
import math
import os
import select
import socket
import sys
import time
from collections import deque
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np

from srl.core.types import Specs
from srl.pools.python.closing import CLOSE_SECONDS
from srl.pools.python.processes.protocol import CommandKind, receive_message, send_command
from srl.system.child_process import crash_place, innermost_frames
from srl.system.started import Offspring
from srl.system.supervised import Child

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
_STDERR_BYTES = 8_000  # kept of each worker


logger = logging.getLogger(__name__)

PROGRESS_STEPS, PROGRESS_STARTS = 100, 10.0
"""Earlier deaths of a worker no longer count after so many steps of its environments, and after so
many times as long as its start took. Otherwise most of the time would go into starts."""


class ProcessHandle:
    """A worker and its environments; `start` may be called again once its process has died."""

    def __init__(
        self,
        number: int,
        envs: range,
        step_timeout: float,
        offspring: Offspring,
        core: int | None = None,
    ) -> None:
        """Takes the environments that the process will step; starts nothing.

        `offspring` is all that workers of the pool start.
        """
        self.number, self.envs = number, envs
        self.core = core
        """The core that it waits for commands on; None for any."""
        self.deaths = 0
        """Deaths in a row."""
        self.ready = False
        """True if the process has made its environments."""
        self.specs: Specs | None = None
        """The specs of its environments, once it is ready."""
        self.outstanding = 0
        """Records that it has yet to write."""
        self.asked: np.ndarray | None = None
        """The environments of the last synchronous step; None for all."""
        self.running = np.zeros(len(envs), bool)
        """Its environments that were within an episode when they were last asked for a step."""
        self.stepped = 0
        """Steps of environments since it was started."""
        self.started_at = self.ready_at = 0.0
        """When its process was started, and had made its environments."""
        self.known: set[int] = set()
        """Memory that it has mapped."""
        self.progress_at = 0.0
        """When it last made progress, by `time.monotonic`."""
        self.stepping = -1
        """The environment that it was stepping when hangs were last looked for."""
        self.hung = False
        self.held: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        """Commands for when it is ready."""
        self._step_timeout, self._of_pool = step_timeout, offspring
        self._child: Child | None = None  # until it is reaped
        self._stderr = b""
        self._messages: deque[tuple[str, Any]] = deque()

    def note_running(self, ids: np.ndarray | None, reset_next: np.ndarray) -> None:
        """Keeps which of its environments, all by default, are within an episode."""
        if ids is None:
            self.running[:] = ~reset_next[self.envs.start : self.envs.stop]
        else:
            self.running[ids - self.envs.start] = ~reset_next[ids]

    def start(self, completions: int, lifeline: int) -> None:
        """Starts the process, with nothing mapped yet.

        Args:
            completions: Descriptor of the pipe that it writes records into.
            lifeline: Of the reading end of a pipe that closes when this process ends.

        Raises:
            OSError: If the machine has no room for it.
        """
        self.ready = self.hung = False
        self.outstanding = self.stepped = 0
        self.known, self.stepping, self.held = set(), -1, []
        with ExitStack() as inherited_ends, ExitStack() as undo:
            self.connection, theirs = socket.socketpair()
            inherited_ends.callback(theirs.close)
            undo.callback(self.connection.close)
            self.connection.settimeout(self._step_timeout)
            self.stderr, stderr = os.pipe()
            inherited_ends.callback(os.close, stderr)
            undo.callback(os.close, self.stderr)
            os.set_blocking(self.stderr, False)
            inherited = theirs.fileno(), completions, lifeline
            # Ctrl-C in a terminal reaches workers too, as SIGTERM for a process group does, and
            # the pool ends them in good order.
            self._child = Child(
                "srl.pools.python.processes.worker",
                *map(str, (self.number, *inherited)),
                environment=dict.fromkeys(_THREADS, "1"),
                within=self._of_pool,
                stderr=stderr,
                pass_fds=inherited,
                ignores_signals=True,
            )
            undo.pop_all()
        self.progress_at = self.started_at = time.monotonic()

    @property
    def child(self) -> Child:
        """Its process, which was started and has not been reaped."""
        assert self._child is not None
        return self._child

    @property
    def described(self) -> str:
        """Its number, process and environments, in words."""
        first, last = self.envs.start, self.envs.stop - 1
        envs = f"environment {first}" if first == last else f"environments {first} to {last}"
        return f"worker {self.number} (process {self.child.pid}, {envs})"

    @property
    def progressed(self) -> bool:
        """True if the process has worked long enough to reset the count of its deaths."""
        worked, starting = time.monotonic() - self.ready_at, self.ready_at - self.started_at
        enough = self.stepped >= PROGRESS_STEPS and worked >= PROGRESS_STARTS * starting
        return self.ready and enough

    def send(self, *command: Any, **more: Any) -> None:
        """Sends a command, given as `send_command` takes it.

        To a dead process it is lost, and its death is noticed elsewhere.
        """
        with suppress(ConnectionError):
            send_command(self.connection, *command, **more)

    def receive(self, kind: str) -> Any:
        """Waits for a message of a kind, and keeps others.

        Raises:
            EOFError: When the process has died.
            TimeoutError: After `step_timeout`.
        """
        for k, message in enumerate(self._messages):
            if message[0] == kind:
                del self._messages[k]
                return message[1]
        while True:
            self._expect_readable()
            message = receive_message(self.connection)
            if message[0] == kind:
                return message[1]
            self._messages.append(message)

    def _expect_readable(self) -> None:
        """Waits for a message, and passes on standard error, which holds a pipe's size alone."""
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        poll.register(self.stderr, select.POLLIN)
        deadline = time.monotonic() + (self._step_timeout or math.inf)
        while (left := deadline - time.monotonic()) > 0:
            ready = {fd for fd, _ in poll.poll(1000 * min(left, 60.0))}
            if self.stderr in ready and not self.forward_stderr():
                poll.unregister(self.stderr)
            if self.connection.fileno() in ready:
                return
        raise TimeoutError

    # ---- its output and its end ----

    def forward_stderr(self) -> bool:
        """Passes on what the worker has written to its standard error, and keeps the last of it.

        Returns:
            Whether more may come.
        """
        with suppress(BlockingIOError):
            while data := os.read(self.stderr, 1 << 16):
                self._stderr = (self._stderr + data)[-_STDERR_BYTES:]
                if sys.stderr is not None:
                    sys.stderr.write(data.decode(errors="replace"))
            return False
        return True

    @property
    def last_stderr(self) -> str:
        """The last lines of its standard error."""
        return self._stderr.decode(errors="replace").strip()

    def reap(self) -> tuple[str, str]:
        """Ends the dead process with all that it started; gives how it died, and where if known."""
        _, how, dump = self.child.reap()
        self._child = None
        self.forward_stderr()
        self.connection.close()
        os.close(self.stderr)
        if dump:
            logger.info("worker %d %s:\n%s", self.number, how, dump)
        return how, crash_place(dump)

    def stack(self, seconds: float = 1.0) -> str:
        """The stack of its environment, unless it is stopped. The log gets all threads."""
        stack = self.child.stack(seconds)
        logger.info("the threads of worker %d:\n%s", self.number, stack)
        return innermost_frames(stack)

    # ---- the end ----

    def ask_to_end(self) -> None:
        """Asks the process to close its environments and end."""
        if self._child is not None and not self.hung:
            self.connection.settimeout(0.1)
            with suppress(OSError):
                send_command(self.connection, CommandKind.CLOSE)

    def wait(self, deadline: float) -> bool:
        """Tells if the process ends by `deadline`."""
        if self._child is None:
            return True
        while True:
            self.forward_stderr()  # or it might wait for room to write
            left = deadline - time.monotonic()
            if self._child.wait(min(left, 0.1)):
                return True
            if left <= 0:
                return False

    def release(self) -> None:
        """Reaps the process if there is one; it has ended, or was killed."""
        if self._child is not None:
            self.reap()


def end_all(handles: list[ProcessHandle], fds: list[int], owner: int, offspring: Offspring) -> None:
    """Ends the processes of a closed pool, all that they started, and closes its descriptors."""
    if os.getpid() != owner:  # a fork of the pool's process: the workers are not its own
        return
    for handle in handles:
        handle.ask_to_end()
    deadline = time.monotonic() + CLOSE_SECONDS
    for handle in handles:
        if not handle.hung and not handle.wait(deadline):
            logger.warning(
                "worker %d had not closed its environments within %g s; it is killed, and so is "
                "all that they started",
                handle.number,
                CLOSE_SECONDS,
            )
            handle.child.end()
    offspring.end()
    for handle in handles:
        handle.release()
    handles.clear()
    for fd in fds:
        os.close(fd)
    fds.clear()
