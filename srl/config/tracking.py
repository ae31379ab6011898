"""Settings of trackers. Importing this loads nothing, since experiment files import it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from srl.core.errors import expect, expect_number
from srl.core.settings import Settings

Tracker = Literal["tensorboard", "wandb", "mlflow", "prometheus"]
NAMES: tuple[str, ...] = get_args(Tracker)


@dataclass(frozen=True)
class Tracking(Settings):
    """The data that trackers get, and its destination. Nothing here changes learning."""

    project: str | None = None
    """The run's project in Weights & Biases, or experiment in MLflow. By default WANDB_PROJECT or
    MLFLOW_EXPERIMENT_NAME, otherwise srl."""
    histograms: int = 0
    """Reports between histograms of all parameters, their gradients and the actions; 0 makes none.
    Training waits for each set (docs/tracking.md)."""
    prometheus_address: str = "127.0.0.1"
    """The address at which Prometheus reads the metrics, by default of this host alone. With
    0.0.0.0 any host that reaches this one can read them."""
    prometheus_port: int = 9464
    """The port there; 0 takes a free one."""

    def validate(self) -> None:
        """Raises UserError where a setting is out of its limits."""
        good = self.project is None or (isinstance(self.project, str) and self.project)
        expect(good, "tracking.project", self.project, "a name, or none")
        expect_number("tracking.histograms", self.histograms, 0)
        address = self.prometheus_address
        expect(isinstance(address, str) and address, "tracking.prometheus_address", address, "one")
        expect_number("tracking.prometheus_port", self.prometheus_port, 0, 65535)


def expect_texts(name: str, given: object, choices: tuple[str, ...] = ()) -> None:
    """Raises UserError unless the value of `name` is a tuple of texts, out of choices if given."""
    good = isinstance(given, tuple | list) and all(isinstance(text, str) and text for text in given)
    expected = f"some of {', '.join(choices)}" if choices else 'texts, such as ("a", "b")'
    expect(good and (not choices or {*given} <= {*choices}), name, given, expected)  # type: ignore[misc]
