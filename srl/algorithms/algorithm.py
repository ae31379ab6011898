"""An algorithm: a configuration, and pure functions bound to the specs of an environment.

Nothing here knows a process, a socket, a device or a plan.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar

from srl.algorithms.frames import FrameStack
from srl.algorithms.learning_order import learn_in_order
from srl.core.errors import PlanError, UserError, expect_number
from srl.core.lazy import jax, jnp
from srl.core.schedule import Schedule
from srl.core.settings import Settings
from srl.core.types import Array, Decision, Metrics, Policy, Specs, Timestep, Tree, Unroll
from srl.dataflow.graph import Graph
from srl.dataflow.loop import Loop


class State(Protocol):
    """All that learning changes, and so all that a checkpoint of a learner holds.

    An algorithm's state is a NamedTuple that begins with these fields and goes on with its own.
    """

    @property
    def params(self) -> Tree:
        """The parameters of all networks."""
        ...

    @property
    def optimizer(self) -> Tree:
        """The optimizer's state; `gradient` does not use it."""
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


Rewards = Literal["usual", "raw", "sign", "clip"]  # see Algorithm.rewards
S = TypeVar("S", bound=State)
"""The state of an algorithm."""


@dataclass(frozen=True)
class Algorithm(Settings):
    """Base of the algorithm configurations."""

    unroll_length: int = 32
    """Steps that are taken with one version of the policy before they are learned from."""
    discount: float = 0.99
    """Weight of a reward one step later."""
    frame_stack: int = field(default=0, kw_only=True)
    """The number of last observations seen at a time; memory and replays hold each once. 0 leaves
    it to the environment: 4 in atari:..., else 1."""
    rewards: Rewards = field(default="usual", kw_only=True)
    """The rewards to learn from: as they are (raw), their signs, or cut at -1 and 1.
    usual is sign in atari:..., else raw. Returns are reported of rewards as they are."""
    reward_scale: float = field(default=1.0, kw_only=True)
    """The factor of rewards, after that, before they are learned from."""

    limits: ClassVar[Mapping[str, tuple[float, ...]]] = {
        "unroll_length": (1, 2**31 - 1),
        "discount": (0.0, 1.0),
        "frame_stack": (0, 256),
        "reward_scale": (1e-9, 1e9),
    }
    """The least and, where there is one, the largest value of settings."""
    adjustable: ClassVar[tuple[str, ...]] = ()
    """Settings that may change while a run goes, such as learning_rate, by a hook or a Schedule:
    numbers that learning computes with, but for which it has no branch in Python. Their fields have
    the type `srl.core.schedule.Adjustable`."""

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

    def validate(self) -> None:
        """Raises UserError where a setting is out of its limits, or the algorithm not complete."""
        self.instance.expect_complete()
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in set(values) | set(self.limits):
            value, limits = values.get(name), self.limits.get(name)
            if not isinstance(value, Schedule):
                if limits is not None:
                    expect_number(f"algorithm.{name}", getattr(self, name), *limits)
            elif name in self.adjustable:
                value.validate(f"algorithm.{name}", limits or (-math.inf,))
            else:
                can = " and ".join(self.adjustable) or "no setting"
                raise UserError(
                    f"algorithm.{name} is a schedule; of {type(self).__name__}, {can} can change "
                    "while a run goes"
                )

    def expect_fit(self, graph: Graph) -> None:
        """Raises PlanError where a loop asks for what the algorithm's functions do not have.

        Args:
            graph: The loop's.
        """
        name = self.instance.__name__
        if "teach" in graph.nodes and self.instance.teach is Instance.teach:
            raise PlanError(
                f"the loop calls run.teach(...), and {name} has no `teach`; "
                "docs/write_an_algorithm.md shows one"
            )
        lengths = sorted({unrolled.length for unrolled in graph.unrolls})
        if len(lengths) > 1 and self.instance.remembers():
            raise PlanError(
                f"the loop has unrolls of {' and '.join(map(str, lengths))} steps, and the replay "
                f"of {name} holds unrolls of one length; give all unrolls the same length"
            )

    def settled(self, num_envs: int = 64) -> Self:
        """Gives the settings with a number where one was left to be chosen.

        Args:
            num_envs: Environments that are stepped together.
        """
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


