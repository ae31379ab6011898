"""Runs of the smallest trainer, with trackers."""

import socket
from urllib.request import urlopen

from tiny_trainer import TinyTrainer

from srl.config.experiment import load_experiment
from srl.launch.local import train
from srl.run.folder import create_run, open_run

UPDATES = 6


def new_run(path, *options, **trainer):
    """Trains for six updates, with a report after each; gives the exit code."""
    words = ["--updates", str(UPDATES), "--report-every", "1", *options]
    resolved = load_experiment("Tiny-v0", words)
    folder = create_run(resolved, path)
    return train(resolved.experiment, folder, trainer=TinyTrainer(**trainer))


def resumed_run(path):
    """Goes on; gives the exit code."""
    folder, resolved = open_run(path)
    return train(resolved.experiment, folder, resume=True, trainer=TinyTrainer())


def free_port():
    """A port of this host that nothing listens at."""
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


def scraped(port, host="127.0.0.1"):
    """What Prometheus would read there: value and labels by name."""
    from prometheus_client.parser import text_string_to_metric_families

    with urlopen(f"http://{host}:{port}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {sample.name: (sample.value, sample.labels) for f in families for sample in f.samples}
