"""The copy of an unroll to the devices that learn, by itself: a process of `srl bench gpu`."""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing

import jax
import numpy as np

from srl.config.experiment import load_experiment
from srl.core.tree import leaves_of
from srl.loop.learning.learner import Learner
from srl.loop.stepping.local import LocalEnvironments

_CALLS = 10


def main(argv: list[str]) -> int:
    """Writes milliseconds a copy, and megabytes, as JSON; `argv` is what `srl run` takes."""
    target, *overrides = argv
    experiment = load_experiment(target, overrides).experiment
    environments = LocalEnvironments(experiment)
    with closing(environments):
        learner = Learner(experiment, environments.make())
        batch = environments.prepare(learner, lambda: None)[0]
        times = []
        for _ in range(_CALLS):
            before = time.perf_counter()
            jax.block_until_ready(learner.prepared(batch))
            times.append(time.perf_counter() - before)
        size = sum(np.asarray(leaf).nbytes for leaf in leaves_of(learner.unroll(batch)))
    seconds = float(np.median(times))
    line = {"value": 1e3 * seconds, "unit": "ms", "megabytes": size / 1e6}
    sys.stdout.write(json.dumps(line) + "\n")
    return 0
