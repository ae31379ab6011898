"""The display of a command without a result yet: its current stage, and the time in it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

_FIRST_PAUSE_SECONDS, _MOST_PAUSE_SECONDS = 10.0, 300.0


class Stages:
    """Shows one stage after the other: on a terminal in one line, elsewhere in a few lines.

    On a terminal the seconds go on by themselves. Elsewhere each stage is a line of its own. While
    a stage lasts, its line is repeated with the newest details, after 10 seconds and then after
    twice as long each time, up to 5 minutes.
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
        self._live: Live | None = None
        self._spinner = Spinner("dots")
        self._stage = self._details = ""
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
            self._details = details
            if not self._console.is_terminal:
                self._next_line = now + self._pause
                self._console.print(self._text(), markup=False)
            elif self._live is None:
                self._live = Live(console=self._console, get_renderable=self._line, transient=True)
                self._live.start()

    def _text(self) -> str:
        seconds = round(self._clock() - self._began)
        lasts = f"  (for {seconds} s)" if seconds else ""
        return f"{self._stage:<12} {self._details}{lasts}".rstrip()

    def _line(self) -> Spinner:
        """The line on a terminal, as it is now; called a few times a second, by another thread."""
        self._spinner.update(text=Text(self._text()))
        return self._spinner

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
            live, self._live = self._live, None
            if live is not None:
                live.stop()
            self._stage, self._next_line = "", 0.0

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
