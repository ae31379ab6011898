"""Training under any plan, as launchers drive it: both halves of the loop, reports and states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from srl.config.experiment import Experiment
from srl.config.fixed import Fixed
from srl.core.errors import RunError
from srl.core.types import Tree
from srl.loop.binding import bind_policy_set
from srl.loop.busy_time import SecondsByKind
from srl.loop.garbage import no_garbage_collection, return_freed_memory
from srl.loop.learning.learner import Learner
from srl.loop.learning.replay_files import Saved
from srl.loop.learning.replicas import gathered
from srl.loop.projection import Projection
from srl.loop.stage import Stage
from srl.loop.stepping.local import LocalEnvironments
from srl.loop.xla_threads import choose_for_learning
from srl.record.block_files import Files
from srl.record.run_record import RunFolder
from srl.streams.batch import Batch
from srl.streams.group_state import Stopped, pack, unpack

if TYPE_CHECKING:
    from srl.loop.fused import CompiledLoop
    from srl.loop.stepping.remote import RemoteEnvironments

_ACTING = ("params", "n", "observations", "values")
"""Parts of a learner's state, where it has them: all parameters, and normalisers."""


class Training:
    """A training run, as far as it is in this process: the loop's projection, and its state.

    Between two passes the state is the learner's and each group's, which is the same under all
    plans that divide the environments alike: a run may go on under another.
    """

    folder: Path | None = None
    """The run's folder, for the pool of opponents and prior data; to be set before `start` where
    there are any."""

    learner: Learner
    """The learning half's state, from `start` on."""
    neighbours = 1
    """Workers like this one that share the memory of this host, itself among them."""

    def __init__(
        self, experiment: Experiment, environments: LocalEnvironments | RemoteEnvironments
    ) -> None:
        """Takes both halves of the loop; `start` does the work."""
        self.experiment, self.environments = experiment, environments
        self.on_stage: Callable[[Stage], None] = lambda stage: None
        """Called as a stage of `start` begins."""
        self.alive: Callable[[], None] = lambda: None
        """Called when there is progress: before each step of environments here, or each compiled
        unroll."""

    @no_garbage_collection()
    def start(self) -> None:
        """Makes the environments and the policies, compiles, and begins the first episodes."""
        experiment, environments = self.experiment, self.environments
        specs = environments.make()
        policy_set = bind_policy_set(experiment, specs)
        self.on_stage(Stage.COMPILING)
        slots = environments.slots(specs)
        if environments.calls_one_program:
            num_envs = len(slots) // len(specs.agents)
            choose_for_learning(experiment, policy_set, num_envs)
        self.learner = learner = Learner(
            experiment, specs, environments.worker, slots, policy_set=policy_set
        )
        learner.replays.neighbours = self.neighbours
        learner.replays.prior_folder = None if self.folder is None else RunFolder(self.folder).prior
        learner.add_opponents(self.folder, writes=environments.replica == 0)
        batches = environments.prepare(learner, lambda: self.alive())
        self._projection = self._compile(batches)
        return_freed_memory()
        if environments.groups:
            self.on_stage(Stage.RESETTING)
        environments.begin()
        learner.progress.restart_clock()

    def _compile(self, batches: Sequence[Batch]) -> Projection | CompiledLoop:
        """Compiles the learning half, or the whole loop; gives what runs a pass."""
        self.learner.compile(batches)
        return Projection(self.experiment, self.environments, self.learner)

    def update(self) -> bool:
        """Runs one pass of the loop; gives False where it could not be ended.

        That is where the worker is to end, and a batch will not come.

        If the worker is to end, it still takes the batch that is under way: groups are in the
        middle of their unrolls, and between two passes is the only state that can be gone on from
        exactly.
        """
        try:
            self._projection.run()
        except Stopped:
            return False
        return True

    def agree(self, stop: bool, save: bool) -> tuple[bool, bool]:
        """Gives the actions to take now: with other replicas, those wanted by any an update ago."""
        sharded = self.learner.sharded
        if sharded is None or self.learner.progress.replicas == 1:
            return stop, save
        stop, save = sharded.agree(stop, save)
        return stop, save

    def add_seconds(self, seconds: SecondsByKind) -> None:
        """Adds to the next report what workers elsewhere spend their time on; any thread may."""
        for kind, own in seconds.items():
            self.learner.progress.busy[kind].add(own)

    def report(self) -> dict[str, Any]:
        """Gives a line of metrics: since the last report, or over the last 100 episodes."""
        changed = {f"settings/{name}": x for name, x in self.learner.settings.moving.items()}
        return {**self.learner.progress.report(), **changed, **self.environments.report()}

    def state(self) -> Tree:
        """Gives everything that the rest of the run depends on; all replicas call it together."""
        states = self.environments.states()
        body = pack({str(group): state for group, state in states.items()})
        if self.learner.progress.replicas > 1:
            parts = [unpack(part.copy()) for part in gathered(body)]
            body = pack({group: state for part in parts for group, state in part.items()})
        return {**self.learner.state(), "environments": body}

    def acting_state(self) -> Tree:
        """Gives the part of `state` that acting needs, and an export holds."""
        return {
            "learners": {
                name: {part: x for part, x in state._asdict().items() if part in _ACTING}
                for name, state in self.learner.states.items()
            }
        }

    def begin_from(self, source: Fixed) -> list[str]:
        """Begins with the parameters of another run; see `Learner.begin_from`."""
        return self.learner.begin_from(source)

    def restore(self, tree: Tree) -> None:
        """Goes on from a saved state, of whichever plan."""
        self.learner.restore(tree)
        if self.learner.progress.replicas > 1:
            self._expect_equal_versions()
        states = unpack(np.ascontiguousarray(tree["environments"]))
        self.environments.restore({int(group): state for group, state in states.items()})
        self.learner.progress.restart_clock()

    def save_replays(self, folder: Path) -> dict[str, str]:
        """Writes what is new in the replays; all replicas call it together, after `state`.

        Returns:
            The checksums of the files that hold the replays, by name.

        Raises:
            Unwritable: If one of the replicas cannot write.
        """
        learner = self.learner
        saved = learner.replays.save(folder, learner.progress.updates, lambda: self.alive())
        if learner.progress.replicas == 1 or not learner.replays.nbytes:
            return Saved.whole([saved])
        return Saved.whole([Saved.from_bytes(part) for part in gathered(saved.to_bytes())])

    def restore_replays(self, folder: Path, files: Files) -> None:
        """Goes on from the replays in the files that a checkpoint lists, after `restore`."""
        updates = self.learner.progress.updates
        self.learner.replays.restore(folder, files, updates, lambda: self.alive())

    def _expect_equal_versions(self) -> None:
        """Raises RunError if one replica could not read the checkpoint that another one has."""
        parts = gathered(np.array([self.learner.progress.updates], np.int64).view(np.uint8))
        versions = sorted({int(part.copy().view(np.int64)[0]) for part in parts})
        if len(versions) > 1:
            read = " and ".join(map(str, versions))
            raise RunError(f"learners have read different checkpoints: {read}; one is damaged")

    def close(self) -> None:
        """Lets go of all that was made."""
        self.environments.close()


def local_training(experiment: Experiment, replica: int = 0) -> Training:
    """The plain loop, or a replica of it: one thread steps, acts, collects and learns."""
    return Training(experiment, LocalEnvironments(experiment, replica))
