"""The learner's half of the training loop: parameters, and how a batch changes them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from srl.config.experiment import Experiment
from srl.config.fixed import Fixed
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.tree import map_tree
from srl.core.types import Metrics, Policy, Specs, Tree, Unroll
from srl.loop.binding import bind_policy_set, unroll_of
from srl.loop.devices import local_devices, several_devices
from srl.loop.learning.adjustable import Adjustable, Settings
from srl.loop.learning.beginning import begun_from
from srl.loop.learning.curriculum import Curriculum
from srl.loop.learning.histograms import histograms_of, histograms_of_actions
from srl.loop.learning.progress import Progress
from srl.loop.learning.replay_files import tree_bytes
from srl.loop.learning.replays import Replays
from srl.loop.learning.replicas import Sharded, first_copy
from srl.loop.policy_set import PolicySet
from srl.loop.projection import Gathered
from srl.streams.batch import Batch
from srl.streams.batch import expect_room as expect_batches
from srl.tracking.tracker import Histogram

logger = logging.getLogger(__name__)

_INIT = 0  # salt that the run's random key is folded with for parameters


class Learner:
    """The node `learn`, compiled to one call, and the counts of a run."""

    def __init__(
        self,
        experiment: Experiment,
        specs: Specs,
        worker: str = "trainer",
        slots: range | None = None,
        policy_set: PolicySet | None = None,
    ) -> None:
        """Draws parameters.

        By default the slots of its batches are all of the run's, and the policies are bound here.
        """
        self.experiment, self.worker = experiment, worker
        self.policy_set = policy_set = policy_set or bind_policy_set(experiment, specs)
        self.progress = Progress(specs, policy_set.members, experiment.action_repeat)
        self.progress.busy[worker].begin(threads=1)
        if lessons := experiment.curriculum:
            self.progress.curriculum = Curriculum(lessons, self.progress.episodes.report())
        root = jax.random.key(experiment.seed)
        self.sharded: Sharded | None = None
        """`learn` over several devices, in this process or with other replicas; None for one."""
        self.states = policy_set.init(jax.random.fold_in(root, _INIT))
        """All that learning changes, by policy; each update donates them to the next ones."""
        self.settings = Adjustable(experiment, self.progress)
        self.policies: Mapping[str, Any] = policy_set.acting(self._present())
        """The acting policies of version `progress.version`, in arrays that never change."""
        self.parameters = {
            name: sum(x.size for x in jax.tree.leaves(state.params))
            for name, state in self.states.items()
        }
        """Numbers in each policy's networks."""
        self.agents = {
            name: tuple(specs.agents[i] for i in policy_set.members[name]) for name in self.states
        }
        """The agents that follow each policy."""
        self._slots = np.asarray(
            slots or range(experiment.num_envs * len(specs.agents)), dtype=np.int32
        )
        self.replays = Replays(policy_set, self._slots)
        self.meanwhile: Callable[[Callable[[], bool]], None] = lambda learned: None
        """Called while the device computes, with a function that gives whether it is done."""
        self._traced = jax.jit(self._adjusted_learn)  # so that it is traced once
        # Losses are not donated: a report and a checkpoint read them, and they are a few numbers.
        self._learn: Callable[..., Any] = jax.jit(self._learn_and_count, donate_argnums=(0, 1))
        self._actions: Tree | None = None  # of the last batch, where histograms are made

    def compile(self, batches: Sequence[Batch]) -> None:
        """Runs `learn` on empty memory, so that no update waits for a compiler.

        Args:
            batches: Of a pass; those of one length compile once.
        """
        example = self.unroll(batches[0])
        replays = self.replays.expect_room(example)
        operands = self.states, replays, example, self.setting_operands
        *_, losses = jax.eval_shape(self._traced, *operands)
        if several_devices() and self._divisible(batches):
            self._spread(Sharded(self._learn_and_count, example, replays))
        zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), losses)
        self.progress.begin_losses(self.placed(zeros))
        self.replays.forget(example)
        for batch in {len(batch.log_prob): batch for batch in batches}.values():
            _, *others = self._operands(self.prepared(batch))
            states = self.placed(self._host_states())  # a copy: it is donated
            if self.sharded is not None:
                self.sharded.compile(states, *others)
            _, self.replays.buffers, *_ = jax.block_until_ready(self._learn(states, *others))
        self.replays.forget(example)

    def _spread(self, sharded: Sharded) -> None:
        """Learns on several devices from now on: the states go there, and stay there."""
        states = self._host_states()
        self._learn = self.sharded = sharded
        self.states = self.placed(states)
        self.settings.place_again()
        self.replays.spread(sharded)

    def _host_states(self) -> Any:
        return jax.tree.map(np.array, self.states)

    def placed(self, tree: Tree) -> Any:
        """A tree of NumPy's arrays on the learner's devices, the whole on each."""
        return jax.device_put(tree) if self.sharded is None else self.sharded.replicated(tree)

    def _present(self) -> Mapping[str, Policy]:
        """The policies as the states have them, in arrays of their own on the device that acts."""
        states = self.states if self.sharded is None else first_copy(self.states)
        policies = self.policy_set.policies(states)
        return jax.device_put(self._with_settings(policies), may_alias=False)

    def _with_settings(self, policies: Mapping[str, Policy]) -> dict[str, Policy]:
        """Policies with the settings that acting needs as they are in the present pass."""
        settings = self.settings.now

        def present(policy: Policy) -> Policy:
            own = {name: jnp.float32(settings[name]) for name in policy.settings}
            return policy._replace(settings=own) if own else policy

        return {name: present(policy) for name, policy in policies.items()}

    def _operands(self, unroll: Unroll) -> tuple[Any, ...]:
        """Gives the operands of learning, all of them on the learner's devices."""
        return (
            self.states,
            self.replays.buffers,
            unroll,
            self.progress.losses,
            self.setting_operands,
        )

    def expect_room_of(self, array_specs: Sequence[Batch]) -> None:
        """Raises UserError if memory would not hold a pass' unrolls and what is learned from."""
        expect_batches(array_specs)
        if local_devices()[0].platform != "cpu":  # which learns in memory of its own
            return
        longest = max(array_specs, key=lambda spec: spec.log_prob.shape[0])
        # One number repeated, which takes no memory.
        view = map_tree(lambda f: np.broadcast_to(np.zeros((), f.dtype), f.shape), longest)
        example = self.unroll(view)
        self.replays.expect_room(example)
        prepared = jax.eval_shape(self.policy_set.prepared, self.states, example)
        batches = [batch for _, batch in prepared.values()]
        expect_batches(array_specs, tree_bytes(batches))

    def _divisible(self, batches: Sequence[Batch]) -> bool:
        """Tells if the batches' environments can be divided among this process' devices.

        Raises:
            UserError: If they cannot, and the other replicas count on it.
        """
        envs, devices = batches[0].timesteps.lost.shape[1], len(local_devices())
        period = self.policy_set.period
        if envs % (devices * period):
            text = f"{envs} environments cannot be divided among {devices} devices"
            if period > 1:
                text += f" so that past matches are spread alike, which they are every {period}"
        else:
            lengths = {len(batch.log_prob) for batch in batches}
            text = self.policy_set.cut_block(envs // devices, lengths)
        if not text:
            return True
        if jax.process_count() > 1:
            raise UserError(f"{text} of each learner; change --num-envs")
        logger.warning("%s: one of them learns alone; change --num-envs", text)
        return False

    def _learn_and_count(
        self,
        states: Any,
        replays: Any,
        unroll: Unroll,
        losses: Any,
        settings: Settings,
        total: Callable[[Tree], Tree] | None = None,
    ) -> Any:
        """Learns, and adds the metrics to their sums since the last report."""
        operands = states, replays, unroll, settings
        learned = (
            self._traced(*operands) if total is None else self._adjusted_learn(*operands, total)
        )
        *changed, metrics = learned
        return *changed, jax.tree.map(jnp.add, losses, metrics)

    def _adjusted_learn(
        self,
        states: Any,
        replays: Any,
        unroll: Unroll,
        settings: Settings,
        total: Callable[[Tree], Tree] = lambda sums: sums,
    ) -> Any:
        return self.policy_set.adjusted(settings).learn(states, replays, unroll, total)

    def prepared(self, batch: Batch) -> Unroll:
        """The batch on the learner's devices; on a CPU the arrays are the batch's own memory."""
        unroll = self.unroll(batch)
        return jax.device_put(unroll) if self.sharded is None else self.sharded.place(unroll)

    def unroll(self, batch: Batch) -> Unroll:
        """A batch as an algorithm's unroll, in the batch's own memory where it can be."""
        steps = batch.timesteps
        if steps.lost.any():
            # What led to a lost row did not happen: the episode ends with the row before. In a
            # copy, as to the statistics that episode has no end.
            truncated = steps.truncated.copy()
            agents = len(self.policy_set.specs.agents)
            truncated[:-1] |= np.repeat(steps.lost[1:], agents, axis=1)
            steps = steps._replace(truncated=truncated)
        memory = dict(self.policy_set.own(batch.memory))
        return unroll_of(steps, batch, memory, batch.version, self._slots)

    def learn(self, batch: Gathered) -> None:
        """Improves every policy with one batch; returns when its memory may be written again."""
        before = time.perf_counter()
        batch.unroll = batch.unroll or self.prepared(batch.batch)
        called = self._learn(*self._operands(batch.unroll))
        self.states, self.replays.buffers, policies, losses = called
        if not batch.learned:
            self.progress.count_batch(batch)
        if self.experiment.tracking.histograms:
            self._actions = map_tree(np.copy, batch.batch.action)
        newest = jax.tree.leaves(policies)[0]
        self.meanwhile(newest.is_ready)
        jax.block_until_ready(policies)
        self.count_update(policies, losses)
        self.progress.spend(self.worker, "learn", time.perf_counter() - before)

    def count_update(self, policies: Mapping[str, Policy], losses: Metrics) -> None:
        """Counts an update that has led to these policies, and to these sums of losses."""
        self.progress.count_update(losses)
        if self.progress.updates % self.experiment.graph.learns == 0:
            self.progress.end_pass()
        if self.progress.opponents is not None:
            self.progress.opponents.advance(self.progress.updates, policies)
        self.policies = self.policy_set.acting(self._with_settings(policies), self.past)

    def histograms(self) -> dict[str, Histogram]:
        """Gives histograms of parameters, gradients and actions, each by its name in the state."""
        return {**histograms_of(self.states), **histograms_of_actions(self._actions)}

    def add_opponents(self, folder: Path | None, *, writes: bool = True) -> None:
        """Lets past versions play, where the experiment asks for self-play.

        Args:
            folder: The run's folder, which holds the pool of opponents.
            writes: Whether this learner keeps the pool; one of several replicas does.
        """
        policies = self._present()
        if self.experiment.self_play is not None:
            from srl.loop.self_play.league import League  # which other runs do without

            assert folder is not None, "self-play needs the run's folder"
            league = League(self.experiment, self.policy_set, policies, folder, writes=writes)
            self.progress.opponents = league
        self.policies = self.policy_set.acting(policies, self.past)

    @property
    def past(self) -> Any:
        """The past versions that play; None where none does."""
        opponents = self.progress.opponents
        return None if opponents is None else opponents.playing

    @property
    def setting_operands(self) -> Settings:
        """The settings as operands, on the learner's devices; see `Adjustable.operands`."""
        return self.settings.operands(self.placed)

    def state(self) -> dict[str, Tree]:
        """Gives what `restore` needs."""
        learners = {name: state._asdict() for name, state in self.states.items()}
        opponents = self.progress.opponents
        past = {} if opponents is None else opponents.state()
        return {"learners": learners, **self.progress.state(), **past}

    def _take(self, learners: Mapping[str, Mapping[str, Tree]]) -> None:
        """Takes parts of states, by policy."""
        self.states = {
            name: state._replace(**self.placed(learners[name]))
            for name, state in self.states.items()
        }

    def begin_from(self, source: Fixed) -> list[str]:
        """Begins with the parameters of another run that fit; gives lines about them.

        Raises:
            UserError: As `begun_from`.
        """
        learners, report = begun_from(source, self._host_states())
        self._take(jax.tree.map(np.array, learners))
        policies = self._present()
        if self.progress.opponents is not None:
            self.progress.opponents.begin_with(policies)
        self.policies = self.policy_set.acting(policies, self.past)
        return report

    def restore(self, tree: Mapping[str, Tree]) -> None:
        """Goes on from a saved state, in the next epoch."""
        self._take(tree["learners"])
        self.progress.restore({**tree, "losses": self.placed(tree["losses"])})
        if self.progress.opponents is not None:
            self.progress.opponents.restore(self.progress.updates, tree)
        self.policies = self.policy_set.acting(self._present(), self.past)
