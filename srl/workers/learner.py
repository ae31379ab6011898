"""The learner's half of the training loop: parameters, and how a batch changes them."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from srl.dataflow.plan import groups
from srl.errors import UserError
from srl.experiment import Experiment, plan_of
from srl.lazy import jax, jnp
from srl.pools.memory import empty_timestep
from srl.streams.batch import Batch, batch_form
from srl.types import Decision, Metrics, Policy, Specs, Tree, Unroll
from srl.workers.league import League, hold_of
from srl.workers.past import Opponents, Past
from srl.workers.past_matches import PastMatches
from srl.workers.progress import Progress
from srl.workers.replicas import Sharded
from srl.workers.teams import Teams

logger = logging.getLogger(__name__)

_ACT, _INIT = 1, 0  # purposes that the run's random key is folded with


def run_key(experiment: Experiment) -> Any:
    """The random key that a run's sampling folds all others from."""
    return jax.random.fold_in(jax.random.key(experiment.seed), _ACT)


def bind_teams(experiment: Experiment, specs: Specs) -> Teams:
    """The experiment's policies, for environments of these specs.

    Raises:
        UserError: If self-play is asked for and does not fit the environments.
    """
    steps = experiment.algorithm.unroll_length * experiment.num_envs
    updates = experiment.updates or math.ceil(experiment.env_steps / steps)
    past = None
    if experiment.self_play is not None:
        each = experiment.num_envs // groups(plan_of(experiment), experiment)
        past = Past.of(experiment.self_play.past, specs.agents, each)
    return Teams.of(experiment.algorithm, experiment.policies, specs, updates, past)


def _past_matches(experiment: Experiment, teams: Teams) -> PastMatches | None:
    """What counts matches with past selves, if these are played."""
    if experiment.self_play is None or teams.past is None:
        return None
    hold = hold_of(experiment, experiment.self_play, teams.specs)
    return PastMatches(teams.specs, teams.past, hold, experiment.algorithm.unroll_length)


def form_of(experiment: Experiment, teams: Teams, num_envs: int) -> Batch:
    """What the unroll of one group of `num_envs` environments is made of."""
    length = experiment.algorithm.unroll_length
    decision = decision_form(teams, num_envs)
    return batch_form(teams.specs, num_envs, decision, length, teams.chunk)


def decision_form(teams: Teams, num_envs: int) -> Decision:
    """Shapes and dtypes of a group's decision."""
    timestep = empty_timestep(teams.specs, num_envs)

    def decide(key: Any, observation: Tree, ended: Any) -> Decision:
        slots = jnp.arange(len(ended), dtype=jnp.int32)
        memory = teams.initial_memory(num_envs)
        policies = teams.acting(teams.policies(teams.init(key)))
        return teams.act(policies, observation, ended, memory, key, jnp.uint32(0), slots)

    key = jax.random.key(0)
    return jax.eval_shape(decide, key, timestep.observation, timestep.terminated)