@dataclass(frozen=True)
class Instance(ABC, Generic[S]):
    """The pure functions of one trained policy, over B slots.

    Learning is split where data meets parameters: `measure` and `gradient` look at slots and give
    sums, which add up over any division of the batch by slots; `adapt`, `update` and `finish` take
    the total and change the state. `learn` calls them in order.
    """

    config: Algorithm
    specs: Specs
    updates: int | None = None
    """The number of updates in the run, where that is known."""
    slots: int = 0
    """The number of slots in the run that learn the policy; 0 where nothing is learned."""
    stack: FrameStack | None = None
    """The stacking of observations, where there is one; a replay need not hold them stacked."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        """Raises UserError for a class that is not complete."""
        cls.expect_complete()
        return super().__new__(cls)

    @classmethod
    def expect_complete(cls) -> None:
        """Raises UserError where the class lacks what every algorithm has to have."""
        missing = sorted(cls.__abstractmethods__)
        if missing:
            raise UserError(
                f"the algorithm's {cls.__name__} has no {', '.join(missing)}: write "
                f"{'it' if len(missing) == 1 else 'them'}; docs/write_an_algorithm.md shows how"
            )

    def adjusted(self, settings: Mapping[str, Array]) -> Self:
        """Gives the same functions with other values of adjustable settings; traced ones, too."""
        if not settings:
            return self
        return replace(self, config=replace(self.config, **settings))  # type: ignore[arg-type]

    @property
    def chunk(self) -> int:
        """Steps between two memories that an unroll keeps; 0 where acting keeps no memory."""
        return 0

    @property
    def rounds(self) -> int:
        """Gradient steps of one `learn`."""
        return 1

    # Acting.

    @abstractmethod
    def init(self, key: Array) -> S:
        """Draws a state to start from."""
        raise NotImplementedError

    @abstractmethod
    def policy(self, state: S) -> Policy:
        """Gives what acting needs of the state.

        These may be the state's own arrays, which the next update donates: outside of compiled
        functions copy them.
        """
        raise NotImplementedError

    def initial_memory(self, batch: int) -> Tree:
        """Gives the memory of `batch` slots at the start of an episode; () for none."""
        return ()

    def memory_after(self, memory: Tree, ended: Array) -> Tree:
        """Gives the memory for the rows after these: it starts anew where an episode ended.

        Args:
            memory: [B, ...], as acting on these rows left it.
            ended: bool [B].
        """
        return where_rows(ended, self.initial_memory(len(ended)), memory)

    @abstractmethod
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
        raise NotImplementedError

    def act_greedy(self, policy: Policy, observation: Tree, memory: Tree) -> Decision:
        """Takes the most probable action for each slot, as evaluation does unless it draws."""
        raise UserError(
            f"{type(self).__name__} has no act_greedy, which takes the best actions: write it, or "
            "draw actions by --sampled (sampled=True)"
        )

    def action_outputs(self, policy: Policy, observation: Tree, memory: Tree) -> dict[str, Array]:
        """Gives what the actions follow from, [B, ...] by name; of most algorithms nothing.

        Such as the `logits` of a choice, the `mean` and `log_std` of a normal distribution, or the
        `action_values`.
        """
        return {}

    def teach(self, observation: Tree) -> Tree:
        """Gives a teacher's advice on observations [B, ...]: arrays [B, ...], for the unroll.

        A loop that calls `run.teach` needs it. The teacher's parameters are the instance's own and
        never change.
        """
        raise NotImplementedError

    def env_action(self, action: Tree) -> Tree:
        """Gives what the simulator takes for the actions of a decision; needs no JAX."""
        return action

    # Learning.

    def measure(self, state: S, unroll: Unroll) -> tuple[Tree, Tree]:
        """Gives the batch to learn from, and sums over its slots, before any gradient step."""
        return unroll, ()

    # A replay: what is remembered of the slots here, beside the state. By default nothing is.

    @classmethod
    def remembers(cls) -> bool:
        """Tells if the algorithm has a replay."""
        return cls.empty_replay is not Instance.empty_replay

    def empty_replay(self, unroll: Unroll) -> Tree:
        """Gives a replay before the first unroll, from an unroll of the slots that it is for.

        Its arrays have the slots as their third axis, so that they can be divided by slots. Of a
        `srl.algorithms.replay.Replay` in it checkpoints write the blocks that are new, of all else
        the whole.
        """
        return ()

    def remember(self, state: S, replay: Tree, unroll: Unroll) -> Tree:
        """Gives the replay with an unroll in it, that of update `state.n`."""
        return replay

    def recall(self, state: S, replay: Tree, batch: Tree) -> Tree:
        """Gives what all rounds learn from, drawn from the replay.

        Args:
            state: What was learned before.
            replay: With the newest unroll in it.
            batch: From `measure`.
        """
        return batch

    def revise(self, state: S, replay: Tree, batch: Tree, notes: Tree) -> Tree:
        """Gives the replay after the rounds, such as with other priorities.

        Args:
            state: What `recall` got.
            replay: What `recall` got.
            batch: What the rounds learned from.
            notes: What `noted_gradient` noted in each round, [rounds, ...].
        """
        return replay

    def adapt(self, state: S, sums: Tree) -> S:
        """Takes in what was measured, before any gradient step."""
        return state

    @abstractmethod
    def gradient(self, state: S, batch: Tree, round: Array) -> Tree:
        """Gives sums over the batch's slots: of the gradient, of metrics, and a count.

        Args:
            state: Its `params` are the newest; `optimizer` is not looked at.
            batch: From `recall`, which by default gives what `measure` gave.
            round: int32 [], which of the `rounds` this is.
        """
        raise NotImplementedError

    def noted_gradient(self, state: S, batch: Tree, round: Array) -> tuple[Tree, Tree]:
        """Gives what `gradient` gives, and notes of these slots for `revise`."""
        return self.gradient(state, batch, round), ()

    @abstractmethod
    def update(self, state: S, sums: Tree) -> tuple[S, Metrics]:
        """Takes a gradient step."""
        raise NotImplementedError

    def finish(self, state: S, sums: Tree) -> tuple[S, Metrics]:
        """Counts the update, and takes in what was measured that the rounds should not see.

        Args:
            state: After the last gradient step.
            sums: The total of what `measure` gave.
        """
        return state._replace(n=state.n + 1), {}

    def look(self, state: S, replay: Tree, unroll: Unroll) -> tuple[Tree, Tree, Tree]:
        """All that comes before the rounds: gives the replay, the batch, and what was measured."""
        replay = self.remember(state, replay, unroll)
        batch, sums = self.measure(state, unroll)
        return replay, self.recall(state, replay, batch), sums

    def learn(
        self,
        state: S,
        unroll: Unroll,
        replay: Tree = (),
        total: Callable[[Tree], Tree] = lambda sums: sums,
    ) -> tuple[S, Tree, Metrics]:
        """Improves the policy with one batch.

        Args:
            state: What was learned before.
            unroll: The slots of the batch that are here.
            replay: What is remembered of these slots.
            total: Adds sums to those of the slots that are elsewhere.

        Returns:
            The new state and replay, and metrics: the means over the rounds, and what `finish`
            gave.
        """
        learned, revised, means, finished = learn_in_order(self, state, replay, unroll, total)
        return learned, revised, {**means, **finished}


def where_rows(condition: Array, one: Tree, other: Tree) -> Any:
    """Gives the rows of `one` where the condition, bool [B], is set, and elsewhere of `other`."""
    return jax.tree.map(
        lambda a, b: jnp.where(condition.reshape(-1, *[1] * (a.ndim - 1)), a, b), one, other
    )
