"""Workers that answer calls of others, of `act` or `teach`, and do nothing else."""

from __future__ import annotations

from functools import partial

from srl.loop.acting.parameters import received_policies
from srl.loop.acting.policy_server import PolicyServer, batch_envs
from srl.loop.binding import bind_policy_set
from srl.loop.devices import expect_devices
from srl.loop.garbage import return_freed_memory
from srl.loop.stage import Stage
from srl.loop.xla_threads import act_in_calling_thread, choose_for_acting
from srl.streams.group_state import Stopped
from srl.streams.sample_forwarder import SampleForwarder
from srl.workers.worker import WorkerContext


def run_policy(context: WorkerContext) -> None:
    """Answers requests until the worker is to stop."""
    endpoints = context.endpoints()
    listeners = endpoints.listen()
    addresses = {stream: listener.address for stream, listener in listeners.items()}
    specs = context.register(addresses).specs
    assert specs is not None
    expect_devices()
    act_in_calling_thread()
    policy_set = bind_policy_set(endpoints.experiment, specs)

    def stopped() -> bool:
        context.progress(requests=server.answered)
        return context.stopping.is_set()

    try:
        context.stage(Stage.COMPILING)
        if endpoints.has("act"):  # policies' sizes tell nothing of a teacher's
            choose_for_acting(endpoints.experiment, policy_set, batch_envs(endpoints))
        received = received_policies(endpoints, policy_set)
        requests, sink = listeners["inference"], None
        if endpoints.has("collect"):
            groups = endpoints.share("collect", endpoints.replica)
            sink = SampleForwarder(groups, partial(endpoints.connect, "sample"), endpoints.go_on)
        server = PolicyServer(endpoints, policy_set, received, requests, sink)
        return_freed_memory()
        context.stage(Stage.STEPPING)
        server.serve(stopped)
        received.close()
        if sink is not None:
            sink.close()
    except Stopped:
        pass
    for listener in listeners.values():
        listener.close()
