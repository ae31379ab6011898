"""A gate's runs: one for each seed, in a folder of its own, which is gone on with if it stopped."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from srl.config.experiment import Experiment
from srl.core.errors import RunError
from srl.extras.plot.runs import Run, read_run
from srl.record.files import short_path
from srl.run.managed_run import ManagedRun
from srl.run.metrics import is_evaluation
from tools.gates.table import Gate


@dataclass(frozen=True)
class GateRun:
    """One seed's run of a gate."""

    gate: Gate
    seed: int
    path: Path
    """The run's folder, which need not exist."""
    options: tuple[str, ...] = ()
    """Further arguments of `srl run`, such as another plan's."""

    @cached_property
    def kept(self) -> ManagedRun:
        """The run itself."""
        arguments = (*self.gate.arguments, *self.options, "--seed", str(self.seed))
        return ManagedRun(self.path, arguments)

    @property
    def experiment(self) -> Experiment:
        """The run's experiment."""
        return self.kept.experiment

    def train(self) -> None:
        """Runs it to its end, or goes on with it, where that was not done before.

        The run's process shows its progress on standard error.

        Raises:
            UserError: If the folder holds a run with other settings.
            RunError: If the run fails.
        """
        self.kept.expect_same_settings("--runs")
        if self.finished():
            return
        process = subprocess.Popen(self.kept.child_command(), stdout=sys.stderr)
        try:
            code = process.wait()
        except KeyboardInterrupt:  # which its process has got, too: it writes a checkpoint
            process.wait()
            raise
        if code or not self.finished():
            raise RunError(
                f"the run of {self.gate.name} with seed {self.seed} ended with code {code} before "
                f"its budget was used up; its log is in {short_path(self.path)}"
            )

    def finished(self) -> bool:
        """Tells if the run has used up its budget."""
        return self.kept.finished()

    def read(self) -> Run:
        """Reads the run's folder, without evaluations of versions during training."""
        run = read_run(self.path)
        trained = [report for report in run.reports if not is_evaluation(report)]
        return replace(run, reports=trained)

    def value(self) -> float:
        """The return that it came to, as its gate measures it; NaN where that is not known."""
        if self.experiment.evaluation is not None:
            return self._evaluated()
        returns = self.read().values("episode_return")
        last = returns[-(-2 * len(returns) // 3) :] if self.gate.lasting else returns[-1:]
        return float(np.min(last)) if len(last) else float("nan")

    def _evaluated(self) -> float:
        """The mean return of the episodes by which its last version was evaluated."""
        run = read_run(self.path)
        updates = run.values("updates")
        found = run.values("eval/return")[updates == updates.max(initial=0)]
        found = found[~np.isnan(found)]
        return float(found[-1]) if len(found) else float("nan")

    def seconds(self) -> float:
        """Counts the seconds of training."""
        return 3600 * float(self.read().hours()[-1])
