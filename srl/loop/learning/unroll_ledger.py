"""The account of all unrolls, in memory that outlives a learner."""

from __future__ import annotations

import mmap
import os
import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from srl.core.errors import Final
from srl.dataflow.plan import MOST_LEARNERS
from srl.streams.tickets import Counts

_SIZE = MOST_LEARNERS * 8 * 16
_LOOK_SECONDS = 0.001


class Account(NamedTuple):
    """Counts of all unrolls by fate; the first is the sum of the others.

    Each is counted by itself, so that a sum that is wrong shows an error.
    """

    produced: int = 0
    """Tickets given out, each for one unroll."""
    learned: int = 0
    """Unrolls that entered an update which still counts."""
    in_flight: int = 0
    """Unrolls that are being made, or wait to be learned from."""
    lost: int = 0
    """Unrolls that died with a worker, or came too late."""
    rolled_back: int = 0
    """Unrolls that were learned after the checkpoint to which a dead learner returned."""

    @property
    def adds_up(self) -> bool:
        """True if the first count is the sum of the others."""
        return self.produced == sum(self[1:])

    @property
    def summed(self) -> str:
        """The terms of the sum, in words."""
        terms = list(self._asdict().items())[1:]
        return " + ".join(f"{count:,} {word.replace('_', ' ')}" for word, count in terms)


_TERMS = len(Account._fields)


class Ledger:
    """Counts of unrolls, in memory that a controller shares with its learners.

    Each learner has a part of it: a number of writes and two rows of counts. Write n fills
    row n modulo 2 and then sets the number, so that a learner that is killed leaves a whole row,
    and a reader that finds the number unchanged has read one.
    """

    NUMBERS = _TERMS
    """The length of each learner's part."""

    def __init__(self, fd: int, learner: int = 0) -> None:
        """Maps the memory behind a descriptor, which stays the caller's.

        One thread at a time writes the part of this learner, from 0 to `MOST_LEARNERS` - 1.
        """
        parts = np.frombuffer(mmap.mmap(fd, _SIZE), np.int64).reshape(MOST_LEARNERS, -1)
        self._writes = parts[:, 0]
        self._rows = parts[:, 1 : 1 + 2 * _TERMS].reshape(-1, 2, _TERMS)
        self.fd, self._learner = fd, learner
        self._before = self.part(learner)

    @staticmethod
    def create() -> Ledger:
        """New memory; `close` lets go of its descriptor."""
        fd = os.memfd_create("srl-ledger", os.MFD_CLOEXEC)
        os.posix_fallocate(fd, 0, _SIZE)
        return Ledger(fd)

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self.fd)

    def account(self) -> Account:
        """The sum over all learners.

        Raises:
            Final: If the counts of one of them do not add up, which is an error of srl.
        """
        parts: list[Any] = [Account(), *map(self._checked, self._writers())]
        return Account(*np.sum(parts, axis=0).tolist())

    def write(self, counts: Counts) -> None:
        """Writes the counts of this learner since `restart`."""
        self.put(self._learner, np.add(self._before, (*counts, 0)))

    def restart(self, learned: int) -> None:
        """Goes on from a checkpoint: what was in flight is lost, what came after it rolled back.

        Args:
            learned: What the checkpoint had learned. More than this account knows of is what was
                learned before it was made: by a run that is resumed.
        """
        last = self.part(self._learner)
        earlier = max(learned - last.learned, 0)
        self._before = Account(
            produced=last.produced + earlier,
            learned=learned,
            lost=last.lost + last.in_flight,
            rolled_back=last.rolled_back + last.learned + earlier - learned,
        )
        self.put(self._learner, self._before)

    def part(self, learner: int) -> Account:
        """Gives the counts that one learner has written last."""
        while True:
            number = int(self._writes[learner])
            row = self._rows[learner, number % 2].tolist()
            if self._writes[learner] == number:
                return Account(*row)

    def parts(self) -> dict[int, Account]:
        """The parts of all learners that have written anything."""
        parts = {learner: self.part(learner) for learner in self._writers()}
        return {learner: part for learner, part in parts.items() if any(part)}

    def _writers(self) -> list[int]:
        return np.flatnonzero(self._writes).tolist()

    def put(self, learner: int, part: ArrayLike) -> None:
        """Writes a learner's part: as a whole, in the eyes of those that read it."""
        number = int(self._writes[learner]) + 1
        self._rows[learner, number % 2] = part
        self._writes[learner] = number

    def wait_for_others(self, seconds: float = 1.0) -> bool:
        """Waits until the other learners that write here have counted the update made together.

        None can be further: the next update needs all of them.

        Args:
            seconds: The longest time to wait, as one may have died since.

        Returns:
            Whether they have.
        """
        deadline = time.monotonic() + seconds
        own = self.part(self._learner).learned
        while True:
            others = self.parts().values()
            if all(part.learned >= own for part in others if part.produced):
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)

    def report(self) -> dict[str, int]:
        """The account as metrics, after an update; every learner is to have counted that.

        Raises:
            Final: If it does not add up.
        """
        self.wait_for_others()
        return {f"unrolls/{word}": count for word, count in self.account()._asdict().items()}

    def __str__(self) -> str:
        """The account of a run."""
        account = self.account()
        return f"unrolls: {account.produced:,} produced = {account.summed}"

    def _checked(self, learner: int) -> Account:
        part = self.part(learner)
        if not part.adds_up:  # some processors show another's writes in another order for a moment
            time.sleep(_LOOK_SECONDS)
            part = self.part(learner)
        if not part.adds_up:
            raise Final(
                f"an error of srl: the account of unrolls of learner {learner} does not add up: "
                f"{part.produced:,} produced, but {part.summed} = {sum(part[1:]):,}"
            )
        return part
