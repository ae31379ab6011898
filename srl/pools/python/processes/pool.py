"""Pools of Python environments in worker processes, with shared memory between them and here."""

from __future__ import annotations

import logging
import math
import os
import select
import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

import numpy as np

from srl.core.errors import RunError, UserError, WorkerLost
from srl.core.tree import leaves_of
from srl.pools.python.processes.handle import ProcessHandle, end_all
from srl.pools.python.processes.protocol import (
    FAILED,
    FAILURES,
    PICTURE,
    READY,
    RECORD,
    CommandKind,
    completions_pipe,
    receive_message,
)
from srl.pools.python.processes.setup import pack_setup
from srl.pools.python.processes.shared_memory import shared_arrays
from srl.pools.python.python_pool import PythonPool, copy_rows
from srl.pools.python.simulator import Rendered
from srl.pools.python.sources import SimulatorSource, check_alike, difference, source_name
from srl.pools.python.stepper import Failure, empty_control
from srl.pools.timestep_arrays import Row, Rows, empty_timestep, slots_of
from srl.system.cores import current_core, own_core
from srl.system.open_files import expect_room
from srl.system.started import Offspring
from srl.system.supervised import Presence

logger = logging.getLogger(__name__)


class ProcessPool(PythonPool):
    """Each worker process steps some consecutive environments.

    Workers write timesteps into memory that this process maps too; pipes carry small records only.
    A worker that dies is started again, with new environments: see `Timestep.lost`.
    """

    def __init__(
        self,
        source: SimulatorSource,
        num_envs: int,
        batch_size: int,
        workers: int,
        options: dict[str, Any],
        action_repeat: int = 1,
        *,
        restarts: int = 3,
        step_timeout: float = 60.0,
        start_timeout: float = 300.0,
    ) -> None:
        """Starts the processes and waits until all environments are made.

        The arguments are those of `make_pool`; there are at most `num_envs` workers.

        Raises:
            UserError: For an unknown id, copies that differ, or what cannot be pickled.
            RunError: If making an environment raised, or a worker died.
        """
        super().__init__(source_name(source), num_envs, batch_size)
        self._limits = restarts, step_timeout, start_timeout
        workers = min(workers, num_envs)
        expect_room(f"{self.name}: this process would", 4 * workers, "take fewer workers")
        bounds = [k * num_envs // workers for k in range(workers + 1)]
        self._offspring = started = Offspring()
        self._handles = [
            ProcessHandle(k, range(*bounds[k : k + 2]), step_timeout, started, own_core(k, workers))
            for k in range(workers)
        ]
        self._worker_of = np.repeat(np.arange(workers), np.diff(bounds))
        self._setup = pack_setup(source, options, num_envs, action_repeat)
        self._memory: dict[int, int] = {}  # descriptors of what `rows` gave
        self._dropped: deque[int] = deque()  # memory that is no longer referenced
        self._next_memory = 0
        self._lost = np.zeros(num_envs, bool)  # episodes whose end is not reported yet
        self._target: Row | None = None  # what is being written
        self._scratch: Row | None = None  # written for rows that the workers do not map
        self._broken = ""  # why no call can succeed any more
        self._deaths = 0
        self._control_fd = -1
        self._next_look = 0.0
        with self._or_no_room(), ExitStack() as undo:
            self._open_pipes()
            undo.callback(self.close)
            self._start_all()
            undo.pop_all()

    @contextmanager
    def _or_no_room(self) -> Iterator[None]:
        """Raises RunError in place of OSError, as where no more processes or files are allowed."""
        try:
            yield
        except OSError as error:
            self._broken = f"{self.name}: cannot start a worker process: {error}"
            raise RunError(self._broken) from error

    def _open_pipes(self) -> None:
        self._epoll, fds = select.epoll(), list[int]()
        # Also when the pool is forgotten, or the interpreter ends.
        self._finalizer = weakref.finalize(
            self, end_all, self._handles, fds, os.getpid(), self._offspring
        )
        fds += completions_pipe(self.num_envs)
        fds += os.pipe()
        self._completions, self._completed, self._lifeline, _ = fds
        self._epoll.register(self._completions, select.EPOLLIN)
        self._watched: dict[int, tuple[str, ProcessHandle]] = {}

    # ---- starting ----

    def _start_all(self) -> None:
        for handle in self._handles:
            self._start_worker(handle)
        while not all(handle.ready for handle in self._handles):
            self._poll()
        specs, workers = self._handles[0].specs, len(self._handles)
        assert specs is not None
        self.specs = specs
        for handle in self._handles[1:]:
            assert handle.specs is not None
            check_alike(specs, 0, handle.specs, handle.envs.start, self.name)
        shared = shared_arrays(lambda a: empty_control(specs, self.num_envs, workers, a))
        self._control_fd = shared.fd
        self._begin(specs, shared.arrays)
        for handle in self._handles:
            self._send(handle, CommandKind.CONTROL, self.num_envs, workers, fd=shared.fd)

    def _start_worker(self, handle: ProcessHandle) -> None:
        with self._or_no_room():
            handle.start(self._completed, self._lifeline)
        fds = handle.connection.fileno(), handle.child.pidfd, handle.stderr
        for fd, what in zip(fds, ("message", "death", "stderr"), strict=True):
            self._watched[fd] = what, handle
            self._epoll.register(fd, select.EPOLLIN)
        envs = handle.envs
        self._send(handle, CommandKind.SETUP, envs.start, envs.stop, payload=self._setup)
        if self._control_fd >= 0:
            workers = len(self._handles)
            self._send(handle, CommandKind.CONTROL, self.num_envs, workers, fd=self._control_fd)

    def _handle_greeting(self, handle: ProcessHandle) -> None:
        """Handles a worker's first message: it has made its environments, or has failed to."""
        try:
            kind, content = receive_message(handle.connection)
        except EOFError:
            self._unwatch(handle, "message")  # its death is handled next
            return
        self._unwatch(handle, "message")
        if kind == FAILED:
            by_user, summary, text = content
            if by_user:
                self._broken = text
                raise UserError(text)
            self._broken = f"{self.name}: a worker could not make its environments: {summary}"
            raise RunError(f"{text}\nin worker {handle.number} of {self.name}")
        assert kind == READY
        handle.ready, handle.specs = True, content
        handle.progress_at = handle.ready_at = time.monotonic()
        if self._control_fd < 0:
            return
        if found := difference(self.specs, content):
            kind, had, has = found
            self._broken = (
                f"{self.name}: environment {handle.envs.start} made anew has {kind} {has} where "
                f"it had {had}; all copies must be alike"
            )
            raise RunError(self._broken)
        for command, more in handle.held:
            self._send(handle, *command, **more)
        handle.held.clear()

    def _unwatch(self, handle: ProcessHandle, *kinds: str) -> None:
        for fd in [fd for fd, (k, h) in self._watched.items() if h is handle and k in kinds]:
            del self._watched[fd]
            self._epoll.unregister(fd)

    # ---- memory ----

    def _make_rows(self, length: int) -> Rows:
        """Gives shared memory for `length` timesteps; see the base class."""
        self._forget_dropped()
        specs, num_envs = self.specs, self.num_envs
        timesteps, buffer, fd = shared_arrays(
            lambda a: empty_timestep(specs, num_envs, (length,), a)
        )
        number = self._next_memory
        self._next_memory += 1
        self._memory[number] = fd
        weakref.finalize(buffer, self._dropped.append, number).atexit = False
        rows = self.rows_over(timesteps)
        for t in range(length):
            rows[t].core.place = number, t, length
        return rows

    def _forget_dropped(self) -> None:
        while self._dropped:
            number = self._dropped.popleft()
            os.close(self._memory.pop(number))
            for handle in self._handles:
                if number in handle.known:
                    handle.known.discard(number)
                    self._send(handle, CommandKind.FORGET, number)

    def _ask(
        self, handle: ProcessHandle, kind: CommandKind, ids: np.ndarray | None, row: Row
    ) -> None:
        """Asks a worker to step environments, all of its own by default, into a row."""
        number, t, length = row.core.place
        if number not in handle.known:
            handle.known.add(number)
            self._send(handle, CommandKind.MAP, number, length, fd=self._memory[number])
        if not handle.outstanding:
            handle.progress_at = time.monotonic()
        if kind == CommandKind.ADVANCE:
            handle.asked = ids
        handle.note_running(ids, self._control.reset_next)
        handle.outstanding += 1 if kind == CommandKind.ADVANCE or ids is None else len(ids)
        self._send(handle, kind, number, t, b"" if ids is None else ids.tobytes())

    def _send(self, handle: ProcessHandle, *command: Any, **more: Any) -> None:
        # Commands that share memory wait until the specs of new environments are known to be equal.
        if self._control_fd >= 0 and not handle.ready and command[0] != CommandKind.SETUP:
            handle.held.append((command, more))
            return
        try:
            handle.send(*command, **more)
        except TimeoutError:
            self._raise_hang(handle)

    # ---- the base class's work ----

    def _advance(self, ids: np.ndarray | None, row: Row) -> None:
        if row.core.place is None:
            self._advance_elsewhere(ids, row)
            return
        self._check_working()
        if self._dropped:
            self._forget_dropped()
        self._target = row
        if ids is None and np.count_nonzero(self._lost):
            lost, ids = (np.flatnonzero(x).astype(np.int32) for x in (self._lost, ~self._lost))
            self._write_lost(lost, row)
        parts = ((handle, self._among(handle, ids)) for handle in self._in_turn())
        asked = [(handle, own) for handle, own in parts if own is None or len(own)]
        self._control.busy[[handle.number for handle, _ in asked]] = True  # before any begins
        self._control.asked_at[0] = time.monotonic()
        for handle, own in asked:
            self._ask(handle, CommandKind.ADVANCE, own, row)
        while any(handle.outstanding for handle in self._handles):
            self._poll()
        ends = [handle.progress_at for handle, _ in asked]
        self.skew = max(ends) - sum(ends) / len(ends) if ends else 0.0
        self._last = row

    def _among(self, handle: ProcessHandle, ids: np.ndarray | None) -> np.ndarray | None:
        """Gives those of the environments that the worker has; None for all."""
        if ids is None:
            return None
        return ids[(ids >= handle.envs.start) & (ids < handle.envs.stop)]

    def _advance_elsewhere(self, ids: np.ndarray | None, row: Row) -> None:
        """Steps in memory that the workers map, and copies into a row that they do not."""
        if self._scratch is None:
            self._scratch = self._make_rows(1)[0]
        self._advance(ids, self._scratch)
        copy_rows(self._scratch.timestep, row.timestep, ids, len(self.specs.agents))

    def _start(self, ids: np.ndarray) -> None:
        self._check_working()
        assert self._slots is not None
        self._target = self._last = self._slots
        lost = self._lost[ids]
        if lost.any():
            self._write_lost(ids[lost], self._slots)
            self._ready.extend(ids[lost].tolist())
            ids = ids[~lost]
        workers = self._worker_of[ids]
        for handle in self._in_turn():
            if (own := ids[workers == handle.number]).size:
                self._ask(handle, CommandKind.START, own, self._slots)

    def _in_turn(self) -> list[ProcessHandle]:
        """The workers as they are to be asked: the one that may take this thread's core is last."""
        here = current_core()
        return sorted(self._handles, key=lambda handle: handle.core == here)

    def _work(self, seconds: float = math.inf, others: Sequence[int] = ()) -> None:
        self._check_working()
        for fd in others:
            self._epoll.register(fd, select.EPOLLIN)
        try:
            self._poll(seconds)
        finally:
            for fd in others:
                self._epoll.unregister(fd)

    def _finish_started(self) -> None:
        while any(handle.outstanding for handle in self._handles):
            self._check_working()
            self._poll()

    def _prepare_reset(self, seed: int | None, ids: np.ndarray) -> None:
        super()._prepare_reset(seed, ids)
        self._lost[ids] = False

    def _check_working(self) -> None:
        if self._broken:
            raise RunError(self._broken)

    # ---- waiting ----

    def _poll(self, seconds: float = math.inf) -> None:
        """Waits for an event from the workers, at most for so long, and handles it."""
        interval = min(self._limits[1], self._limits[2]) / 4
        presence = Presence(2 * interval)
        events = self._epoll.poll(min(interval, seconds))
        now = time.monotonic()
        if presence.was_stopped():  # and maybe the workers too
            for handle in self._handles:
                handle.progress_at = now
        self._read_completions()  # first: what a worker has done counts, though it died since
        for fd, _ in events:
            what, handle = self._watched.get(fd, ("", None))
            if handle is None:
                continue
            if what == "message":
                self._handle_greeting(handle)
            elif what == "stderr":
                if not handle.forward_stderr():
                    self._unwatch(handle, "stderr")
            else:
                self._handle_death(handle)
        if not events or now > self._next_look:
            self._next_look = now + interval
            self._look_for_hangs(now)

    def _read_completions(self) -> None:
        try:
            data = os.read(self._completions, 1 << 20)
        except BlockingIOError:
            return
        now = time.monotonic()
        for number, env, failed in RECORD.iter_unpack(data):
            handle = self._handles[number]
            handle.outstanding -= 1
            handle.progress_at = now
            if env < 0:
                handle.stepped += len(handle.envs)
            else:
                handle.stepped += 1
                if not failed:
                    self._ready.append(env)
            # One message describes all failures that are reported together.
            if failed and not any(failure.env == env for failure in self._failures):
                self._take_failures(handle)

    def _take_failures(self, handle: ProcessHandle) -> None:
        try:
            reported = handle.receive(FAILURES)
        except EOFError:  # it died since, and its environments start anew
            return
        except TimeoutError:
            self._raise_hang(handle)
        self._failures += [Failure(env, text, None) for env, text in reported]

    def _look_for_hangs(self, now: float) -> None:
        for handle in self._handles:
            limit = self._limits[1] if handle.ready else self._limits[2]
            if handle.ready and not handle.outstanding:
                continue
            if (
                handle.ready
                and (env := int(self._control.stepping[handle.number])) != handle.stepping
            ):
                handle.stepping, handle.progress_at = env, now
            if now - handle.progress_at > limit:
                self._raise_hang(handle)

    def _raise_hang(self, handle: ProcessHandle) -> NoReturn:
        handle.hung = True
        where, limit = f"{handle.described} has not made its environments", self._limits[2]
        if handle.ready:
            env = self._control.stepping[handle.number]
            limit = self._limits[1]
            where = f"environment {env}, in {handle.described}, has not finished its step"
        state = handle.child.state()
        stack = "" if "stopped" in state else handle.stack()
        handle.child.end()
        self._broken = f"{self.name}: {where} within {limit:g} s; the process is {state}"
        raise WorkerLost(self._broken + (f"; it was here:\n{stack}" if stack else ""))

    # ---- deaths ----

    def _handle_death(self, handle: ProcessHandle) -> None:
        """Starts the worker again, or raises RunError where it dies too often."""
        self._read_completions()
        restarts, described = self._limits[0], handle.described
        self._unwatch(handle, "message", "death", "stderr")
        ending, dump = handle.reap()
        self._deaths += 1
        handle.deaths = 1 if handle.progressed else handle.deaths + 1
        details = "".join(f"\n{text}" for text in (dump, handle.last_stderr) if text)
        if handle.deaths > restarts:
            many = f", {handle.deaths} times in a row, soon after each start" if restarts else ""
            self._broken = f"{self.name}: {described} {ending}{many}{details}"
            raise WorkerLost(self._broken)
        dump = dump and f"\n{dump}"
        logger.warning("%s: %s %s; it is started again%s", self.name, described, ending, dump)
        owed, in_row = handle.outstanding, self._target
        self._start_worker(handle)
        if self._control_fd >= 0:
            self._lose_episodes(handle, owed, in_row)

    def _lose_episodes(self, handle: ProcessHandle, owed: int, row: Row | None) -> None:
        """Ends the episodes of a worker that died, and starts again those that were to begin."""
        ids = np.arange(handle.envs.start, handle.envs.stop, dtype=np.int32)
        control = self._control
        asked = self._asked(handle, ids) if owed and row is not None else np.zeros(len(ids), bool)
        # A step that has not been reported may have changed `reset_next`.
        running = np.where(asked, handle.running, ~control.reset_next[ids])
        control.reset_next[ids] = True
        for i in ids:
            if self._seed is not None and not control.seeded[i]:
                fresh = np.random.SeedSequence([self._seed, int(i), self._deaths])
                control.seed[i], control.seeded[i] = fresh.generate_state(1)[0], True
        self._lost[ids[running]] = True
        if not owed or row is None:
            return
        lost = asked & self._lost[ids]
        if lost.any():
            self._write_lost(ids[lost], row)
            if self._flying.any():
                self._ready.extend(ids[lost].tolist())
        if (again := ids[asked & ~lost]).size:
            kind = CommandKind.START if self._flying.any() else CommandKind.ADVANCE
            self._ask(handle, kind, again, row)

    def _asked(self, handle: ProcessHandle, ids: np.ndarray) -> np.ndarray:
        """Marks the worker's environments that are to give a result: bool, shaped like `ids`."""
        if self._flying.any():
            there = list(self._ready) + [failure.env for failure in self._failures]
            return self._flying[ids] & ~np.isin(ids, there)
        return np.ones(len(ids), bool) if handle.asked is None else np.isin(ids, handle.asked)

    def _write_lost(self, ids: np.ndarray, row: Row) -> None:
        """Writes the row of an episode that was lost: the last observation once more."""
        step, slots = row.timestep, slots_of(ids, len(self.specs.agents))
        if self._last is not None and self._last is not row:
            last = self._last.timestep
            for old, new in zip(*map(leaves_of, (last.observation, step.observation)), strict=True):
                new[slots] = old[slots]
            step.statistics[ids] = last.statistics[ids]
        step.reward[slots], step.terminated[slots], step.truncated[slots] = 0, False, True
        step.episode_return[slots] = self._control.episode_return[ids].ravel()
        step.episode_length[ids] = self._control.episode_length[ids]
        step.lost[ids], self._lost[ids] = True, False

    # ---- other calls ----

    def _picture(self, env: int) -> Rendered:
        self._check_working()
        handle = self._handles[self._worker_of[env]]
        while not handle.ready:
            self._poll()
        handle.send(CommandKind.RENDER, place=env)
        try:
            return Rendered(*handle.receive(PICTURE))
        except TimeoutError:
            self._raise_hang(handle)
        except EOFError:
            raise RunError(f"{self.name}: {handle.described} died while rendering") from None

    def _end(self) -> None:
        if self._deaths and not self._broken:
            times = "once" if self._deaths == 1 else f"{self._deaths} times"
            logger.warning("%s: worker processes died %s, and were started again", self.name, times)
        for fd in (*self._memory.values(), self._control_fd):
            if fd >= 0:
                os.close(fd)
        self._memory.clear()
        self._own.clear()
        self._slots = self._target = self._last = None
        self._epoll.close()
        self._finalizer()
