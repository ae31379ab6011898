"""The plan `fused`: the training loop as one XLA program, a call of which is one update."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from srl.config.experiment import Experiment
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.tree import map_tree
from srl.core.types import Array, Decision, Metrics, Specs, Timestep, Tree, Unroll
from srl.dataflow.graph import Unrolled
from srl.dataflow.loop import Interact
from srl.loop.binding import batch_specs, run_key, unroll_of
from srl.loop.devices import program_device
from srl.loop.learning.adjustable import Settings
from srl.loop.learning.learner import Learner
from srl.loop.policy_set import PolicySet
from srl.loop.projection import Calls, changed
from srl.loop.seeds import environment_seed
from srl.loop.stepping.local import LocalEnvironments
from srl.loop.stepping.program_pool import ProgramPool
from srl.loop.stepping.traced import Interaction, Steps, TracedSteps
from srl.loop.training import Training
from srl.streams.batch import Batch

_Given = TypeVar("_Given")


def _where_it_runs(method: Callable[..., _Given]) -> Callable[..., _Given]:
    """Has a method of a `Training` make its arrays where the program runs."""

    @functools.wraps(method)
    def there(self: Training, *arguments: Any) -> _Given:
        with program_device(self.experiment.env):
            return method(self, *arguments)

    return there


class Fused(Training):
    """Trains by one compiled program, which is the loop's projection that has everything."""

    environments: CompiledLoop

    def __init__(self, experiment: Experiment) -> None:
        super().__init__(experiment, CompiledLoop(experiment, num_groups=1))

    def _compile(self, batches: Sequence[Batch]) -> CompiledLoop:
        self.environments.compile()
        return self.environments

    start = _where_it_runs(Training.start)
    update = _where_it_runs(Training.update)
    begin_from = _where_it_runs(Training.begin_from)
    restore = _where_it_runs(Training.restore)
    restore_replays = _where_it_runs(Training.restore_replays)


class CompiledLoop(LocalEnvironments):
    """Both halves of the loop and the loop itself; the native pool is stepped from inside it.

    All environments are one group. Random keys and semantics are those of the plain loop, and so is
    the state that it saves.
    """

    def make(self) -> Specs:
        """Makes the pool, if that is still to be done."""
        if not self._pools:
            super().make()
            try:
                self._environments = ProgramPool(self.experiment, *self._pools)
            except UserError as error:
                raise UserError(
                    f"the plan fused: {error}; choose another, such as --plan inline"
                ) from None
        return self._pools[0].specs

    def prepare(self, learner: Learner, alive: Callable[[], None]) -> list[Batch]:
        """Takes the learner; batches are the program's own."""
        experiment = self.experiment
        self._learner = learner
        self._array_specs = batch_specs(experiment, learner.policy_set, experiment.num_envs)
        learner.expect_room_of(self._array_specs)
        return []

    def compile(self) -> None:
        """Compiles the program, for the first episodes."""
        learner = self._learner
        self._key = run_key(self.experiment)
        self._version = jnp.array(learner.progress.version)
        self.reset("environments")
        empty = map_tree(lambda f: np.zeros(f.shape, f.dtype), self._array_specs[0])
        example = learner.unroll(empty)
        learner.replays.expect_room(example)
        learner.replays.forget(example)
        run = jax.jit(self._run)  # so that it is traced once
        *_, metrics = jax.eval_shape(run, *self._operands()[:-1])
        zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), metrics)
        learner.progress.begin_losses(learner.placed(zeros))
        self._compile(run)

    def _compile(self, run: Any) -> None:
        """Compiles the program for the environments of the present lesson."""

        def program(*operands: Any) -> Any:
            *given, losses = operands
            *changed, metrics = run(*given)
            return *changed, jax.tree.map(jnp.add, losses, metrics)

        # What a pass changes is written over in place. Losses are not: see Learner.
        donating = jax.jit(program, donate_argnums=(0, 1, 2))
        self._program = donating.lower(*self._operands()).compile()
        self._compiled_for = self._environments.lesson

    def _follow_lesson(self) -> None:
        """Begins the learner's lesson, where it is another; environments in JAX are compiled."""
        lesson = self._learner.progress.lesson
        if lesson != self._environments.lesson:
            memory = self._learner.policy_set.initial_memory(self.experiment.num_envs)
            self._environments.enter(lesson, memory)
        if lesson != self._compiled_for:
            self._compile(jax.jit(self._run))

    def begin(self) -> None:
        """Does nothing: the first episodes have begun."""

    @property
    def awaited(self) -> str:
        """The event that it waits for now, in words."""
        return "the compiled update, in which environments step"

    def _operands(self) -> tuple[Any, ...]:
        learner = self._learner
        learned = learner.replays.buffers, self._environments.now, learner.states
        # The key is an operand, so that runs of other seeds find the same compiled program.
        given = learner.past, self._version, self._key, learner.setting_operands
        return *learned, *given, learner.progress.losses

    def _run(
        self,
        replays: Any,
        acting: Interaction,
        states: Any,
        opponents: Any,
        version: Array,
        key: Array,
        settings: Settings,
    ) -> tuple[Any, ...]:
        """One update; also gives the timesteps after the actions, [T, ...], policies, metrics."""
        policy_set = self._learner.policy_set.adjusted(settings)
        parts = policy_set, self._environments.xla, key, replays, acting, states, opponents, version
        run = TracedLoop(*parts)
        self.experiment.algorithm.loop(run)
        traced = self.experiment.graph
        if (tuple(run.unrolls), run.learns) != (traced.unrolls, traced.learns):
            raise changed(
                f"it had {_summary(traced.unrolls, traced.learns)}, and has "
                f"{_summary(run.unrolls, run.learns)} as it is compiled"
            )
        following = run.replays, run.acting, run.states, run.version
        return *following, run.timesteps, run.policies, run.metrics

    def run(self) -> None:
        """Runs one pass of the loop."""
        before = time.perf_counter()
        learner = self._learner
        self._follow_lesson()
        with self._environments.errors():
            done = self._program(*self._operands())
            learner.replays.buffers, self._environments.now, learner.states, *rest = done
            self._version, timesteps, policies, losses = rest
            followed = jax.device_get(timesteps)
        progress = learner.progress
        for unroll in followed:
            progress.count_steps(unroll)
        for _ in range(self.experiment.graph.learns):
            learner.count_update(policies, losses)
        progress.spend("trainer", "update", time.perf_counter() - before)

    # ---- between two updates ----

    def reset(self, salt: str) -> None:
        """Starts episodes whose seeds follow from the run's and from `salt`."""
        memory = self._learner.policy_set.initial_memory(self.experiment.num_envs)
        self._environments.reset(environment_seed(self.experiment.seed, salt), memory)

    def states(self) -> dict[int, Tree]:
        """The state of the one group."""
        return {0: self._environments.state()}

    def restore(self, states: Mapping[int, Tree]) -> None:
        """Goes on from a state of one group, or anew from one of several."""
        self._version = jnp.array(self._learner.progress.version)
        if len(states) != 1:
            self.resumes_exactly = False
            self.reset(f"environments {self._learner.progress.epoch}")
            return
        self._environments.restore(states[0])