class Learner:
    """The nodes `gradient` and `update`, compiled to one call, and what is counted as they run."""

    def __init__(
        self,
        experiment: Experiment,
        specs: Specs,
        worker: str = "trainer",
        slots: range | None = None,
    ) -> None:
        """Draws parameters.

        Args:
            experiment: What is trained.
            specs: Of its environments.
            worker: The kind of worker that this is in.
            slots: Those of this learner's batches, by their numbers in the run; all by default.
        """
        self.experiment, self.worker = experiment, worker
        self.teams = teams = bind_teams(experiment, specs)
        self.progress = Progress(specs, teams.members, _past_matches(experiment, teams))
        self.parameters: dict[str, int] = {}
        """Numbers in each policy's networks."""
        self.agents: dict[str, tuple[str, ...]] = {}
        """Who follows each policy."""
        root = jax.random.key(experiment.seed)
        self.states = teams.init(jax.random.fold_in(root, _INIT))
        """Of each policy: all that learning changes."""
        self.policies: Mapping[str, Any] = teams.acting(teams.policies(self.states))
        """What acts; of version `progress.version`."""
        self.league: League | None = None
        """The past versions that play, and the pool that they come from."""
        for name, state in self.states.items():
            self.parameters[name] = sum(x.size for x in jax.tree.leaves(state.params))
            self.agents[name] = tuple(specs.agents[i] for i in teams.members[name])
        self._slots = np.asarray(
            slots or range(experiment.num_envs * len(specs.agents)), dtype=np.int32
        )
        self.sharded: Sharded | None = None
        """Where there are several devices, in this process or with other replicas."""
        self._learn: Callable[..., Any] = jax.jit(self._learn_and_count)

    def compile(self, batch: Batch) -> None:
        """Runs `learn` once on empty memory, so that no update waits for a compiler."""
        example = self.unroll(batch)
        *_, losses = jax.eval_shape(self.teams.learn, self.states, example)
        self.progress.losses = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), losses)
        if jax.device_count() > 1 and self._divisible(batch):
            self._learn = self.sharded = Sharded(self._learn_and_count, example)
        unroll = self.prepared(batch)
        if self.sharded is not None:
            self.sharded.compile(self.states, unroll, self.progress.losses)
        jax.block_until_ready(self._learn(self.states, unroll, self.progress.losses))

    def _divisible(self, batch: Batch) -> bool:
        """Whether the batch's environments can be divided among this process' devices.

        Raises:
            UserError: If they cannot, and the other replicas count on it.
        """
        envs, devices = batch.timesteps.lost.shape[1], jax.local_device_count()
        period = self.teams.period
        if envs % (devices * period) == 0:
            return True
        told = f"{envs} environments cannot be divided among {devices} devices"
        if period > 1:
            told += f" so that past matches are spread alike, which they are every {period}"
        if jax.process_count() > 1:
            raise UserError(f"{told} of each learner; change --num-envs")
        logger.warning("%s: one of them learns alone; change --num-envs", told)
        return False

    def _learn_and_count(
        self,
        states: Any,
        unroll: Unroll,
        losses: Any,
        total: Callable[[Tree], Tree] = lambda sums: sums,
    ) -> Any:
        """Learns, and adds the metrics to their sums since the last report."""
        states, policies, metrics = self.teams.learn(states, unroll, total)
        return states, policies, jax.tree.map(jnp.add, losses, metrics)

    def prepared(self, batch: Batch) -> Unroll:
        """The batch on the learner's devices; on a CPU the arrays are the batch's own memory."""
        unroll = self.unroll(batch)
        return jax.device_put(unroll) if self.sharded is None else self.sharded.place(unroll)

    def unroll(self, batch: Batch) -> Unroll:
        """What a batch says to an algorithm, in the batch's own memory where it can be."""
        steps = batch.timesteps
        truncated = steps.truncated
        if steps.lost.any():
            # What led to a lost row did not happen: the episode ends with the row before. In a
            # copy, as to the statistics that episode has no end.
            truncated = truncated.copy()
            agents = len(self.teams.specs.agents)
            truncated[:-1] |= np.repeat(steps.lost[1:], agents, axis=1)
        return Unroll(
            observation=steps.observation,
            reward=steps.reward,
            terminated=steps.terminated,
            truncated=truncated,
            action=batch.action,
            log_prob=batch.log_prob,
            memory={name: batch.memory[name] for name in self.teams.members},
            version=batch.version,
            slot=self._slots,
        )

    def learn(
        self,
        batch: Batch,
        unroll: Unroll | None = None,
        meanwhile: Callable[[Callable[[], bool]], None] = lambda learned: None,
    ) -> None:
        """Improves every policy with one batch; returns when its memory may be written again.

        Args:
            batch: Of the next update.
            unroll: The same on the learner's device, if it is there already.
            meanwhile: Called while the device computes, with what tells whether it is done.
        """
        before = time.perf_counter()
        called = self._learn(self.states, unroll or self.prepared(batch), self.progress.losses)
        self.states, policies, losses = called
        self.progress.count_batch(batch)
        newest = jax.tree.leaves(policies)[0]
        meanwhile(newest.is_ready)
        jax.block_until_ready(policies)
        self.count_update(policies, losses)
        self.progress.spend(self.worker, "learn", time.perf_counter() - before)

    def count_update(self, policies: Mapping[str, Policy], losses: Metrics) -> None:
        """Counts an update that has led to these policies, and to these sums of losses."""
        self.progress.count_update(losses)
        if self.league is not None:
            self.league.advance(self.progress.updates, policies)
        self.policies = self.teams.acting(policies, self.opponents)

    @property
    def opponents(self) -> Opponents | None:
        """The past versions that play; None where none does."""
        return None if self.league is None else self.league.playing

    def state(self) -> dict[str, Tree]:
        """Gives what `restore` needs."""
        learners = {name: state._asdict() for name, state in self.states.items()}
        league = {} if self.league is None else {"opponents": self.league.state()}
        return {"learners": learners, **self.progress.state(), **league}

    def restore(self, tree: Mapping[str, Tree]) -> None:
        """Goes on from a saved state, in the next epoch."""
        self.states = {
            name: state._replace(**jax.device_put(tree["learners"][name]))
            for name, state in self.states.items()
        }
        self.progress.restore(tree)
        if self.league is not None:
            self.league.restore(self.progress.updates, tree.get("opponents", {}))
        self.policies = self.teams.acting(self.teams.policies(self.states), self.opponents)
