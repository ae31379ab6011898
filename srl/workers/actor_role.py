"""Workers that step environments, and hold no parameters of their own."""

from __future__ import annotations

from srl.loop.binding import bind_policy_set
from srl.loop.devices import expect_devices
from srl.loop.garbage import return_freed_memory
from srl.loop.stage import Stage
from srl.loop.stepping.actors import ActorThreads
from srl.loop.stepping.environments import make_pools
from srl.streams.group_state import Stopped
from srl.workers.worker import WorkerContext


def run_actor(context: WorkerContext) -> None:
    """Steps the worker's groups; acts and teaches for them if its fragment has these nodes."""
    endpoints = context.endpoints()
    pools = make_pools(endpoints)
    context.register({}, pools[0].specs)
    acts = endpoints.has("act")
    if acts or endpoints.has("teach"):
        from srl.loop.xla_threads import act_in_calling_thread

        expect_devices()
        act_in_calling_thread()
    policy_set = bind_policy_set(endpoints.experiment, pools[0].specs)
    newest = None

    def begin() -> None:
        return_freed_memory()
        context.stage(Stage.STEPPING)

    try:
        if acts:
            from srl.loop.acting.parameters import received_policies
            from srl.loop.xla_threads import choose_for_acting

            choose_for_acting(endpoints.experiment, policy_set, endpoints.act_envs)
            newest = received_policies(endpoints, policy_set).newest
        groups = ActorThreads(endpoints, pools, policy_set, newest)

        groups.start()
        groups.wait(lambda: context.progress(env_steps=groups.env_steps), begin)
        groups.close()
    except Stopped:
        return
