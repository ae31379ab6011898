"""Watches a training in this process: reports that it hangs, and ends it if the user asks."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from srl.loop.stage import Stage
from srl.run.terminal import INTERRUPTED, PATIENCE_SECONDS, Stop, write_line
from srl.system.child_process import innermost_frames
from srl.system.cpu_progress import CpuProgress
from srl.system.supervised import Presence

COMPILE_SECONDS = 300.0
"""The time that compiling may take without any computing before it is reported."""
_ROUND_SECONDS, _SPARE_SECONDS = 1.0, 6.0


class Watchdog:
    """Reports that a training in this process makes no progress, and logs all stacks.

    Nothing is killed, since nothing could start this process again, unless the user has asked for
    the end: then the process ends when there is no progress towards the end of the update.
    """

    def __init__(
        self,
        limit_seconds: float,
        log: Path,
        stop: Stop,
        say: Callable[[str], None],
        awaited: Callable[[], str],
        ending: Callable[[], str],
        beat: Callable[[float], None],
    ) -> None:
        """Takes what to watch and where to report.

        Args:
            limit_seconds: The time that may pass without progress.
            log: The file for the stacks of all threads.
            stop: Whether the user has asked for the end.
            say: Shows a line.
            awaited: Describes what the training waits for, if that is known.
            ending: Called before this ends the process; describes how the run goes on.
            beat: Called about once a second with the seconds after which a missing call is to be
                reported from outside: native code may hold Python's lock, so that this cannot.
        """
        self._limit, self._log, self._stop = limit_seconds, log, stop
        self._say, self._awaited, self._ending, self._beat = say, awaited, ending, beat
        self._stage, self._alive = Stage.STARTING, time.monotonic()
        self._updated, self._longest = False, 0.0
        self._cpu = CpuProgress()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)

    def stage(self, stage: Stage) -> None:
        """Notes that a stage begins."""
        self._stage, self._alive = stage, time.monotonic()

    def alive(self) -> None:
        """Marks progress; cheap."""
        now = time.monotonic()
        if self._updated:
            self._longest = max(self._longest, now - self._alive)
        self._alive = now

    def updated(self) -> None:
        """Marks an update, after which it is known how long the parts of one take."""
        self.alive()
        self._updated = True

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        named, computed, presence = None, 0.0, Presence()
        every = min(_ROUND_SECONDS, self._limit / 4)
        while not self._ended.wait(every):
            since, stage = self._alive, self._stage
            now = time.monotonic()
            if presence.was_stopped():
                self._alive = since = now
            compiles = stage is Stage.COMPILING
            if self._cpu.computes() and compiles:
                computed = now
            if self._stop.requested and stage is not Stage.SAVING:
                waited = now - max(since, self._stop.requested_at)
                if waited > max(PATIENCE_SECONDS, 3 * self._longest):
                    self._end(now - since, known=since == named)
            since = max(since, computed)
            limit = max(self._limit, COMPILE_SECONDS if compiles else 0.0)
            self._beat(max(since + limit - now, 0.0) + _SPARE_SECONDS)
            if since != named and now - since > limit:
                named = since
                self._name(f"the training has shown no progress for {limit:g} s{self._why()}")

    def _why(self) -> str:
        """The part of a sentence that names what the training waits for."""
        works = self._stage in (Stage.RESETTING, Stage.STEPPING)
        awaited = self._awaited() if works else ""
        return f": it waits for {awaited}" if awaited else f", while {self._stage}"

    def _name(self, text: str) -> None:
        frames = self._log_stacks(text)
        self._say(f"{text}; the stack of each thread is in {self._log}\n{frames}".rstrip())

    def _log_stacks(self, text: str) -> str:
        """Writes all stacks into the log; gives the part that is an environment's."""
        stacks = ""
        with contextlib.suppress(OSError), tempfile.TemporaryFile() as file:
            faulthandler.dump_traceback(file)
            file.seek(0)
            stacks = file.read().decode(errors="replace")
        with contextlib.suppress(OSError), self._log.open("a") as log:
            log.write(f"{text}:\n{stacks}")
        return "" if self._stage is Stage.COMPILING else innermost_frames(stacks)

    def _end(self, silent: float, *, known: bool) -> None:
        """Ends this process, whose main thread may be where it cannot be interrupted."""
        text = f"ended before this update: no progress for {silent:.0f} s{self._why()}"
        if self._stage is Stage.COMPILING:
            text = "ended while it was compiling, before the first update"
        frames = self._log_stacks(text)
        shown = "" if known or not frames else f"\n{frames}"
        write_line(f"{text}{self._ending()}{shown}")
        os._exit(INTERRUPTED)
