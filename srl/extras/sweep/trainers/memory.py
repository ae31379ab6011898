"""The memory that the runs of a sweep take on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from srl.config.experiment import Experiment
from srl.core.config_values import config_values, flat_values
from srl.core.errors import UserError
from srl.launch.engines.needs import needs_of


class RunMemory:
    """Bytes of each worker of a run, by fragment, estimated once for runs of the same sizes."""

    def __init__(self) -> None:
        self._known: dict[str, Mapping[str, int]] = {}

    def of(self, experiment: Experiment) -> Mapping[str, int]:
        """Estimates memory as `needs_of` does; gives nothing of a run that cannot begin."""
        sizes = repr(_sizes(experiment))
        if sizes not in self._known:
            self._known[sizes] = {}
            with suppress(UserError):  # the run's own job reports it
                self._known[sizes] = needs_of(experiment).memory
        return self._known[sizes]


def _sizes(experiment: Experiment) -> dict[str, object]:
    """The settings without those that change no array's size, such as a learning rate."""
    return {
        name: value
        for name, value in flat_values(config_values(experiment)).items()
        if name not in ("seed", "pause_at")
        if not (name.startswith("algorithm.") and isinstance(value, float))
    }
