"""Workers that step environments, and hold no parameters of their own."""

from __future__ import annotations

import contextlib

from srl.loop.actors import ActorThreads
from srl.loop.environments import make_group
from srl.loop.learning.learner import bind_teams
from srl.loop.stage import Stage
from srl.streams.group_state import Stopped
from srl.workers.worker import Context


def run_actor(context: Context) -> None:
    """Steps the worker's groups; acts for them if its fragment has `act`."""
    site = context.site()
    share = site.share("step", site.replica)
    pools = [make_group(site.experiment, site.group_envs, len(share)) for _ in share]
    context.register({}, pools[0].specs)
    teams = bind_teams(site.experiment, pools[0].specs)
    newest = None
    try:
        if site.has("act"):
            from srl.loop.parameters import received_policies

            newest = received_policies(site, teams).newest
        groups = ActorThreads(site, pools, teams, newest)

        def alive() -> None:
            if groups.stepping:
                context.stage(Stage.STEPPING)
            context.progress(env_steps=groups.env_steps)

        groups.start()
        groups.wait(alive)
        groups.close()
    except Stopped:
        return
    _wait(context)


def run_contributor(context: Context) -> None:
    """Steps and acts, and gives the sums of its slots' gradients to a server."""
    from srl.loop.learning.contributor import Contributor

    site = context.site()
    contributor = Contributor(site)
    context.register({}, contributor.make())
    training = contributor.training()
    training.on_stage, training.alive = context.stage, site.alive
    with contextlib.closing(training), contextlib.suppress(Stopped):
        training.start()
        while training.update():
            context.progress(unrolls=contributor.unrolls)
    _wait(context)


def _wait(context: Context) -> None:
    """The work is done; others may still be at theirs."""
    while not context.stopping.wait(1.0):
        context.progress()
