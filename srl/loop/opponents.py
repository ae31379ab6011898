"""The two sides of self-play that the loop knows, each None where past versions do not play.

A fixed policy of another run plays through `OpponentActing`, too: see `acting/fixed_acting.py`. A
run without self-play imports no more of it than its settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from srl.algorithms.algorithm import Instance
from srl.core.types import Array, Decision, Policy, Specs, Tree

if TYPE_CHECKING:
    from srl.config.experiment import Experiment
    from srl.loop.self_play.league import League

Slots = tuple[int, ...]
"""Some of the slots of one period of environments."""


class OpponentActing(Protocol):
    """The acting side: which slots past versions, or fixed policies, play, and how they act.

    All functions are pure.
    """

    @property
    def period(self) -> int:
        """The number of environments after which the slots of past versions repeat."""
        ...

    def present_slots(self, members: tuple[int, ...]) -> Slots:
        """Gives the slots that these agents' present policy plays, and learns from."""
        ...

    def first(self, policies: Mapping[str, Policy]) -> Any:
        """Gives what plays before any past version is chosen, of the same shapes as later."""
        ...

    def initial_memory(self, num_envs: int) -> Tree:
        """Gives what is remembered for the opponents' slots at the start of episodes."""
        ...

    def act(
        self,
        past: Any,
        memory: Tree,
        ended: Array,
        rows: Callable[[Slots], tuple[Tree, Array, Array, Array]],
    ) -> tuple[list[tuple[Slots, Decision]], Tree]:
        """Decides for the opponents' slots, and gives the memory for the next step.

        Args:
            past: The past versions, as `first` or `League.playing` gives them.
            memory: As `initial_memory` or the step before gave it.
            ended: bool [B], all rows that end an episode.
            rows: Gives the observation, the keys, the numbers and `ended` of some slots.
        """
        ...


def opponent_acting(
    experiment: Experiment,
    agents: tuple[str, ...],
    members: Mapping[str, tuple[int, ...]],
    instances: Mapping[str, Instance],
    num_groups: int,
) -> OpponentActing | None:
    """Gives the acting side of an experiment's self-play; None where no past version plays.

    Raises:
        UserError: If self-play is asked for and does not fit the environments.
    """
    if experiment.self_play is None:
        return None
    from srl.loop.self_play.pairings import Pairings
    from srl.loop.self_play.past_acting import PastActing

    num_envs = experiment.num_envs // num_groups
    pairings = Pairings.of(experiment.self_play.past, agents, num_envs)
    return pairings and PastActing(pairings, members, instances)


def opponents(
    experiment: Experiment,
    specs: Specs,
    policies: Mapping[str, Policy],
    instances: Mapping[str, Instance],
    folder: Path | None,
    *,
    writes: bool,
) -> League | None:
    """Gives the learning side of an experiment's self-play; None where there is none.

    Args:
        experiment: The experiment.
        specs: The specs of its environments.
        policies: The policies that the run begins with.
        instances: The functions of these policies.
        folder: The run's folder.
        writes: Whether this learner keeps the pool of opponents; one of several replicas does.

    Raises:
        UserError: If it cannot be known how long an opponent has to stay.
        RunError: If the pool cannot be written.
    """
    if experiment.self_play is None:
        return None
    from srl.loop.self_play.league import League

    assert folder is not None, "self-play needs the run's folder"
    num_envs = experiment.num_envs // experiment.num_groups
    return League(experiment, specs, num_envs, policies, instances, folder, writes=writes)
