"""An HTTP endpoint from which Prometheus reads the newest report."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from srl.tracking.metrics_server import MetricsServer, for_known_hosts
from srl.tracking.tracker import Histogram, Started, TrackedRun, expect_library

_COUNTERS = ("env_steps", "agent_steps", "updates", "episodes", "episodes_lost")


class Prometheus:
    """Serves the newest report at /metrics.

    A metric `loss/entropy` is the gauge `srl_loss_entropy`; what only grows is a counter, such as
    `srl_env_steps_total`. The gauge `srl_report_timestamp_seconds` shows a run that hangs, and the
    labels of `srl_run_info` what is run.
    """

    def __init__(self) -> None:
        expect_library("prometheus", "prometheus_client")
        self._report: dict[str, float] = {}

    def start(self, run: TrackedRun) -> Started:
        """Opens the port, which only this host can reach unless another address is given."""
        from prometheus_client import CollectorRegistry, make_wsgi_app

        keys = ("exp_name", "env_id", "seed")
        self._labels = {key: str(run.config[key]) for key in keys} | {"run": str(run.folder)}
        registry = CollectorRegistry()
        registry.register(self)
        address = run.settings.prometheus_address
        app = for_known_hosts(make_wsgi_app(registry), address)
        self._server = MetricsServer(address, run.settings.prometheus_port, app)
        host = f"[{address}]" if ":" in address else address
        return Started(where=f"http://{host}:{self._server.server_port}/metrics")

    def metrics(self, values: Mapping[str, float], env_steps: int) -> None:
        """Serves these numbers from now on; that of an older version's evaluation sets no count."""
        counts = {k: max(values[k], self._report.get(k, 0.0)) for k in _COUNTERS if k in values}
        now = {"report_timestamp_seconds": time.time()}
        self._report = {**self._report, **values, **counts, **now}

    def histogram(self, name: str, histogram: Histogram, env_steps: int) -> None:
        """Leaves it out: Prometheus' own histograms count events."""

    def video(self, file: Path, env_steps: int) -> None:
        """Leaves it out."""

    def end(self, code: int) -> None:
        """Closes the port."""
        self._server.end()

    def collect(self) -> Iterator[Any]:
        """Gives what is served; called by the server's threads."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

        yield InfoMetricFamily("srl_run", "The run that is served here.", self._labels)
        there = set()
        for key, value in self._report.items():
            name = "srl_" + re.sub(r"\W", "_", key, flags=re.ASCII)
            if name not in there:  # a name twice makes Prometheus drop all
                there.add(name)
                kind = CounterMetricFamily if key in _COUNTERS else GaugeMetricFamily
                yield kind(name, f"{key} in metrics.jsonl.", value)
