"""An algorithm: a configuration, and pure functions bound to the specs of an environment.

Nothing here knows a process, a socket, a device or a plan.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

from srl.algorithms.actor import Actor
from srl.algorithms.distributions import Distribution
from srl.algorithms.frames import FrameStack
from srl.algorithms.minibatches import Minibatches
from srl.algorithms.normalization import ObservationNormalizer, ScaledBytes
from srl.algorithms.privileged import expect_may_see_more
from srl.algorithms.returns import where_rows
from srl.core.errors import PlanError, UserError
from srl.core.lazy import jax, jnp
from srl.core.schedule import Schedule
from srl.core.settings import (
    Range,
    Settings,
    ZeroToOne,
    alternatives,
    annotations_of,
    expect_settings,
    ranges,
)
from srl.core.types import Array, Decision, Metrics, Policy, Specs, Timestep, Tree, Unroll
from srl.dataflow.graph import Graph
from srl.dataflow.loop import Loop
from srl.networks import AutoNetwork, Network

Total = Callable[[Tree], Tree]
"""An all-reduce: adds up sums over slots, of all replicas. With one learner it gives its argument
back."""
Rewards = Literal["usual", "raw", "sign", "clip"]  # see Algorithm.rewards


class State(Protocol):
    """All that learning changes, and so all that a checkpoint of a learner holds.

    An algorithm's state is a NamedTuple of these fields and others.
    """

    @property
    def params(self) -> Tree:
        """The parameters of all networks."""
        ...

    @property
    def optimizer(self) -> Tree:
        """The optimizer's state."""
        ...

    @property
    def key(self) -> Array:
        """Raw data of the random key that learning draws with; it never changes."""
        ...

    @property
    def n(self) -> Array:
        """int32 [], finished calls of `learn`."""
        ...

    def _replace(self, **fields: Any) -> Self: ...

    def _asdict(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Algorithm(Settings):
    """Base of the algorithm configurations.

    A setting declares its range: `epochs: Annotated[int, Range(1)] = 10`. A setting of the type
    `srl.core.schedule.Adjustable` may change while a run goes, by a hook or a Schedule: learning
    computes with it, but has no branch in Python for it.
    """

    unroll_length: Annotated[int, Range(1, 2**31 - 1)] = 32
    """Steps of each unroll, all with one version of the policy."""
    discount: ZeroToOne = 0.99
    """Weight of a reward one step later."""
    network: Network = field(default_factory=AutoNetwork)
    """The trained network; the observation decides the default."""
    normalize_observations: bool = True
    """Standardise observations by running statistics."""
    scaled_bytes: ScaledBytes = field(default="pictures", kw_only=True)
    """The uint8 observations to divide by 255: pictures, which are Boxes from 0 to 255 of at least
    32 by 32 pixels; all; or none. Others are plain numbers."""
    frame_stack: Annotated[int, Range(0, 256)] = field(default=0, kw_only=True)
    """The number of last observations that the policy sees; memory and replays hold each once. 0
    takes 4 in atari:..., otherwise 1."""
    rewards: Rewards = field(default="usual", kw_only=True)
    """The rewards to learn from: raw, their signs, or clipped at -1 and 1. usual is sign in
    atari:..., otherwise raw. Reported returns are of raw rewards."""
    reward_scale: Annotated[float, Range(1e-9, 1e9)] = field(default=1.0, kw_only=True)
    """The factor of these rewards. `prepare` gets them scaled, and stacked observations
    (`preprocessing.bound`)."""
    privileged: tuple[str, ...] = field(default=(), kw_only=True)
    """The keys of a Dict observation that only values and critics see, such as state; nested ones
    as scene/state. A trained policy does not need them."""

    values_see_more: ClassVar[bool] = False
    """True if a value or a critic may see more than the policy."""
    learns_state_value: ClassVar[bool] = False
    """True if the algorithm learns a policy and a value of states, which may share layers."""

    def loop(self, run: Loop) -> None:
        """One update: unroll the newest policy, then learn from what it did.

        This is the whole training loop of an on-policy algorithm. Its graph is traced from here.
        """
        policy = run.latest()

        def interact(timestep: Timestep, memory: Tree) -> tuple[Timestep, Tree, Any]:
            decision = run.act(policy, timestep, memory)
            following = run.step(decision.action)
            return following, decision.memory, run.collect(timestep, decision)

        unroll = run.unroll(interact, self.unroll_length)
        run.learn(run.gather(unroll))

    @property
    def limits(self) -> dict[str, tuple[float, ...]]:
        """The least and, where there is one, the largest value of settings."""
        found = ranges(type(self)).items()
        return {name: limits[: 1 + math.isfinite(limits.largest)] for name, limits in found}

    @property
    def adjustable(self) -> tuple[str, ...]:
        """The settings that may change while a run goes, such as learning_rate."""
        return adjustable_settings(type(self))

    def validate(self) -> None:
        """Raises UserError where a setting is out of its limits, or the algorithm not complete."""
        self.instance.expect_complete()
        for name in (item.name for item in fields(self)):
            value, limits = getattr(self, name), self.limits.get(name, (-math.inf,))
            if isinstance(value, Schedule) and name in self.adjustable:
                value.validate(f"algorithm.{name}", limits)
            elif isinstance(value, Schedule):
                can = " and ".join(self.adjustable) or "no setting"
                raise UserError(
                    f"algorithm.{name} is a schedule; of {type(self).__name__}, {can} can change "
                    "while a run goes"
                )
        expect_settings("algorithm", self)
        expect_may_see_more(self)
        if self.network.shared and not self.learns_state_value:
            raise UserError(
                f"network.shared=True: {type(self).__name__} has no policy and value that could "
                "share layers; leave it out, or take PPO, APPO or IMPALA"
            )

    def expect_fit(self, graph: Graph) -> None:
        """Raises PlanError where a loop asks for what the algorithm's functions do not have."""
        name = self.instance.__name__
        if "teach" in graph.nodes and self.instance.teach is Instance.teach:
            raise PlanError(
                f"the loop calls run.teach(...), and {name} has no `teach`; "
                "docs/write_an_algorithm.md shows one"
            )
        lengths = sorted({unrolled.length for unrolled in graph.unrolls})
        if len(lengths) > 1 and self.instance.has_replay():
            raise PlanError(
                f"the loop has unrolls of {' and '.join(map(str, lengths))} steps, and the replay "
                f"of {name} holds unrolls of one length; give all unrolls the same length"
            )

    def settled(self, num_envs: int = 64) -> Self:
        """Gives the settings with numbers that were left open, for environments stepped at once."""
        return self

    def at_start(self) -> Self:
        """Gives the settings with the first values of schedules in place of these.

        A learner follows the schedules (`Instance.adjusted`). A learning rate that has one is not
        annealed as well.
        """
        values = {name: getattr(self, name) for name in self.adjustable}
        scheduled = {n: x.value(0.0) for n, x in values.items() if isinstance(x, Schedule)}
        if "learning_rate" in scheduled and hasattr(self, "anneal"):
            scheduled["anneal"] = False
        return replace(self, **scheduled) if scheduled else self

    @property
    def saves_replay(self) -> bool:
        """True if checkpoints hold the replay, where there is one."""
        return True

    def remarks(self, report: Mapping[str, Any]) -> list[str]:
        """Gives lines about a report's metrics, such as `loss/grad_norm`; each is shown once."""
        return []

    @property
    def instance(self) -> type[Instance]:
        """The class of the algorithm's functions.

        Raises:
            UserError: If the algorithm does not give one.
        """
        raise UserError(
            f"the algorithm {type(self).__name__} has no property `instance`, which gives the "
            "class of its functions; docs/write_an_algorithm.md shows one"
        )

    def bind(self, specs: Specs, updates: int | None = None, slots: int = 0) -> Instance:
        """Gives the functions for one trained policy.

        Args:
            specs: What the policy's agents observe and do.
            updates: How many calls of `learn` the run makes; None where that is not known, and then
                nothing is annealed.
            slots: How many slots of the run learn this policy, wherever they are; 0 where nothing
                is learned.

        Raises:
            UserError: If a setting is out of its limits, or the algorithm is not complete.
        """
        self.validate()
        return self.instance(self.settled().at_start(), specs, updates, slots)


@functools.cache
def adjustable_settings(kind: type[Algorithm]) -> tuple[str, ...]:
    """The settings of an algorithm that may change while a run goes."""
    hints = annotations_of(kind).items()
    return tuple(name for name, own in hints if any(Schedule in alternatives(h) for h in own))


@dataclass(frozen=True)
class Instance(ABC):
    """The pure functions of one trained policy, over B slots.

    One call of `learn` is `prepare`, some calls of `gradient_step`, and `finish`. Replicas hold
    some of the slots each, and meet in `total` alone, which adds up sums over slots.
    """

    config: Algorithm
    specs: Specs
    updates: int | Array | None = None
    """The number of updates in the run, if known; traced in `learn`, which serves any number."""
    slots: int = 0
    """The number of slots in the run that learn the policy; 0 without learning."""
    stack: FrameStack | None = None
    """The stacking of observations, if any; a replay need not hold them stacked."""

    @classmethod
    def expect_complete(cls) -> None:
        """Raises UserError where the class lacks what every algorithm has to have."""
        acts = cls.actor is not Instance.actor or cls.act is not Instance.act
        missing = sorted(cls.__abstractmethods__ | (set() if acts else {"actor"}))
        if missing:
            raise UserError(
                f"the algorithm's {cls.__name__} has no {', '.join(missing)}: write "
                f"{'it' if len(missing) == 1 else 'them'}; docs/write_an_algorithm.md shows how"
            )

    def adjusted(self, settings: Mapping[str, Array]) -> Self:
        """Gives the same functions with other settings, `updates` among them; or traced ones."""
        changed = dict(settings)
        updates = changed.pop("updates", self.updates)
        return replace(self, config=replace(self.config, **changed), updates=updates)

    @property
    def division(self) -> Minibatches:
        """The division of a batch for the gradient steps; by default one takes the whole batch."""
        return Minibatches(epochs=1, per_epoch=1, chunk=None)

    @property
    def chunk(self) -> int:
        """Steps between two memories that an unroll keeps; 0 keeps that before its first row."""
        return self.division.chunk or 0

    @property
    def gradient_steps(self) -> int:
        """Calls of `gradient_step` in one `learn`."""
        return self.division.gradient_steps

    @cached_property
    def normalizer(self) -> ObservationNormalizer:
        """The normaliser of observations into inputs of networks."""
        config = self.config
        return ObservationNormalizer(
            self.specs.observation,
            running=config.normalize_observations,
            scaled_bytes=config.scaled_bytes,
            privileged=tuple(config.privileged),
            by_task=(len(self.specs.tasks),) if self.specs.tasks else (),
        )

    # Acting.

    @abstractmethod
    def init(self, key: Array) -> Any:
        """Draws a `State` to start from."""
        raise NotImplementedError

    @abstractmethod
    def policy(self, state: Any) -> Policy:
        """Gives what acting needs of the state.

        These may be the state's own arrays, which the next update donates: outside of compiled
        functions copy them.
        """
        raise NotImplementedError

    @cached_property
    def actor(self) -> Actor:
        """The functions that act; each algorithm gives them."""
        raise NotImplementedError

    def initial_memory(self, batch: int) -> Tree:
        """Gives the memory of `batch` slots at the start of an episode; () for none."""
        return self.actor.initial_memory(batch)

    def memory_after(self, memory: Tree, ended: Array) -> Tree:
        """Gives the memory for the rows after these: it starts anew where an episode ended.

        Args:
            memory: [B, ...], as acting on these rows left it.
            ended: bool [B].
        """
        return where_rows(ended, self.initial_memory(len(ended)), memory)

    def act(
        self, policy: Policy, observation: Tree, memory: Tree, keys: Array, slot: Array
    ) -> Decision:
        """Draws an action for each slot.

        Args:
            policy: From `policy`.
            observation: [B, ...].
            memory: [B, ...], of these slots.
            keys: [B], a random key for each slot.
            slot: int32 [B], which of the policy's slots in the run these are: some explore more
                than others.
        """
        distribution, memory = self.actor.distribution(policy, observation, memory, slot)
        action, log_prob = distribution.sample_and_log_prob(keys)
        return Decision(action, log_prob, memory)

    def act_greedy(self, policy: Policy, observation: Tree, memory: Tree) -> Decision:
        """Takes the most probable action for each slot, as evaluation does unless it draws."""
        distribution, memory = self._distribution(policy, observation, memory)
        action = distribution.mode()
        return Decision(action, distribution.log_prob(action), memory)

    def action_outputs(self, policy: Policy, observation: Tree, memory: Tree) -> dict[str, Array]:
        """Gives the numbers that the actions follow from, [B, ...] by name.

        Such as the `logits` of a choice, the `mean` and `log_std` of a normal distribution, or the
        `action_values`.
        """
        return self._distribution(policy, observation, memory)[0].parameters()

    def _distribution(
        self, policy: Policy, observation: Tree, memory: Tree
    ) -> tuple[Distribution, Tree]:
        """The distributions where it does not matter which slots these are."""
        slot = jnp.zeros(jax.tree.leaves(observation)[0].shape[:1], jnp.int32)
        return self.actor.distribution(policy, observation, memory, slot)

    def teach(self, observation: Tree) -> Tree:
        """Gives a teacher's advice on observations [B, ...]: arrays [B, ...], for the unroll.

        A loop that calls `run.teach` needs it. The teacher's parameters are the instance's own and
        never change.
        """
        raise NotImplementedError

    @property
    def env_action(self) -> Callable[[Tree], Tree]:
        """The function that gives what the simulator takes for actions; it needs no JAX."""
        return self.actor.env_action

    # Learning.

    def slots_of_block(self, length: int) -> int:
        """Gives the number of neighbouring slots that unrolls of a length are learned from with."""
        return self.division.slots_of_block(length)

    @classmethod
    def has_replay(cls) -> bool:
        """Tells if the algorithm has a replay, which holds unrolls of one length."""
        return cls.empty_replay is not Instance.empty_replay

    def empty_replay(self, unroll: Unroll) -> Tree:
        """Gives a replay before the first unroll, from an unroll of the slots that it is for.

        Its arrays have the slots as their third axis, so that they can be divided by slots. Of a
        `srl.algorithms.replay.Replay` in it checkpoints write the blocks that are new, of all else
        the whole.
        """
        return ()

    def prepare(
        self, state: Any, replay: Tree, unroll: Unroll, total: Total
    ) -> tuple[Any, Tree, Any]:
        """Computes all that does not change between the gradient steps of one update.

        Args:
            state: What was learned before.
            replay: Of the slots here; () without one.
            unroll: The slots of the batch that are here.
            total: Adds sums to those of the slots that are elsewhere.

        Returns:
            The state, the replay with the unroll in it, and the batch for the gradient steps.
        """
        return state, replay, unroll

    @abstractmethod
    def gradient_step(
        self, state: Any, batch: Any, step: Array, total: Total
    ) -> tuple[Any, Metrics]:
        """Takes a gradient step.

        Args:
            state: After the step before.
            batch: From `prepare`.
            step: int32 [], which of the `gradient_steps` this is.
            total: Adds sums to those of the slots that are elsewhere.

        Returns:
            The state, and metrics.
        """
        raise NotImplementedError

    def finish(
        self, state: Any, replay: Tree, batch: Any, metrics: Metrics
    ) -> tuple[Any, Tree, Metrics]:
        """Counts the update.

        Args:
            state: After the last gradient step.
            replay: From `prepare`.
            batch: From `prepare`.
            metrics: Of the gradient steps, [gradient_steps, ...].

        Returns:
            The state, the replay, and the update's metrics, [] each: by default the means.
        """
        return state._replace(n=state.n + 1), replay, jax.tree.map(jnp.mean, metrics)

    def learn(
        self, state: Any, unroll: Unroll, replay: Tree = (), total: Total = lambda sums: sums
    ) -> tuple[Any, Tree, Metrics]:
        """Improves the policy with one batch; gives the new state and replay, and metrics."""
        learned = learn({"": state}, {"": replay}, {"": unroll}, {"": self}, total)
        return tuple(part[""] for part in learned)  # type: ignore[return-value]


def learn(
    states: Mapping[str, Any],
    replays: Mapping[str, Tree],
    unrolls: Mapping[str, Unroll],
    instances: Mapping[str, Instance],
    total: Total,
) -> tuple[dict[str, Any], dict[str, Tree], dict[str, Metrics]]:
    """Improves several policies, by name, with one batch each.

    They have the same number of gradient steps, and take each of them at the same time.
    """
    states, replays, batches = ({n: x[n] for n in instances} for x in (states, replays, unrolls))
    for name, instance in instances.items():
        prepared = instance.prepare(states[name], replays[name], batches[name], total)
        states[name], replays[name], batches[name] = prepared

    def step(states: dict[str, Any], number: Array) -> tuple[dict[str, Any], dict[str, Metrics]]:
        taken = {
            name: instance.gradient_step(states[name], batches[name], number, total)
            for name, instance in instances.items()
        }
        return {n: state for n, (state, _) in taken.items()}, {n: m for n, (_, m) in taken.items()}

    steps = jnp.arange(next(iter(instances.values())).gradient_steps)
    states, metrics = jax.lax.scan(step, states, steps)
    for name, instance in instances.items():
        finished = instance.finish(states[name], replays[name], batches[name], metrics[name])
        states[name], replays[name], metrics[name] = finished
    return states, replays, metrics
