"""A policy worker by itself, for `srl bench act --through`."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace

from srl.config.experiment import Experiment, load_experiment
from srl.core.types import Specs
from srl.dataflow.plans import decoupled, replicated
from srl.extras.bench.alone import first_timestep
from srl.loop.acting.parameters import Published
from srl.loop.acting.policy_server import PolicyServer
from srl.loop.learning.learner import Learner
from srl.loop.wiring import Endpoints
from srl.loop.xla_threads import act_in_calling_thread
from srl.streams.group_state import STATE_BYTES
from srl.streams.transport import Listener, Transport, listen
from srl.streams.transport.message import Identity
from srl.system.compilation import keep_compiled_programs

RUN = 1
"""The kind of the benchmark's messages."""


def one_group(experiment: Experiment, num_envs: int) -> Experiment:
    """The experiment with so many environments, for which one process acts in one call.

    Past versions would play a part of the slots: one policy's acting is measured.
    """
    return replace(experiment, num_envs=num_envs, groups=1, plan=replicated(1), self_play=None)


def serve(
    experiment: Experiment, specs: Specs, transport: Transport
) -> tuple[PolicyServer, Listener]:
    """A server of an untrained policy for all environments as one group, and where it listens."""
    experiment = replace(experiment, plan=decoupled(actors=1))
    learner = Learner(experiment, specs)
    stop = threading.Event()
    identity = Identity(RUN, 0, 0)
    endpoints = Endpoints(experiment, "policies", 0, identity, dict, stop, transport)
    listener = listen(transport, identity, limit_bytes=STATE_BYTES)

    published = Published(learner.policies, None)
    published.publish(learner.progress.version, learner.policies)
    return PolicyServer(endpoints, learner.policy_set, published, listener, None), listener


def main(argv: Sequence[str]) -> None:
    """Serves until standard input ends."""
    settings = json.loads(argv[0])
    keep_compiled_programs()
    experiment = load_experiment(settings["target"], settings["overrides"]).experiment
    experiment = one_group(experiment, settings["num_envs"])
    act_in_calling_thread()
    specs, _ = first_timestep(experiment, 1)
    server, listener = serve(experiment, specs, settings["transport"])
    sys.stdout.write(listener.address + "\n")
    sys.stdout.flush()
    ended = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    server.serve(ended.is_set)
