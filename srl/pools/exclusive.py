"""Pools that refuse by themselves: a second thread, a closed pool's calls, foreign rows."""

from __future__ import annotations

import functools
import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from srl.errors import UserError
from srl.pools.pool import Pool, Row, Rows

Call = TypeVar("Call", bound=Callable[..., Any])


def exclusive(call: Call) -> Call:
    """Refuses a pool's call while another thread is in one, or once the pool is closed."""

    @functools.wraps(call)
    def guarded(self: ExclusivePool, *args: Any, **kwargs: Any) -> Any:
        if not self._turn.acquire(blocking=False):
            raise UserError("the pool is being used by another thread; one at a time may")
        try:
            if self._closed:
                raise UserError(f"the pool of {self.family}{self.name} is closed")
            return call(self, *args, **kwargs)
        finally:
            self._turn.release()

    return guarded  # type: ignore[return-value]


class ExclusivePool(Pool):
    """A pool whose calls are `exclusive`."""

    family: ClassVar[str] = ""
    """What messages put before the name."""

    def __init__(self, name: str, num_envs: int, batch_size: int) -> None:
        """Takes the sizes; the environments are the subclass's."""
        self.name = name
        self.num_envs, self.batch_size = num_envs, batch_size
        self._turn = threading.Lock()
        self._closed = False
        self._token = object()  # marks the rows made here; the pool itself would never be freed

    @exclusive
    def rows(self, length: int) -> Rows:
        """Gives memory for `length` timesteps; see the base class."""
        return self._make_rows(length)

    def _make_rows(self, length: int) -> Rows:
        return super().rows(length)

    @exclusive
    def save(self) -> bytes:
        """Saves nothing."""
        return super().save()

    @exclusive
    def restore(self, state: bytes) -> None:
        """Does nothing."""
        super().restore(state)

    def close(self) -> None:
        """Ends the environments; see the base class."""
        if not self._closed:
            self._close()

    @exclusive
    def _close(self) -> None:
        self._closed = True
        self._end()

    @abstractmethod
    def _end(self) -> None:
        """Lets go of everything."""

    def _adopt(self, row: Row) -> Row:
        row.owner = self._token
        return row