def _summary(unrolls: Sequence[Unrolled], learns: int) -> str:
    each = [f"{unroll.length} steps of {', '.join(unroll.calls)}" for unroll in unrolls]
    return f"unrolls of {' and of '.join(each)}, and {learns} calls of learn"


class TracedLoop(Calls):
    """The values that flow through a loop while it is traced, each replaced by its successor."""

    def __init__(
        self,
        policy_set: PolicySet,
        steps: Steps,
        key: Array,
        replays: Any,
        acting: Interaction,
        states: Tree,
        opponents: Any,
        version: Array,
    ) -> None:
        """Begins where the last pass ended; the version is int32 [2]."""
        super().__init__()
        self._policy_set = policy_set
        self._opponents = opponents
        self.version = version
        slots = jnp.arange(acting.timestep.reward.size, dtype=jnp.int32)
        self._steps = self._taking = TracedSteps(policy_set, steps, key, slots, acting)
        self.states, self.replays = states, replays
        self.metrics: Metrics = {}
        self.policies: Any = {}
        self.unrolls: list[Unrolled] = []
        self.learns = 0
        self.timesteps: tuple[Any, ...] = ()
        """The timesteps that followed each unroll's actions, [T, ...]; without observations."""

    @property
    def acting(self) -> Interaction:
        """The environments' state at this point of the pass."""
        return self._steps.now

    def latest(self) -> Any:
        """The policies as they are in the pass by now."""
        return self._policy_set.acting(self._policy_set.policies(self.states), self._opponents)

    def act(self, policy: Any, timestep: Timestep, memory: Tree) -> Decision:
        """Decides, at the next clock."""
        self._called.append("act")
        return self._steps.act(policy, timestep, memory)

    def unroll(self, interact: Interact, length: int) -> Unroll:
        """Traces a step once, for a loop of the compiler's."""
        rows, decision, memory = self._steps.unroll(interact, length, self._called.clear)
        self.unrolls.append(Unrolled(length, self.learns, tuple(self._called)))
        followed = jax.tree.map(lambda x: x[1:], rows._replace(observation=()))
        self.timesteps = (*self.timesteps, followed)
        version = jnp.tile(self.version, (length, 1, 1))
        slot = jnp.arange(decision.log_prob.shape[1], dtype=jnp.int32)
        return unroll_of(rows, decision, self._policy_set.own(memory), version, slot)

    def gather(self, unroll: Unroll) -> Unroll:
        """Gives the unroll, which is of all environments already."""
        return unroll

    def learn(self, batch: Unroll) -> None:
        """Learns, and goes on with the next version."""
        self.learns += 1
        learned = self._policy_set.learn(self.states, self.replays, batch)
        self.states, self.replays, self.policies, metrics = learned
        self.metrics = jax.tree.map(jnp.add, self.metrics, metrics) if self.metrics else metrics
        self.version = self.version + jnp.array([0, 1], jnp.int32)
