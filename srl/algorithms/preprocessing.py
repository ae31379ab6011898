"""The preprocessing of unrolls between an environment and any algorithm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from srl.algorithms.algorithm import Algorithm, Instance, Total
from srl.algorithms.frames import FrameStack
from srl.algorithms.returns import where_rows
from srl.algorithms.teams import team_unroll
from srl.core.errors import UserError
from srl.core.lazy import jax, jnp
from srl.core.types import Array, Decision, Metrics, Policy, Specs, Tree, Unroll


def bound(
    algorithm: Algorithm,
    specs: Specs,
    updates: int | None,
    num_envs: int,
    members: Sequence[int] | None = None,
) -> Instance:
    """Gives what `algorithm.bind` gives, which sees stacks, transformed rewards and teams.

    Args:
        algorithm: Its `frame_stack`, `rewards`, `reward_scale` and, if it has one, `mixer` say what
            is asked for.
        specs: Of the environments.
        updates: As for `bind`.
        num_envs: Environments that are learned from in the run; 0 where nothing is learned.
        members: Indices of the policy's agents, which the instance's specs then name; all by
            default.

    Raises:
        UserError: For a mixer where the environment has one agent.
    """
    transform, team = reward_transform(algorithm), getattr(algorithm, "mixer", None) is not None
    if team and len(specs.agents) == 1:
        raise UserError(
            f"algorithm.mixer mixes the values of a team, and the environment has one agent, "
            f"{specs.agents[0]}; leave it out"
        )
    own = range(len(specs.agents)) if members is None else members
    pairs = tuple(specs.agent_spaces[i] for i in own) if specs.agent_spaces else ()
    specs = replace(specs, agents=tuple(specs.agents[i] for i in own), agent_spaces=pairs)
    slots = num_envs if team else num_envs * len(own)
    if algorithm.frame_stack <= 1:
        stack, instance = None, algorithm.bind(specs, updates, slots)
    else:
        stack = FrameStack(specs.observation, algorithm.frame_stack, tuple(algorithm.privileged))
        instance = algorithm.bind(replace(specs, observation=stack.stacked), updates, slots)
        if not team:  # replays of teams hold stacks as they are
            instance = replace(instance, stack=stack)
    if not (stack or transform or team):
        return instance
    return Preprocessed(instance, stack, transform, len(own) * team)  # type: ignore[return-value]


def reward_transform(algorithm: Algorithm) -> Callable[[Array], Array] | None:
    """Gives what is done to rewards; None where they are learned from as they are."""
    transform, scale = _TRANSFORMS.get(algorithm.rewards), algorithm.reward_scale
    if scale == 1.0:
        return transform
    return lambda reward: scale * (transform(reward) if transform else reward)


_TRANSFORMS: dict[str, Callable[[Array], Array]] = {
    "sign": lambda reward: jnp.sign(reward),
    "clip": lambda reward: jnp.clip(reward, -1.0, 1.0),
}


class Preprocessed:
    """An instance to which observations come as stacks, rewards transformed, and teams as slots.

    The observations before the present one are a part of the memory, which acting carries along and
    unrolls keep at their beginning. All else is the instance's own.
    """

    def __init__(
        self,
        instance: Instance,
        stack: FrameStack | None,
        transform: Callable[[Array], Array] | None,
        team: int = 0,
    ) -> None:
        """Takes the instance; None stacks nothing, or leaves rewards as they are.

        Args:
            instance: The instance.
            stack: The stacking of observations.
            transform: The function of rewards.
            team: The number of agents that it learns from as one slot; 0: each is a slot.
        """
        self._instance, self._stack = instance, stack
        self._transform, self._team = transform, team

    def __getattr__(self, name: str) -> Any:
        return getattr(self._instance, name)

    def adjusted(self, settings: Mapping[str, Array]) -> Preprocessed:
        """Gives the same with other values of adjustable settings."""
        parts = self._stack, self._transform, self._team
        return Preprocessed(self._instance.adjusted(settings), *parts)

    def slots_of_block(self, length: int) -> int:
        """Gives the number of neighbouring slots that unrolls of a length are learned from with."""
        return self._instance.slots_of_block(length) * (self._team or 1)

    def initial_memory(self, batch: int) -> Tree:
        """Gives the memory of `batch` slots at the start of an episode."""
        own = self._instance.initial_memory(batch)
        return {"earlier": self._stack.nothing(batch), "own": own} if self._stack else own

    def act(
        self, policy: Policy, observation: Tree, memory: Tree, keys: Array, slot: Array
    ) -> Decision:
        """Draws an action for each slot."""
        return self._acted(
            lambda seen, own: self._instance.act(policy, seen, own, keys, slot), observation, memory
        )

    def act_greedy(self, policy: Policy, observation: Tree, memory: Tree) -> Decision:
        """Takes the most probable action for each slot."""
        return self._acted(
            lambda seen, own: self._instance.act_greedy(policy, seen, own), observation, memory
        )

    def action_outputs(self, policy: Policy, observation: Tree, memory: Tree) -> dict[str, Array]:
        """Gives what the actions follow from."""
        if self._stack is None:
            return self._instance.action_outputs(policy, observation, memory)
        seen, _ = self._stack.push(memory["earlier"], observation)
        return self._instance.action_outputs(policy, seen, memory["own"])

    def _acted(
        self, act: Callable[[Tree, Tree], Decision], observation: Tree, memory: Tree
    ) -> Decision:
        if self._stack is None:
            return act(observation, memory)
        seen, earlier = self._stack.push(memory["earlier"], observation)
        decision = act(seen, memory["own"])
        return decision._replace(memory={"earlier": earlier, "own": decision.memory})

    def empty_replay(self, unroll: Unroll) -> Tree:
        """Gives a replay before the first unroll."""
        return self._instance.empty_replay(self._seen(unroll))

    def prepare(
        self, state: Any, replay: Tree, unroll: Unroll, total: Total
    ) -> tuple[Any, Tree, Any]:
        """Computes all that does not change between the gradient steps of one update."""
        return self._instance.prepare(state, replay, self._seen(unroll), total)

    def learn(
        self, state: Any, unroll: Unroll, replay: Tree = (), total: Total = lambda sums: sums
    ) -> tuple[Any, Tree, Metrics]:
        """Improves the policy with one batch."""
        return Instance.learn(self, state, unroll, replay, total)  # type: ignore[arg-type]

    def memory_after(self, memory: Tree, ended: Array) -> Tree:
        """Gives the memory for the rows after these: nothing of an episode that ended."""
        if self._stack is None:
            return self._instance.memory_after(memory, ended)
        earlier = where_rows(ended, self._stack.nothing(len(ended)), memory["earlier"])
        return {"earlier": earlier, "own": self._instance.memory_after(memory["own"], ended)}

    def _seen(self, unroll: Unroll) -> Unroll:
        """The unroll as the instance sees it."""
        if self._transform is not None:
            unroll = unroll._replace(reward=self._transform(unroll.reward))
        if self._stack is not None:
            earlier = jax.tree.map(lambda x: x[0], unroll.memory["earlier"])
            ended = jnp.logical_or(unroll.terminated, unroll.truncated)
            observation = self._stack.of_rows(earlier, unroll.observation, ended)
            unroll = unroll._replace(observation=observation, memory=unroll.memory["own"])
        return team_unroll(unroll, self._team) if self._team else unroll
