"""The worker process of a `ProcessPool`: makes some of its environments and steps them."""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import numpy as np

from srl.core.errors import UserError, described, explained, foreign_frames
from srl.pools.python.closing import close_each
from srl.pools.python.processes.protocol import (
    FAILED,
    FAILURES,
    PICTURE,
    READY,
    RECORD,
    SPIN_SECONDS,
    Command,
    CommandKind,
    CommandReader,
    send_message,
)
from srl.pools.python.processes.setup import unpack_setup
from srl.pools.python.processes.shared_memory import shared_arrays
from srl.pools.python.simulator import Simulator, rendered
from srl.pools.python.sources import make_simulators
from srl.pools.python.stepper import Control, Failure, Stepper, Target, empty_control
from srl.pools.timestep_arrays import empty_timestep, timestep_at
from srl.system.cores import WaitingCore, own_core

PROMPT_SECONDS = 200e-6
"""Results of quick environments are reported together if they come within this time."""
LATE_SECONDS, AWAY_SECONDS = 1e-3, 0.1
"""A worker that begins a step so late on its own core does not come back there for a while."""
_ATOMIC = 4096 // RECORD.size  # records that a pipe takes at once, whichever processes write
_DESCRIBED = 20  # failures of one command that are described
_TEXT = 20_000  # characters of a traceback


def main(arguments: Sequence[str]) -> None:
    """Serves a pool until it closes or its process ends.

    Args:
        arguments: The number of this worker, and descriptors: of the socket to the pool, of the
            pipe into which all workers write, and of a pipe that is never written, which closes
            when the pool's process ends.
    """
    number, connection, completions, lifeline = map(int, arguments)
    _end_with(lifeline)
    with socket.socket(fileno=connection) as pool, suppress(EOFError, ConnectionError):
        _serve(number, pool, completions)


