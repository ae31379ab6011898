"""The policies and their agents, and the loop's two compiled calls over all policies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from srl.algorithms import Algorithm
from srl.algorithms.algorithm import Instance, State, Total, learn
from srl.algorithms.imitation import ACTION, with_teachers
from srl.algorithms.preprocessing import bound
from srl.algorithms.privileged import expect_privileged
from srl.config.fixed import Fixed, first_fitting
from srl.config.sources import teachers_of
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.tree import Leaves, leaves_of
from srl.core.types import Array, Decision, Policy, Specs, Tree, Unroll
from srl.loop.acting.fixed_acting import FixedActing
from srl.loop.acting.teaching import Teaching
from srl.loop.team_rewards import TeamRewards, expect_whole_teams, shared, team_rewards

if TYPE_CHECKING:
    from srl.config.experiment import Experiment
    from srl.loop.self_play.past_acting import PastActing


class Assigned(NamedTuple):
    """The indices of the agents that follow each policy."""

    trained: dict[str, tuple[int, ...]]
    """These are the agents by the name of the policy."""
    fixed: dict[str, tuple[int, ...]]
    """These are the agents by the pattern of a policy that is not trained."""


def assign(patterns: Mapping[str, str | Fixed], agents: tuple[str, ...]) -> Assigned:
    """Gives the agents that follow each policy; the first fitting pattern counts.

    Raises:
        UserError: If an agent fits no pattern, or a policy gets no agent.
    """
    trained: dict[str, list[int]] = {p: [] for p in patterns.values() if isinstance(p, str)}
    fixed: dict[str, list[int]] = {p: [] for p in patterns if isinstance(patterns[p], Fixed)}
    for index, agent in enumerate(agents):
        pattern = first_fitting(patterns, agent)
        if pattern is None:
            raise UserError(
                f"agent {agent!r} fits none of the patterns {list(patterns)} in policies; add one"
            )
        policy = patterns[pattern]
        own = trained[policy] if isinstance(policy, str) else fixed[pattern]
        own.append(index)
    for name, own in trained.items():
        if not own:
            raise UserError(
                f"policy {name!r} gets no agent: its patterns fit none of {list(agents)}"
            )
    for pattern, own in fixed.items():
        if not own:
            raise UserError(
                f"policies[{pattern!r}] plays no agent: the pattern fits none of {list(agents)} "
                "that an earlier one does not fit"
            )
    members = (trained, fixed)
    return Assigned(*({name: tuple(own) for name, own in m.items()} for m in members))


@dataclass(frozen=True)
class PolicySet:
    """The policies of one environment. Functions here are pure; slots are [B] = [N * A]."""

    specs: Specs
    members: Mapping[str, tuple[int, ...]]
    """Agent indices of each policy."""
    instances: Mapping[str, Instance]
    team_rewards: TeamRewards = ()
    """The agents that share their rewards, and the form of it: the sum or the mean."""
    taught: bool = False
    """True if a decision holds a teacher's advice, as where `act` and `teach` are one call."""
    opponents: PastActing | FixedActing | None = None
    """Past versions or fixed policies that play some of the slots; environments come in multiples
    of its period.

    Where they play, what acts and what is remembered are dicts of `policies`, which holds what
    belongs to the present policies, and `opponents`, which holds what belongs to the others.
    Elsewhere both are what `policies` would hold.
    """
    teaching: Teaching | None = None
    """The teachers that the experiment names."""

    @staticmethod
    def of(
        algorithm: Algorithm,
        policies: Mapping[str, str | Fixed],
        specs: Specs,
        updates: int | None,
        num_envs: int = 0,
        *,
        team_reward: Mapping[str, str] | None = None,
        taught: bool = False,
    ) -> PolicySet:
        """Binds the algorithm once for each policy.

        Args:
            algorithm: What all policies are learned by.
            policies: Names of policies, or fixed ones, by the patterns of those agents' names
                that follow them.
            specs: Of the environments.
            updates: Calls of `learn` in the run, where that is known.
            num_envs: Environments that are learned from in the run; 0 where nothing is learned.
            team_reward: The form of a team's reward by the pattern of its agents' names.
            taught: Whether decisions hold a teacher's advice.
        """
        members, others = assign(policies, specs.agents)
        instances = {
            name: bound(algorithm, specs, updates, num_envs, own) for name, own in members.items()
        }
        fixed = {p: policy for p, policy in policies.items() if isinstance(policy, Fixed)}
        opponents = (
            FixedActing(specs, others, fixed, next(iter(instances.values()))) if fixed else None
        )
        teams = team_rewards(team_reward or {}, specs.agents)
        return PolicySet(specs, members, instances, teams, taught, opponents)

    @staticmethod
    def of_experiment(
        experiment: Experiment, specs: Specs, updates: int | None = None
    ) -> PolicySet:
        """The policies that an experiment learns; `updates` as for `of`."""
        algorithm, num_envs = experiment.settled_algorithm, experiment.num_envs
        expect_privileged(algorithm, specs)
        parts = experiment.policies, specs, updates, num_envs
        others = {"team_reward": experiment.team_reward, "taught": experiment.taught}
        made = PolicySet.of(algorithm, *parts, **others)
        if not experiment.teacher:
            return made
        teachers, key = teachers_of(experiment.teacher), experiment.teacher_key
        trained = next(iter(made.instances.values()))
        return replace(made, teaching=Teaching(specs, teachers, key, trained))

    def with_opponents(self, experiment: Experiment, num_groups: int) -> PolicySet:
        """Gives the same policies, with past versions as the experiment asks for in its groups.

        Raises:
            UserError: If self-play is asked for and does not fit the environments.
        """
        if experiment.self_play is None:
            return self
        from srl.loop.self_play.pairings import Pairings  # which other runs do without
        from srl.loop.self_play.past_acting import PastActing

        num_envs = experiment.num_envs // num_groups
        pairings = Pairings.of(experiment.self_play.past, self.specs.agents, num_envs)
        acting = pairings and PastActing(pairings, self.members, self.instances)
        changed = replace(self, opponents=acting)
        for name, own in changed._slots.items():
            if getattr(self.instances[name].config, "mixer", None) is not None:
                expect_whole_teams(name, own, len(self.specs.agents), len(self.members[name]))
        return changed

    @property
    def period(self) -> int:
        """The number of environments after which it repeats which policy plays which slot."""
        return 1 if self.opponents is None else self.opponents.period

    @cached_property
    def _slots(self) -> dict[str, tuple[int, ...]]:
        """The slots of a period that each policy acts for and learns from."""
        if self.opponents is None:
            return dict(self.members)
        return {name: self.opponents.present_slots(own) for name, own in self.members.items()}

    def within(self, nodes: Collection[str]) -> PolicySet:
        """Gives the same policies for a worker of these nodes; only with `teach` they advise."""
        taught = self.taught and "teach" in nodes
        return self if taught == self.taught else replace(self, taught=taught)

    def adjusted(self, settings: Mapping[str, Array]) -> PolicySet:
        """Gives the same policies, learned with other values of adjustable settings."""
        instances = {name: i.adjusted(settings) for name, i in self.instances.items()}
        return replace(self, instances=instances)

    def init(self, key: Array) -> dict[str, State]:
        """Draws a state for each policy, in arrays of their own.

        It is compiled only within other functions: its many small parts would take seconds, and
        those that call the host are compiled at every start.
        """
        if isinstance(key, jax.core.Tracer):
            return self._init(key)
        return jax.device_put(self._drawn(key), may_alias=False)

    @cached_property
    def _init(self) -> Callable[[Array], dict[str, State]]:
        """Kept, so that functions that begin with `init` do not trace it again."""
        return jax.jit(self._drawn)

    def _drawn(self, key: Array) -> dict[str, State]:
        return {
            name: instance.init(jax.random.fold_in(key, i))
            for i, (name, instance) in enumerate(sorted(self.instances.items()))
        }

    def policies(self, states: Mapping[str, State]) -> dict[str, Policy]:
        """Gives what acting needs."""
        return {name: self.instances[name].policy(state) for name, state in states.items()}

    def acting(self, policies: Mapping[str, Policy], past: Any = None) -> Mapping[str, Any]:
        """Gives all that `act` takes: the present policies, and past ones where these play.

        By default the present policies are in the place of past ones.
        """
        if self.opponents is None:
            return policies
        return {"policies": policies, "opponents": past or self.opponents.first(policies)}

    def initial_memory(self, num_envs: int) -> dict[str, Tree]:
        """Gives the memory of each policy's slots, and of those that its past versions play."""
        periods = num_envs // self.period
        memory: dict[str, Tree] = {
            name: instance.initial_memory(periods * len(self._slots[name]))
            for name, instance in self.instances.items()
        }
        if self.opponents is None:
            return memory
        return {"policies": memory, "opponents": self.opponents.initial_memory(num_envs)}

    def own(self, tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """Gives the present policies' part of what acts or is remembered, by policy."""
        return tree if self.opponents is None else tree["policies"]

    def chunk_of(self, length: int) -> int:
        """Steps between two memories that an unroll keeps; its whole length without memory.

        Raises:
            UserError: If the unroll cannot be divided so.
        """
        chunk = next(iter(self.instances.values())).chunk or length
        if length % chunk:
            raise UserError(
                f"the loop's unroll of {length} steps cannot be divided into chunks of {chunk}, "
                "from whose first memories a recurrent policy learns; change either"
            )
        return chunk

    def cut_block(self, num_envs: int, lengths: Collection[int]) -> str:
        """Describes minibatches that take slots together which are not learned from in one place.

        Args:
            num_envs: Environments that are learned from in each of several places.
            lengths: Of the unrolls.

        Returns:
            A text; empty where there is no such minibatch.
        """
        for name, instance in self.instances.items():
            slots = num_envs // self.period * len(self._slots[name])
            for block in map(instance.slots_of_block, lengths):
                if slots % block:
                    return (
                        f"the minibatches of policy {name!r} divide each {block} neighbouring "
                        f"slots, and blocks of {block} do not fill the {slots} slots"
                    )
        return ""

    def act(
        self,
        policies: Mapping[str, Any],
        observation: Tree,
        ended: Array,
        memory: Mapping[str, Tree],
        key: Array,
        clock: Array,
        slots: Array,
        greedy: bool = False,
    ) -> Decision:
        """Decides for B slots.

        Args:
            policies: What acts, as `acting` gives it.
            observation: [B, ...]
            ended: bool [B], rows that end an episode. After they are acted on, their memory
                starts anew.
            memory: As `initial_memory` or the step before gave it.
            key: The key of the run's sampling.
            clock: uint32 [] or [B], steps the slots have taken so far: a slot's key is folded from
                (key, clock, slot), in whichever worker.
            slots: int32 [B], which of the run's slots these are.
            greedy: Whether to take the most probable actions.

        Returns:
            The decision of all B slots.
        """
        keys, numbers = _slot_keys(key, clock, slots), self._numbers(slots)
        decisions: list[tuple[tuple[int, ...], Decision]] = []
        following: dict[str, Tree] = {}
        for name, instance in self.instances.items():
            own, policy, remembered = self._slots[name], self.own(policies)[name], self.own(memory)
            part, own_ended = self._part(own, (observation, ended), axis=0)
            if greedy:
                decision = instance.act_greedy(policy, part, remembered[name])
            else:
                drawing = self._part(own, (keys, numbers), axis=0)
                decision = self._act_of[name](policy, part, remembered[name], *drawing)
            following[name] = instance.memory_after(decision.memory, own_ended)
            decisions.append((own, decision))
        if self.opponents is not None:
            rows = observation, keys, numbers, ended
            past, past_memory = self.opponents.act(
                policies["opponents"],
                memory["opponents"],
                ended,
                lambda slots: self._part(slots, rows, axis=0),
            )
            decisions += past
            following = {"policies": following, "opponents": past_memory}
        joined = self._joined([(own, made._replace(memory=())) for own, made in decisions])
        advice = self.teach(observation) if self.taught else ()
        return self.with_advice(joined._replace(memory=following), advice, jnp.where)

    def teach(self, observation: Tree) -> Tree:
        """Gives a teacher's advice for the observations [B, ...] of B slots.

        Returns:
            Arrays [B, ...], from each policy's teacher those of its slots.
        """
        if self.teaching is not None:
            part_of = partial(self._part, axis=0)
            return self.teaching.advice(observation, part_of, self._joined)
        advice = [
            (self._slots[name], instance.teach(self._part(self._slots[name], observation, axis=0)))
            for name, instance in self.instances.items()
        ]
        return self._joined(advice)

    def with_advice(
        self, decision: Decision, advice: Tree, where: Callable[..., Array] = np.where
    ) -> Decision:
        """Gives a decision with advice, and with the teacher's actions where it left them to it.

        Args:
            decision: Of B slots. Without a log_prob, as where another worker collects, it has the
                teacher's actions already.
            advice: Of the same.
            where: That of NumPy or JAX.
        """
        if self.mixes and advice != () and decision.log_prob is not None:
            advised = leaves_of(advice[ACTION])
            mixed = with_teachers(leaves_of(decision.action), decision.log_prob, advised, where)
            decision = decision._replace(action=Leaves(decision.action).tree(mixed))
        return decision._replace(advice=advice)

    @cached_property
    def mixes(self) -> bool:
        """True if a teacher may act."""
        instances = self.instances.values()
        return self.teaching is not None and any(getattr(i, "mixes", False) for i in instances)

    def _numbers(self, slots: Array) -> Array:
        """Gives which of their policy's slots the run's slots are."""
        agents = len(self.specs.agents)
        count, rank = np.ones(agents, np.int32), np.zeros(agents, np.int32)
        for members in self.members.values():
            count[list(members)] = len(members)
            rank[list(members)] = np.arange(len(members))
        agent = slots % agents
        return slots // agents * jnp.asarray(count)[agent] + jnp.asarray(rank)[agent]

    def numbers_of(self, name: str, slots: Array) -> Array:
        """Gives which of a policy's slots those of the run's slots are that it learns from."""
        return self._part(self._slots[name], self._numbers(jnp.asarray(slots)), axis=0)

    def unrolls_of(self, unroll: Unroll) -> dict[str, Unroll]:
        """Gives the part of an unroll that each policy learns from."""
        return {name: self._unroll_of(name, unroll) for name in self.instances}

    def empty_replays(self, unroll: Unroll) -> dict[str, Tree]:
        """Gives what each policy remembers before the first unroll, of that one's slots."""
        return {
            name: instance.empty_replay(self._unroll_of(name, unroll))
            for name, instance in self.instances.items()
        }

    def learn(
        self,
        states: Mapping[str, State],
        replays: Mapping[str, Tree],
        unroll: Unroll,
        total: Total = lambda sums: sums,
    ) -> tuple[dict[str, State], dict[str, Tree], dict[str, Policy], dict[str, Any]]:
        """Improves every policy with its slots' part of an unroll; gives metrics by policy.

        Policies with the same number of gradient steps take them at the same time.

        Args:
            states: By policy name.
            replays: By policy name, of the same slots.
            unroll: The slots of the batch that are here.
            total: Adds sums to those of the slots that are elsewhere.
        """
        unrolls = self.unrolls_of(unroll)
        following, remembered, metrics = {}, {}, {}
        for instances in self._by_gradient_steps():
            learned = learn(states, replays, unrolls, instances, total)
            for all_of, some in zip((following, remembered, metrics), learned, strict=True):
                all_of |= some
        return following, remembered, self.policies(following), metrics

    def _by_gradient_steps(self) -> list[dict[str, Instance]]:
        """The policies in parts that have the same number of gradient steps."""
        parts: dict[int, dict[str, Instance]] = {}
        for name, instance in self.instances.items():
            parts.setdefault(instance.gradient_steps, {})[name] = instance
        return list(parts.values())

    def prepared(self, states: Mapping[str, State], unroll: Unroll) -> dict[str, tuple[Any, Any]]:
        """Gives the state and the batch of each policy before the first gradient step of all."""
        replays, prepared = self.empty_replays(unroll), {}
        for name, instance in self.instances.items():
            operands = states[name], replays[name], self._unroll_of(name, unroll)
            state, _, batch = instance.prepare(*operands, lambda sums: sums)
            prepared[name] = state, batch
        return prepared

    @cached_property
    def _act_of(self) -> dict[str, Callable[..., Decision]]:
        """`act` of each policy, traced once for operands of one form."""
        return {name: jax.jit(instance.act) for name, instance in self.instances.items()}

    @cached_property
    def env_action(self) -> Callable[[Tree], Tree]:
        """Gives what the simulator takes for the actions of a decision."""
        return next(iter(self.instances.values())).env_action

    def _unroll_of(self, name: str, unroll: Unroll) -> Unroll:
        own, agents = self._slots[name], len(self.specs.agents)
        reward = shared(unroll.reward, self.team_rewards, agents)
        rows = unroll._replace(reward=reward, memory=(), version=(), slot=())
        rows = self._part(own, rows, axis=1)
        return rows._replace(
            memory=unroll.memory[name],
            version=unroll.version,
            slot=self._part(own, unroll.slot, axis=0),
        )

    def _part(self, own: tuple[int, ...], tree: Tree, axis: int) -> Tree:
        """The rows of some slots of each period, along `axis`."""
        period = self.period * len(self.specs.agents)
        if len(own) == period:
            return tree

        def take(x: Array) -> Array:
            shape = x.shape
            split = x.reshape(*shape[:axis], -1, period, *shape[axis + 1 :])
            part = split.take(jnp.asarray(own), axis=axis + 1)
            return part.reshape(*shape[:axis], -1, *shape[axis + 1 :])

        return jax.tree.map(take, tree)

    def _joined(self, parts: Sequence[tuple[tuple[int, ...], Any]]) -> Any:
        """All slots' trees, from those of some slots of each period."""
        slots = [own for own, _ in parts]
        return jax.tree.map(
            lambda *rows: self._join(list(zip(slots, rows, strict=True))), *(x for _, x in parts)
        )

    def _join(self, parts: Sequence[tuple[tuple[int, ...], Array]]) -> Array:
        """All slots' rows, from those of some slots of each period."""
        if len(parts) == 1:
            return parts[0][1]
        split = [part.reshape(-1, len(own), *part.shape[1:]) for own, part in parts]
        order = np.argsort(np.concatenate([own for own, _ in parts]))
        joined = jnp.concatenate(split, axis=1).take(jnp.asarray(order), axis=1)
        return joined.reshape(-1, *joined.shape[2:])


def _slot_keys(key: Array, clock: Array, slots: Array) -> Array:
    """Folds a key for each slot from (key, clock, slot)."""
    clocks = jnp.broadcast_to(clock, slots.shape)
    return jax.vmap(lambda clock, slot: jax.random.fold_in(jax.random.fold_in(key, clock), slot))(
        clocks, slots
    )
