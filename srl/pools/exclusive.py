"""Pools that check their calls: one thread at a time, none after close, their own rows."""

from __future__ import annotations

import functools
import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np

from srl.core.errors import UserError
from srl.pools.pool import Pool, as_env_ids
from srl.pools.timestep_arrays import Rows

Call = TypeVar("Call", bound=Callable[..., Any])


def exclusive(call: Call) -> Call:
    """Makes a pool's call an error while another thread is in one, or once the pool is closed."""

    @functools.wraps(call)
    def guarded(self: ExclusivePool, *args: Any, **kwargs: Any) -> Any:
        if not self._in_use.acquire(blocking=False):
            raise UserError("the pool is being used by another thread; one at a time may")
        try:
            if self._closed:
                raise UserError(f"the pool of {self.family}{self.name} is closed")
            return call(self, *args, **kwargs)
        finally:
            self._in_use.release()

    return guarded  # type: ignore[return-value]


class ExclusivePool(Pool):
    """A pool whose calls are `exclusive`."""

    family: ClassVar[str] = ""
    """The prefix of the name in messages."""

    def __init__(self, name: str, num_envs: int, batch_size: int) -> None:
        self.name = name
        self.num_envs, self.batch_size = num_envs, batch_size
        self._in_use = threading.Lock()
        self._closed = False
        self._token = object()  # marks the rows made here; the pool itself would never be freed

    # ---- checks ----

    _flying: np.ndarray
    """bool [N], the environments in flight; the subclass's."""

    def _check_synchronous(self, call: str) -> None:
        if self.batch_size != self.num_envs:
            raise UserError(
                f"{call} gives all environments, but batch_size is {self.batch_size} of "
                f"{self.num_envs}; call async_reset, send and recv"
            )

    def _idle_ids(self, env_ids: Any) -> np.ndarray:
        """The ids as int32 [n], if these environments exist and none is in flight."""
        ids = as_env_ids(env_ids, self.num_envs)
        if np.count_nonzero(flying := self._flying[ids]):
            raise UserError(f"environment {ids[flying][0]} is in flight; receive it first")
        known, counts = np.unique(ids, return_counts=True)
        if len(known) < len(ids):
            raise UserError(
                f"environment {known[counts > 1][0]} is named twice in env_ids; send each once"
            )
        return ids

    def _check_in_flight(self) -> None:
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
        """Frees what the pool holds."""
