"""The projection of an algorithm's loop onto one worker: the part of it that runs there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from srl.config.experiment import Experiment
from srl.core.errors import PlanError
from srl.core.types import Decision, Timestep, Tree, Unroll
from srl.dataflow.loop import Interact, Loop
from srl.dataflow.trace import Value
from srl.streams.batch import Batch

if TYPE_CHECKING:
    from srl.loop.learning.learner import Learner
    from srl.loop.stepping.actors import OneGroup
    from srl.loop.stepping.asynchronous import AsynchronousGroup
    from srl.loop.stepping.group import Group
    from srl.loop.stepping.local import LocalEnvironments
    from srl.loop.stepping.remote import RemoteEnvironments
    from srl.loop.stepping.traced import TracedSteps


@dataclass(eq=False)
class Gathered:
    """A batch on its way from `gather` to `learn`, which may be called with it several times."""

    batch: Batch
    """The unrolls of all groups whose batch this is."""
    unroll: Unroll | None = None
    """The same on the learner's devices, if it is there already."""
    number: int = field(default=0, kw_only=True)
    """The batch's number in the run, where it comes by a stream."""
    lessons: np.ndarray | None = field(default=None, kw_only=True)
    """The curriculum's lesson of each unroll, int [G]; by default the present one."""
    learned: int = field(default=0, init=False)
    """Calls of `learn` with it so far."""
    begun: int = field(default=0, init=False)
    """Calls of `learn` in the pass before its unrolls."""
    lag: int = field(default=0, init=False)
    """Versions made in the pass since then, as it is first learned from: no staleness, but the
    loop's own."""


def changed(how: str) -> PlanError:
    """The error of a loop that is not as it was traced when the experiment was loaded."""
    return PlanError(
        f"the loop is not as it was when the run began: {how}; workers elsewhere run it as it was, "
        "so let nothing in it change from step to step or from pass to pass"
    )


class Calls(Loop):
    """The calls of a step: each is noted, and handed to the environments that take the step."""

    _taking: Group | AsynchronousGroup | TracedSteps

    def __init__(self) -> None:
        self._called: list[str] = []  # nodes, in the step that is taken

    def step(self, action: Any, repeat: int = 1) -> Timestep:
        """Steps the environments."""
        self._called.append("step")
        return self._taking.step(action)

    def teach(self, timestep: Timestep) -> Any:
        """Stands for the advice, which comes with the decision."""
        self._called.append("teach")
        return Value("advice", "teach")

    def collect(self, timestep: Timestep, decision: Decision, advice: Any = None) -> Any:
        """Gives or writes a row of the unroll."""
        self._called.append("collect")
        return self._taking.collect(timestep, decision)


class Projection(Calls):
    """The calls of an algorithm's loop as one worker executes them, under any plan.

    The worker's own nodes are computed; a call of a node that is elsewhere is one end of a stream,
    or nothing where the other end needs no message. A value that is known only elsewhere can be
    handed on but not read, as when the loop is traced.
    """

    def __init__(
        self,
        experiment: Experiment,
        environments: LocalEnvironments | RemoteEnvironments | OneGroup,
        learning: Learner | None = None,
    ) -> None:
        """Takes the two halves of the loop; `learning` is None where another worker learns."""
        super().__init__()
        self._algorithm, self._traced = experiment.algorithm, experiment.graph
        self._environments, self._learning = environments, learning
        self._learns = 0
        self._unrolls = 0  # of this pass, so far

    def run(self) -> None:
        """Runs one pass of the loop; raises Stopped where it is not to go on.

        Raises:
            PlanError: If the pass was not as the loop was traced.
        """
        self._learns = self._unrolls = 0
        self._algorithm.loop(self)
        unrolls, learns = len(self._traced.unrolls), self._traced.learns
        if (self._unrolls, self._learns) != (unrolls, learns):
            raise changed(
                f"passes had {unrolls} unrolls and {learns} calls of learn, and this one had "
                f"{self._unrolls} and {self._learns}"
            )

    def latest(self) -> Any:
        """The policy that will act is known where it acts."""
        self._environments.latest()
        for group in self._environments.groups:
            group.latest()
        return Value("policy", "learn")

    def unroll(self, interact: Interact, length: int) -> int:
        """Takes the unroll of each group here in turn; gives its number in the pass.

        Raises:
            PlanError: If it is not as it was traced.
        """
        number, self._unrolls = self._unrolls, self._unrolls + 1
        unrolls = self._traced.unrolls[number : number + 1]
        if [unroll[:2] for unroll in unrolls] != [(length, self._learns)]:
            known = ", ".join(f"{unroll.length} steps" for unroll in unrolls) or "no more unrolls"
            raise changed(f"passes had {known}, and this one has an unroll of {length} steps")
        calls = list(unrolls[0].calls)

        def step(timestep: Timestep, memory: Tree) -> tuple[Timestep, Tree, Any]:
            self._called = []
            ended = interact(timestep, memory)
            if self._called != calls:
                called = ", ".join(self._called) or "nothing"
                raise changed(f"steps called {', '.join(calls)}, and this one {called}")
            return ended

        for group in self._environments.groups:
            self._group = self._taking = group
            group.unroll(step, length, number)
        return number

    def act(self, policy: Any, timestep: Timestep, memory: Tree) -> Decision:
        """Decides for the group whose unroll is taken."""
        self._called.append("act")
        return self._group.act(timestep, memory)

    def gather(self, unroll: int) -> Any:
        """Waits for the batch where that is learned from here."""
        batch = self._environments.gather(unroll)
        if batch is None:
            return Value("batch", "collect")
        batch.begun = self._traced.unrolls[unroll].learns
        return batch

    def learn(self, batch: Any) -> None:
        """Learns where that is done here, or in part."""
        if self._learning is not None:
            if not batch.learned:
                batch.lag = self._learns - batch.begun
            self._learning.learn(batch)
            batch.learned += 1
            self._environments.learned(batch)
        self._learns += 1
