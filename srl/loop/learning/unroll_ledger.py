"""The account of all unrolls, in memory that outlives a learner."""

from __future__ import annotations

import mmap
import os
import time
from typing import NamedTuple

import numpy as np

_WORDS = ("granted", "learned", "lost", "rolled_back")
_SIZE = mmap.PAGESIZE
_LOOK_SECONDS = 0.001
MOST_LEARNERS = _SIZE // (8 * 16)


class Account(NamedTuple):
    """Counts of all unrolls by fate; the first is the sum of the others."""

    produced: int
    """Tickets given out, each for one unroll."""
    learned: int
    """Unrolls that entered an update which still counts."""
    in_flight: int
    """Unrolls that were neither learned nor lost."""
    lost: int
    """Unrolls that died with a worker, or came too late."""
    rolled_back: int
    """Unrolls that were learned after the checkpoint to which a dead learner returned."""


class Ledger:
    """Counts of unrolls, in a page of memory that a controller shares with its learners.

    granted = learned + in flight + lost + rolled back, always: each change is one word's, or comes
    in force by one word's change. Each learner writes a part of its own, each word of it in one
    thread at a time; what is read is the sum.
    """

    NUMBERS = len(_WORDS)
    """The length of each learner's part."""

    def __init__(self, fd: int, learner: int = 0) -> None:
        """Maps the page behind a descriptor, which stays the caller's.

        Args:
            fd: Of the page.
            learner: Whose part is written here; from 0 to `MOST_LEARNERS` - 1.
        """
        parts = np.frombuffer(mmap.mmap(fd, _SIZE), np.int64).reshape(MOST_LEARNERS, -1)
        self._all_valid = parts[:, 0]  # which of the two rows
        self._all_rows = parts[:, 1 : 1 + 2 * len(_WORDS)].reshape(-1, 2, len(_WORDS))
        self._valid, self._rows = self._all_valid[learner : learner + 1], self._all_rows[learner]
        self.fd, self._learner = fd, learner

    @staticmethod
    def create() -> Ledger:
        """A new page; `close` lets go of its descriptor."""
        fd = os.memfd_create("srl-ledger", os.MFD_CLOEXEC)
        os.posix_fallocate(fd, 0, _SIZE)
        return Ledger(fd)

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self.fd)

    def account(self) -> Account:
        """All counts, as they were at one moment."""
        rows = self._all_rows[np.arange(MOST_LEARNERS), self._all_valid]
        granted, learned, lost, rolled_back = rows.sum(axis=0).tolist()
        in_flight = granted - learned - lost - rolled_back
        return Account(granted, learned, in_flight, lost, rolled_back)

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
        granted, known, lost, rolled_back = (int(x) for x in self._rows[self._valid[0]])
        earlier = max(learned - known, 0)
        in_flight = granted - known - lost - rolled_back
        rolled_back += known + earlier - learned
        row = (granted + earlier, learned, lost + in_flight, rolled_back)
        other = 1 - int(self._valid[0])
        self._rows[other] = row
        self._valid[0] = other

    def part(self, learner: int) -> list[int]:
        """Gives the counts that one learner has written: granted, learned, lost, rolled back."""
        return self._all_rows[learner, self._all_valid[learner]].tolist()

    def parts(self) -> dict[int, list[int]]:
        """The parts of all learners that have written anything."""
        written = (learner for learner in range(MOST_LEARNERS) if any(self.part(learner)))
        return {learner: self.part(learner) for learner in written}

    def put(self, learner: int, part: list[int]) -> None:
        """Takes over what a learner has written into the page of another host."""
        other = 1 - int(self._all_valid[learner])
        self._all_rows[learner, other] = part
        self._all_valid[learner] = other

    def wait_for_others(self, seconds: float = 1.0) -> bool:
        """Waits until the other learners that write here have counted the update made together.

        None can be further: the next update needs all of them.

        Args:
            seconds: The longest time to wait, as one may have died since.

        Returns:
            Whether they have.
        """
        deadline = time.monotonic() + seconds
        own = self.part(self._learner)[_WORDS.index("learned")]
        while True:
            others = (self.part(other) for other in range(MOST_LEARNERS))
            if all(learned >= own for granted, learned, *_ in others if granted):
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)

    def report(self) -> dict[str, int]:
        """The account as metrics, after an update; every learner is to have counted that."""
        self.wait_for_others()
        return {f"unrolls/{word}": count for word, count in self.account()._asdict().items()}

    def __str__(self) -> str:
        """The account of a run."""
        (_, produced), *parts = self.account()._asdict().items()
        summed = " + ".join(f"{count:,} {word.replace('_', ' ')}" for word, count in parts)
        return f"unrolls: {produced:,} produced = {summed}"

    def _add(self, word: str, count: int) -> None:
        self._rows[self._valid[0], _WORDS.index(word)] += count