def _end_with(lifeline: int) -> None:
    """Has the kernel end this process, be it in the midst of a step, with the pool's."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    # Opened again: the open file knows which process to signal, and all workers inherit one file.
    own = os.open(f"/proc/self/fd/{lifeline}", os.O_RDONLY | os.O_NONBLOCK)
    os.close(lifeline)
    fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(own, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        if not os.read(own, 1):
            raise SystemExit  # it has ended already


def _serve(number: int, pool: socket.socket, completions: int) -> None:
    reader = CommandReader(pool)
    (setup, *rest) = reader.read(wait=True)
    try:
        source, options, num_envs, action_repeat = unpack_setup(setup.payload)
        envs = range(setup.memory, setup.place)
        simulators = make_simulators(source, envs, options, num_envs)
    except (Exception, SystemExit) as error:
        by_user = isinstance(error, UserError | ImportError)
        text = str(error) if by_user else explained(error)
        summary = described(error)
        send_message(pool, FAILED, (by_user, summary, text[-_TEXT:]))
        return
    try:
        gc.freeze()  # what is there by now stays: not to be looked at in each collection
        send_message(pool, READY, simulators[0].specs)
        worker = _Worker(number, pool, completions, simulators, setup.memory, action_repeat)
        worker.run(reader, rest)
    finally:
        close_each(f"worker {number}", [simulator.close for simulator in simulators])


class _Worker:
    def __init__(
        self,
        number: int,
        pool: socket.socket,
        completions: int,
        simulators: list[Simulator],
        first: int,
        action_repeat: int,
    ) -> None:
        self._number, self._pool, self._completions = number, pool, completions
        self._simulators, self._first, self._action_repeat = simulators, first, action_repeat
        self._specs = simulators[0].specs
        self._control: Control | None = None
        self._core = WaitingCore(None)
        self._memory: dict[int, list[Target]] = {}
        self._step_record = b""  # of a synchronous step, not reported yet
        self._queue: deque[int] = deque()  # environments to step into their slots
        self._seconds = [0.0] * len(simulators)  # that each took last

    def run(self, reader: CommandReader, commands: list[Command]) -> None:
        """Works until a command to close."""
        while True:
            for command in commands:
                if command.kind == CommandKind.CLOSE:
                    return
                if command.kind == CommandKind.CONTROL:
                    self._choose_waiting(reader, command.place)
                self._do(command)
            if self._queue:
                self._advance_queue()
            commands = reader.read(wait=not self._queue)

    def _choose_waiting(self, reader: CommandReader, workers: int) -> None:
        if workers <= len(os.sched_getaffinity(0)):
            reader.spin_seconds = SPIN_SECONDS
        reader.core = self._core = WaitingCore(own_core(self._number, workers))
        reader.meanwhile = self._report_step

    def _do(self, command: Command) -> None:
        if command.kind == CommandKind.ADVANCE:
            self._advance(command)
        elif command.kind == CommandKind.START:
            self._core.leave(AWAY_SECONDS)  # the caller goes on, maybe there
            self._slots = self._memory[command.memory][command.place]
            self._queue.extend(command.envs)
        elif command.kind == CommandKind.MAP:
            self._map(command)
        elif command.kind == CommandKind.FORGET:
            del self._memory[command.memory]
        elif command.kind == CommandKind.CONTROL:
            self._map_control(command)
        elif command.kind == CommandKind.RENDER:
            self._render(command.place)

    def _advance(self, command: Command) -> None:
        assert self._control is not None
        late = time.monotonic() - self._control.asked_at[0] > LATE_SECONDS
        if late and self._core.is_here:
            self._core.leave(AWAY_SECONDS)  # something else keeps it busy
        envs = command.envs if command.payload else None
        failures = self._stepper.advance(envs, self._memory[command.memory][command.place])
        self._describe(failures)
        self._step_record = RECORD.pack(self._number, -1, len({f.env for f in failures}))
        self._control.busy[self._number] = False
        self._report_step(at_once=False)

    def _map_control(self, command: Command) -> None:
        num_envs, steppers = command.memory, command.place
        shared = shared_arrays(
            lambda a: empty_control(self._specs, num_envs, steppers, a), command.fd
        )
        os.close(shared.fd)
        self._control = shared.arrays
        self._stepper = Stepper(
            self._simulators, shared.arrays, self._first, self._number, self._action_repeat
        )

    def _map(self, command: Command) -> None:
        assert self._control is not None
        num_envs, length = len(self._control.reset_next), (command.place,)
        shared = shared_arrays(
            lambda a: empty_timestep(self._specs, num_envs, length, a), command.fd
        )
        os.close(shared.fd)
        agents, end = len(self._specs.agents), self._first + len(self._simulators)
        self._memory[command.memory] = [
            Target(timestep_at(shared.arrays, t), agents, slice(self._first, end))
            for t in range(command.place)
        ]

    def _render(self, env: int) -> None:
        came = rendered(self._simulators[env - self._first].render)
        failure, missing = came.failure[-_TEXT:], came.missing[:_TEXT]
        send_message(self._pool, PICTURE, (came.picture, failure, missing))

    # ---- asynchronous use ----

    def _advance_queue(self) -> None:
        """Steps the next few of the queue, and reports them."""
        envs: list[int] = []
        failures = self._stepper.advance(self._prompt(envs), self._slots)
        self._report(envs, failures)

    def _prompt(self, taken: list[int]) -> Iterator[int]:
        """Takes from the queue what can be reported together without keeping anyone waiting."""
        assert self._control is not None
        queue, seconds, first, now = self._queue, self._seconds, self._first, time.perf_counter
        start = before = now()
        while queue:
            env = queue[0]
            # A reset may be slow, or what was slow before.
            slow = self._control.reset_next[env] or seconds[env - first] > PROMPT_SECONDS
            if taken and (slow or before - start > PROMPT_SECONDS):
                return
            queue.popleft()
            taken.append(env)
            yield env
            after = now()
            seconds[env - first] = after - before
            before = after

    # ---- reports ----

    def _report_step(self, at_once: bool) -> None:
        """Reports a synchronous step: at once, or only if no worker is still stepping.

        The pool's process, which has to wait for all, would wake on a core where one still steps.
        """
        if not self._step_record:
            return
        assert self._control is not None
        if at_once or not np.count_nonzero(self._control.busy):
            os.write(self._completions, self._step_record)
            self._step_record = b""

    def _report(self, envs: Iterable[int], failures: list[Failure]) -> None:
        """Reports steps of an asynchronous pool."""
        self._describe(failures)
        failed = {failure.env for failure in failures}
        records = [RECORD.pack(self._number, env, env in failed) for env in envs]
        for start in range(0, len(records), _ATOMIC):
            os.write(self._completions, b"".join(records[start : start + _ATOMIC]))

    def _describe(self, failures: list[Failure]) -> None:
        """Sends what a record does not hold of failures, before it."""
        if not failures:
            return
        described = [
            (f.env, f.text + _trace(f) * (k == 0)) for k, f in enumerate(failures[:_DESCRIBED])
        ]
        described += [(f.env, f"environment {f.env} failed") for f in failures[_DESCRIBED:]]
        send_message(self._pool, FAILURES, described)


def _trace(failure: Failure) -> str:
    frames = foreign_frames(failure.error) if failure.error else ""
    return f"\n{frames[-_TEXT:]}".rstrip()
