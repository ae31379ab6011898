"""The role that a worker has anyway, as if every other one that steps were on another host."""

import sys
from dataclasses import replace

from srl.workers.roles import role_of


def apart(context):
    """Runs the worker; then writes into the run's folder whether it has used the network."""
    fragment, site = context.plan.fragments[context.fragment], context.site
    far = "step" in fragment.placed and context.replica % 2
    context.site = lambda: replace(site(), host="far" if far else "near")
    role_of(fragment)(context)
    used = "network" if "zmq" in sys.modules else "memory"
    (context.folder / f"{context.fragment}-{context.replica}-{used}").touch()
