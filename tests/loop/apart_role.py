"""The role that a worker has anyway, as if every other one that steps were on another host.

The run's keys are those in the environment, if there are any.
"""

import sys
from dataclasses import replace

from srl.streams.transport.keys import keys_from_environment
from srl.workers.roles import role_of


def apart(context):
    """Runs the worker; then writes into the run's folder whether it has used the network."""
    fragment, endpoints = context.plan.fragments[context.fragment], context.endpoints
    far = "step" in fragment.nodes and context.replica % 2
    own = {"host": "far" if far else "near", "keys": keys_from_environment()}
    context.endpoints = lambda: replace(endpoints(), **own)
    role_of(fragment)(context)
    used = "network" if "srl.streams.transport.network" in sys.modules else "memory"
    (context.folder / f"{context.fragment}-{context.replica}-{used}").touch()
