"""What has become of every unroll, kept where the death of a learner cannot take it away."""

from __future__ import annotations

import mmap
import os

import numpy as np

_WORDS = ("granted", "learned", "lost", "rolled_back")
_ROWS = slice(1, 1 + 2 * len(_WORDS))
_SIZE = mmap.PAGESIZE


class Ledger:
    """Counts of unrolls, in a page of memory that a controller shares with its learner.

    granted = learned + in flight + lost + rolled back, always: each change is one word's, or comes
    in force by one word's change. One thread of one process writes at a time.
    """

    def __init__(self, fd: int) -> None:
        """Maps the page behind a descriptor, which stays the caller's."""
        words = np.frombuffer(mmap.mmap(fd, _SIZE), np.int64)
        self._valid = words[:1]  # which of the two rows
        self._rows = words[_ROWS].reshape(2, len(_WORDS))
        self.fd = fd

    @staticmethod
    def create() -> Ledger:
        """A new page; `close` lets go of its descriptor."""
        fd = os.memfd_create("srl-ledger", os.MFD_CLOEXEC)
        os.posix_fallocate(fd, 0, _SIZE)
        return Ledger(fd)

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self.fd)

    @property
    def granted(self) -> int:
        """Tickets given out, each for one unroll."""
        return self._get("granted")

    @property
    def learned(self) -> int:
        """Unrolls that entered an update which still counts."""
        return self._get("learned")

    @property
    def lost(self) -> int:
        """Unrolls that died with a worker, or came too late."""
        return self._get("lost")

    @property
    def rolled_back(self) -> int:
        """Unrolls that were learned after the checkpoint to which a dead learner returned."""
        return self._get("rolled_back")

    @property
    def in_flight(self) -> int:
        """Unrolls that were granted, and neither learned nor lost."""
        return self.granted - self.learned - self.lost - self.rolled_back

    def grant(self, count: int = 1) -> None:
        """Counts tickets that are given out."""
        self._add("granted", count)

    def learn(self, count: int = 1) -> None:
        """Counts unrolls that were in flight as learned."""
        self._add("learned", count)

    def lose(self, count: int = 1) -> None:
        """Counts unrolls that were in flight as lost."""
        self._add("lost", count)

    def restart(self, learned: int) -> None:
        """Goes on from a checkpoint: what was in flight is lost, what came after it rolled back.

        Args:
            learned: What the checkpoint had learned. More than this page knows of is what was
                learned before the page was made: by a run that is resumed.
        """
        earlier = max(learned - self.learned, 0)
        rolled_back = self.rolled_back + self.learned + earlier - learned
        row = (self.granted + earlier, learned, self.lost + self.in_flight, rolled_back)
        other = 1 - int(self._valid[0])
        self._rows[other] = row
        self._valid[0] = other

    def report(self) -> dict[str, int]:
        """The account as metrics."""
        return {
            "unrolls/produced": self.granted,
            "unrolls/learned": self.learned,
            "unrolls/in_flight": self.in_flight,
            "unrolls/lost": self.lost,
            "unrolls/rolled_back": self.rolled_back,
        }

    def __str__(self) -> str:
        """The account of a run."""
        return (
            f"unrolls: {self.granted:,} produced = {self.learned:,} learned + "
            f"{self.in_flight:,} in flight + {self.lost:,} lost + {self.rolled_back:,} rolled back"
        )

    def _get(self, word: str) -> int:
        return int(self._rows[self._valid[0], _WORDS.index(word)])

    def _add(self, word: str, count: int) -> None:
        self._rows[self._valid[0], _WORDS.index(word)] += count
