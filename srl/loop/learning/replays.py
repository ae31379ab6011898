"""The replays of a learner: in memory, with their prior data, and in files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from srl.algorithms.replay import Replay
from srl.core.lazy import jax
from srl.core.types import Unroll
from srl.loop.devices import local_devices
from srl.loop.learning.prior import load_prior, priors_of, with_prior, without_prior
from srl.loop.learning.replay_files import ReplayFiles, Saved, expect_room
from srl.loop.learning.replicas import Sharded
from srl.loop.policy_set import PolicySet
from srl.record.block_files import Files


class Replays:
    """The replays of the slots of one learner, by policy."""

    def __init__(self, policy_set: PolicySet, slots: np.ndarray) -> None:
        """Makes none yet; `slots` are those here, int32 [B]."""
        self._policy_set, self._slots = policy_set, slots
        self.buffers: Any = {}
        """The arrays that learning reads and writes; each update donates them to the next one."""
        self.neighbours = 1
        """Learners that share the memory of this host, itself among them."""
        self.prior_folder: Path | None = None
        """The folder of the prior data, if replays begin with any."""
        self._loaded: dict[str, Replay] | None = None  # prior data that no replay holds yet
        self._files = [ReplayFiles()]  # of each device here
        self._example: Unroll | None = None  # of the slots here
        self._sharded: Sharded | None = None

    def spread(self, sharded: Sharded) -> None:
        """Divides them among several devices, the next time that they are made."""
        self._sharded = sharded
        first, parts = jax.process_index() * jax.local_device_count(), jax.device_count()
        own = range(first, first + jax.local_device_count())
        self._files = [ReplayFiles(part, parts) for part in own]

    def expect_room(self, example: Unroll) -> Any:
        """Gives the shapes of the replays, from an example of an unroll of the slots here.

        Raises:
            UserError: If memory would not hold them.
        """
        policy_set = self._policy_set
        if self._loaded is None:
            unrolls = jax.eval_shape(policy_set.unrolls_of, example)
            numbers = partial(policy_set.numbers_of, slots=self._slots)
            self._loaded = load_prior(self.prior_folder, policy_set.instances, unrolls, numbers)
        empty = jax.eval_shape(policy_set.empty_replays, example)
        shapes = with_prior(empty, self._loaded)
        expect_room(shapes, self.neighbours)
        return shapes

    def forget(self, example: Unroll) -> None:
        """Makes the replays empty, by an example of an unroll of the slots here."""
        make, self._example = self._policy_set.empty_replays, example
        priors = self._priors()
        self.buffers = {}  # before there are others
        if self._sharded is None:
            self.buffers = with_prior(make(example), priors[0])
        else:
            parts = self._sharded.empty_replays(make, example)
            self.buffers = self._sharded.joined(list(map(with_prior, parts, priors)))

    def _priors(self) -> list[dict[str, Replay]]:
        """The prior data on each device here: those of the present replays, or as loaded."""
        if self.buffers or not self._loaded:
            return [priors_of(part) for part in self._parts()]
        loaded, self._loaded = self._loaded, {}
        devices = [None] if self._sharded is None else local_devices()

        def part(k: int, x: np.ndarray) -> np.ndarray:
            each = x.shape[2] // len(devices)
            return x[:, :, k * each : (k + 1) * each]

        return [
            jax.device_put(jax.tree.map(partial(part, k), loaded), device, may_alias=False)
            for k, device in enumerate(devices)
        ]

    def _parts(self) -> list[Any]:
        """The replays of each device here."""
        return [self.buffers] if self._sharded is None else self._sharded.parted(self.buffers)

    @property
    def nbytes(self) -> int:
        """The size of the replays of all learners, without prior data."""
        return sum(x.nbytes for x in jax.tree.leaves(without_prior(self.buffers)))

    def save(self, folder: Path, updates: int, alive: Callable[[], None]) -> Saved:
        """Writes what is new in the replays here, after so many updates of the run."""
        pairs = zip(self._files, self._parts(), strict=True)
        parts = [files.save(folder, without_prior(part), updates, alive) for files, part in pairs]
        error = next((part.error for part in parts if part.error), "")
        return Saved({} if error else Saved.whole(parts), error)

    def restore(self, folder: Path, files: Files, updates: int, alive: Callable[[], None]) -> None:
        """Goes on from the replays in the files that a checkpoint after so many updates lists."""
        assert self._example is not None, "forget() comes first"
        self.forget(self._example)
        pairs = zip(self._files, self._parts(), strict=True)
        parts = [
            with_prior(
                own.load(folder, files, without_prior(part), updates, alive), priors_of(part)
            )
            for own, part in pairs
        ]
        self.buffers = parts[0] if self._sharded is None else self._sharded.joined(parts)
