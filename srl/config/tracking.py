"""Settings of trackers. Importing this loads nothing, since experiment files import it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from srl.core.errors import expect
from srl.core.settings import Count, Range, Settings, expect_settings

Tracker = Literal["tensorboard", "wandb", "mlflow", "prometheus"]


@dataclass(frozen=True)
class Tracking(Settings):
    """The data that trackers get, and its destination. Nothing here changes learning."""

    project: str | None = None
    """The run's project in Weights & Biases, or experiment in MLflow. By default WANDB_PROJECT or
    MLFLOW_EXPERIMENT_NAME, otherwise srl."""
    histograms: Count = 0
    """Reports between histograms of all parameters, their gradients and the actions; 0 makes none.
    Training waits for each set (docs/tracking.md)."""
    prometheus_address: str = "127.0.0.1"
    """The address at which Prometheus reads the metrics, by default of this host alone. With
    0.0.0.0 any host that reaches this one can read them."""
    prometheus_port: Annotated[int, Range(0, 65535)] = 9464
    """The port there; 0 takes a free one."""

    def validate(self) -> None:
        """Raises UserError where a setting is out of its limits."""
        expect_settings("tracking", self)
        expect(self.project != "", "tracking.project", self.project, "a name, or none")
        address = self.prometheus_address
        expect(address, "tracking.prometheus_address", address, "one")


def expect_texts(name: str, given: object) -> None:
    """Raises UserError unless the value of `name` is a tuple of texts, none of them empty."""
    good = isinstance(given, tuple | list) and all(isinstance(text, str) and text for text in given)
    expect(good, name, given, 'texts, such as ("a", "b")')
