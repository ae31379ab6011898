"""The operations that a training loop is written in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from srl.core.types import Decision, Timestep, Tree

Interact = Callable[[Timestep, Tree], tuple[Timestep, Tree, Any]]
"""One step of an unroll: (timestep, memory) to (the next timestep, the next memory, what `collect`
gave)."""


class Loop(ABC):
    """The operations that an algorithm's `loop` calls; each implementation defines their effect.

    Each method is a node of the graph, or a way for values to cross from one to another. Where the
    caller and the node share a fragment a call is a function call. Where they do not, it is one end
    of a stream: `act` sends a request and waits for its reply, `gather` hands an unroll over or
    waits for a batch of them, `latest` fetches the newest parameters.

    The same `loop` is traced (`dataflow.trace`), which gives the graph; compiled into one program,
    which is the plan `fused`; and run by workers, each of which does its own fragment's nodes. So
    all of its passes are alike, and all steps of an unroll: a loop that is not so is refused.
    """

    @abstractmethod
    def latest(self) -> Any:
        """The newest policy that there is here, at most `max_staleness` versions old."""

    @abstractmethod
    def act(self, policy: Any, timestep: Timestep, memory: Tree) -> Decision:
        """The node `act`: decides for every slot of a timestep."""

    @abstractmethod
    def step(self, action: Any, repeat: int = 1) -> Timestep:
        """The node `step`: steps the environments.

        Args:
            action: Of a decision.
            repeat: Steps with it (frame skip), of which an episode's end is the last; their rewards
                add up. All steps of a loop repeat alike, as environments do it where they are.
        """

    @abstractmethod
    def teach(self, timestep: Timestep) -> Any:
        """The node `teach`: the advice of a teacher, which does not learn, for every slot."""

    @abstractmethod
    def collect(self, timestep: Timestep, decision: Decision, advice: Any = None) -> Any:
        """The node `collect`: writes a step into the unroll, with a teacher's advice if given."""

    @abstractmethod
    def unroll(self, interact: Interact, length: int) -> Any:
        """Repeats `interact`, from where the last unroll ended."""

    @abstractmethod
    def gather(self, unroll: Any) -> Any:
        """The batch that the unrolls of all environments make."""

    @abstractmethod
    def learn(self, batch: Any) -> None:
        """The node `learn`: one compiled call; replicas add up their sums within it."""
