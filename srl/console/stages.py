"""What a command shows while it has no result yet: the stage that it is in, and for how long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rich.console import Console
from rich.status import Status

_FIRST_PAUSE_SECONDS, _MOST_PAUSE_SECONDS = 10.0, 300.0


class Stages:
    """Shows one stage after the other: on a terminal in one line, elsewhere in a few lines.

    Elsewhere each stage is a line of its own. While a stage lasts, its line is repeated with the
    newest details, after 10 seconds and then after twice as long each time, up to 5 minutes.
    """

    def __init__(
        self, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Shows nothing yet.

        Args:
            console: Where to show stages; standard error by default, so that standard output holds
                the result alone.
            clock: Seconds that have passed.
        """
        self._console = console or Console(
            stderr=True, highlight=False, soft_wrap=True, force_jupyter=False
        )
        self._clock = clock
        self._status: Status | None = None
        self._stage = ""
        self._began = self._next_line = self._pause = 0.0
        self._lock = threading.Lock()

    def show(self, stage: str, details: str = "") -> None:
        """Shows what is being done; cheap, so it may be called at each step.

        Args:
            stage: A few words; another stage begins when they change.
            details: How far the stage is.
        """
        now = self._clock()
        with self._lock:
            if stage != self._stage:
                self._stage, self._began, self._pause = stage, now, _FIRST_PAUSE_SECONDS
            elif now < self._next_line:
                return
            elif not self._console.is_terminal:
                self._pause = min(2 * self._pause, _MOST_PAUSE_SECONDS)
            seconds = round(now - self._began)
            lasts = f"  (for {seconds} s)" if seconds else ""
            self._write(f"{stage:<12} {details}{lasts}".rstrip(), now)

    def _write(self, text: str, now: float) -> None:
        if not self._console.is_terminal:
            self._next_line = now + self._pause
            return self._console.print(text, markup=False)
        self._next_line = now + 0.25
        text = text.replace("[", "\\[")
        if self._status is not None:
            return self._status.update(text)
        self._status = self._console.status(text)
        return self._status.start()

    def counter(self, stage: str, what: str, total: int) -> Callable[[int], None]:
        """Begins a stage with a known end.

        Args:
            stage: Its name.
            what: Is counted, such as "episodes".
            total: How many there will be.

        Returns:
            What is to be called with how many there are so far; cheap.
        """
        self.show(stage, f"{what} 0 of {total:,}")
        return lambda done: self.show(stage, f"{what} {done:,} of {total:,}")

    def end(self) -> None:
        """Ends the last stage, and gives the terminal's line back."""
        with self._lock:
            self._stage, self._next_line = "", 0.0
            status, self._status = self._status, None
            if status is not None:
                status.stop()

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
