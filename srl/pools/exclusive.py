"""Pools that refuse by themselves: a second thread, a closed pool's calls, foreign rows."""

from __future__ import annotations

import functools
import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np

from srl.errors import UserError
from srl.pools.memory import Row, Rows
from srl.pools.pool import Pool

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

    # ---- refusals ----

    _flying: np.ndarray
    """bool [N], the environments in flight; the subclass's."""

    def _refuse_asynchronous(self, call: str) -> None:
        if self.batch_size != self.num_envs:
            raise UserError(
                f"{call} gives all environments, but batch_size is {self.batch_size} of "
                f"{self.num_envs}; call async_reset, send and recv"
            )

    def _refuse_unknown(self, ids: np.ndarray) -> None:
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise UserError(f"env_ids have shape {ids.shape}, dtype {ids.dtype}; expected [n] ints")
        wrong = (ids < 0) | (ids >= self.num_envs)
        if np.count_nonzero(wrong):
            raise UserError(f"environment id {ids[wrong][0]}; expected 0 to {self.num_envs - 1}")

    def _refuse_scarce(self) -> None:
        flying = int(np.count_nonzero(self._flying))
        if flying < self.batch_size:
            raise UserError(
                f"recv needs {self.batch_size} environments in flight, but only {flying} are; "
                "send actions first"
            )

    # ---- calls ----

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
