"""MLflow, at the server that MLFLOW_TRACKING_URI names."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from srl.core.config_values import flat_values
from srl.tracking.tracker import (
    Histogram,
    Started,
    TrackedRun,
    expect_library,
    tag,
    without_password,
)

_MOST_PARAMETERS, _LONGEST_PARAMETER = 100, 6000  # of a request, and characters of one
_STATUS = {0: "FINISHED", 130: "KILLED"}


class MLflow:
    """A run of MLflow, which the library's own variables say more of (MLFLOW_TRACKING_URI, ...)."""

    def __init__(self) -> None:
        expect_library("mlflow", "mlflow")
        # Seven by default, with longer pauses each: a server that does not answer would not be
        # reported before the run has ended.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")

    def start(self, run: TrackedRun) -> Started:
        """Begins a run in the experiment, or goes on with the one of this id."""
        from mlflow.tracking import MlflowClient  # type: ignore[import-not-found]

        self._client = client = MlflowClient()
        if run.id is not None:
            self._id = run.id
            client.update_run(run.id, status="RUNNING")
            return Started(run.id, self._where(client.tracking_uri))
        name = run.settings.project or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "srl"
        known = client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else client.create_experiment(name)
        config = run.config
        keys = {key: str(config[key]) for key in ("env_id", "exp_name", "seed")}
        tags = {**keys, **{label: "true" for label in map(_name, config["tags"])}}
        title = f"{config['env_id']}__{config['exp_name']}__{config['seed']}"
        made = client.create_run(experiment, tags=tags, run_name=title)
        self._id = made.info.run_id
        self._log_parameters({**keys, **flat_values(config["experiment"])})
        return Started(self._id, self._where(client.tracking_uri))

    def _where(self, server: str) -> str:
        return f"run {self._id} at {without_password(server)}"

    def _log_parameters(self, values: Mapping[str, Any]) -> None:
        from mlflow.entities import Param  # type: ignore[import-not-found]

        params = [
            Param(_name(key), str(value)[:_LONGEST_PARAMETER]) for key, value in values.items()
        ]
        for first in range(0, len(params), _MOST_PARAMETERS):
            self._client.log_batch(self._id, params=params[first : first + _MOST_PARAMETERS])

    def metrics(self, values: Mapping[str, float], env_steps: int) -> None:
        """Logs scalars, with CleanRL's tags."""
        from mlflow.entities import Metric  # type: ignore[import-not-found]

        now = int(1000 * time.time())
        tagged = {_name(tag(name)): value for name, value in values.items()}
        metrics = [Metric(name, value, now, env_steps) for name, value in tagged.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def histogram(self, name: str, histogram: Histogram, env_steps: int) -> None:
        """Leaves it out: MLflow has none."""

    def video(self, file: Path, env_steps: int) -> None:
        """Keeps a film as an artifact."""
        self._client.log_artifact(self._id, str(file), "videos")

    def end(self, code: int) -> None:
        """Records how the run has ended."""
        self._client.set_terminated(self._id, _STATUS.get(code, "FAILED"))


def _name(text: str) -> str:
    """The text, with what MLflow takes in no name replaced."""
    return re.sub(r"[^\w\-. :/]", "_", text, flags=re.ASCII)
