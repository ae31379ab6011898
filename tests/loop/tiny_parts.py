"""Parts of a small run, put together as the plan `threads` does it, for tests of each by itself."""

import threading
import time
from dataclasses import replace

from drawn import Drawn

from srl import Experiment
from srl.core.tree import map_tree
from srl.dataflow import plans
from srl.extras.bench.alone import first_timestep
from srl.loop.acting.local_acting import LocalActing
from srl.loop.binding import batch_specs
from srl.loop.learning.unroll_ledger import Ledger
from srl.loop.projection import Projection
from srl.loop.stepping.actors import OneGroup
from srl.loop.stepping.environments import make_group
from srl.loop.stepping.group import Group
from srl.loop.stepping.remote import RemoteEnvironments
from srl.loop.stepping.unrolls import SentUnrolls
from srl.loop.wiring import Endpoints
from srl.networks import MLP
from srl.pools.timestep_arrays import aligned_zeros
from srl.streams.batch import widened
from srl.streams.transport.message import Identity

SECONDS = 60


def by_threads(*, compiled):
    """One worker steps two groups, each in a thread."""
    plan = plans.threads(1)
    actors = replace(plan.fragments["actors"], compiled=compiled)
    return replace(plan, fragments={**plan.fragments, "actors": actors})


TINY = Experiment(
    name="tiny",
    env="native:CartPole-v1",
    num_envs=4,
    groups=2,
    algorithm=Drawn(network=MLP(width=8), epochs=1, minibatches=2),
    plan=by_threads(compiled=False),
    updates=100,
)
"""One worker steps two groups of two environments, each in a thread."""
ENVS = TINY.num_envs // TINY.groups
SPECS, _ = first_timestep(TINY, 1)


def with_program(experiment, program):
    """The same with another loop."""
    return replace(experiment, algorithm=replace(experiment.algorithm, program=program))


def empty_batches(experiment, policy_set, groups=TINY.groups):
    """Memory for the unrolls of a pass, of so many groups."""
    array_specs = widened(batch_specs(experiment, policy_set, ENVS), groups)
    return [map_tree(lambda f: aligned_zeros(f.shape, f.dtype), spec) for spec in array_specs]


def run_pass(experiment, group):
    """Runs the acting half of the loop once, for a group whose unrolls are learned elsewhere."""
    Projection(experiment, OneGroup(group)).run()


def in_time():
    """What those who wait call now and then: from a minute after now on it fails."""
    deadline = time.monotonic() + SECONDS

    def check():
        assert time.monotonic() < deadline, "it did not come"

    return check


class Ends:
    """The learner's end of the streams, and groups that connect to it."""

    def __init__(self, experiment, learner, act):
        self.experiment, self.learner, self._act = experiment, learner, act
        self.stopping, self.addresses = threading.Event(), {}
        self._in_time = in_time()
        self.ledger = Ledger.create()
        endpoints = self.endpoints("learner", 0)
        listeners = endpoints.listen()
        self.addresses["learner"] = [{kind: x.address for kind, x in listeners.items()}]
        specs = learner.policy_set.specs
        self.environments = RemoteEnvironments(endpoints, listeners, specs, self.ledger)
        self.environments.prepare(learner, lambda: None)
        self.sink, self.published = self.environments.sink, self.environments.published
        self.pools = []

    def endpoints(self, fragment, replica):
        """A worker's place; the learner is the first of all."""
        number = 0 if fragment == "learner" else replica + 1
        identity = Identity(7, number, 0)
        parts = identity, lambda: self.addresses, self.stopping, "thread", self._in_time
        return Endpoints(self.experiment, fragment, replica, *parts)

    def pool(self):
        """Of one group's environments."""
        self.pools.append(make_group(self.experiment, ENVS))
        return self.pools[-1]

    def group(self, number, alive=lambda: None):
        """A group that acts for itself and sends its unrolls; it has begun its episodes."""
        experiment, policy_set, endpoints = (
            self.experiment,
            self.learner.policy_set,
            self.endpoints("actors", 0),
        )
        pool, newest = self.pool(), self.published.newest
        envs = range(number * ENVS, (number + 1) * ENVS)
        swaps = experiment.max_staleness != 0
        acting = LocalActing(experiment, policy_set, self._act, newest, envs, swaps=swaps)
        unrolls = SentUnrolls(lambda: endpoints.connect("sample", number), endpoints.go_on)
        group = Group(pool, acting, unrolls, policy_set, alive)
        if unrolls.start.saved is None:
            group.reset(number)
        else:
            group.restore(unrolls.start.saved)
        return group

    def close(self):
        self.environments.close()
        self.ledger.close()
        for pool in self.pools:
            pool.close()
