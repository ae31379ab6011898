"""A gate's runs: one for each seed, each with a folder and a record of its origin."""

from __future__ import annotations

import datetime
import json
import platform
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from srl.config.experiment import Experiment
from srl.core.config_values import config_values, flat_values
from srl.core.errors import RunError
from srl.extras.bench.gpu import machine
from srl.extras.plot.runs import Run, read_run
from srl.record.files import parse_json, short_path, write_output
from srl.run.managed_run import ManagedRun
from srl.run.metrics import is_evaluation
from srl.system.child_process import child_command
from tools.gates.table import Gate

UNKNOWN = "unknown"
_EPISODES = 100
_CODE = ("srl", "csrc")  # the folders that a run's result depends on
_CHECKOUT = Path(__file__).parents[2]


class Returns(NamedTuple):
    """The two figures of a run."""

    end: float
    """The last report's return; of a gate with evaluation, the greedy policy's at the end."""
    lowest: float
    """The lowest report of the last third of training."""


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
        """Runs it to its end, or continues it, unless that was done before.

        The run's process shows its progress on standard error.

        Raises:
            UserError: If the folder holds a run with other settings.
            RunError: If the run fails.
        """
        self.kept.expect_same_settings("--runs")
        if self.finished():
            return
        self._record_origin()
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

    @property
    def _origin_file(self) -> Path:
        return self.path.with_name(f"{self.path.name}.json")  # its own folder must begin empty

    def origin(self) -> dict[str, Any]:
        """The `commits` that trained it, the `machine`, and the `date` of its newest start."""
        if not self._origin_file.exists():
            return {"commits": [UNKNOWN], "machine": {}, "date": ""}
        return parse_json(self._origin_file.read_bytes())

    def _record_origin(self) -> None:
        earlier = self.origin()["commits"] if self.kept.begun else []
        here = {**machine(), "python": platform.python_version()}
        origin = {
            "commits": list(dict.fromkeys([*earlier, code_version()])),
            "date": datetime.datetime.now().isoformat(timespec="seconds"),
            "machine": {key: value for key, value in here.items() if key != "date"},
        }
        self._origin_file.parent.mkdir(parents=True, exist_ok=True)
        write_output(self._origin_file, (json.dumps(origin) + "\n").encode())

    def read(self) -> Run:
        """Reads the run's folder, without evaluations of versions during training."""
        run = read_run(self.path)
        trained = [report for report in run.reports if not is_evaluation(report)]
        return replace(run, reports=trained)

    def returns(self) -> Returns:
        """Reads the run's returns, NaN where there are none; evaluates it if its gate does."""
        reports = self.read().values("episode_return")
        if not len(reports):
            return Returns(np.nan, np.nan)
        last = reports[2 * len(reports) // 3 :]
        return Returns(self._evaluated() if self.gate.evaluated else last[-1], np.min(last))

    def _evaluated(self) -> float:
        words = ["eval", str(self.path), "--episodes", str(_EPISODES), "--json"]
        command = child_command("srl.api.cli", *words, dies_with_parent=True)
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        if done.returncode:
            raise RunError(f"`srl {' '.join(words)}` ended with code {done.returncode}")
        return float(json.loads(done.stdout)["results"]["episode_return"]["mean"])

    def seconds(self) -> float:
        """Counts the seconds of training."""
        return 3600 * float(self.read().hours()[-1])


def code_version() -> str:
    """The last commit that changed srl's code, with a + if files have changed since."""

    def git(*words: str) -> str:
        command = ["git", *words, "--", *_CODE]
        done = subprocess.run(command, cwd=_CHECKOUT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    commit = git("log", "-1", "--format=%h", "--abbrev=10")
    return f"{commit}{'+' * bool(git('status', '--porcelain'))}" if commit else UNKNOWN


def settings_of(experiment: Experiment) -> dict[str, Any]:
    """All settings by name, but the seed, and the plan, which the machine may decide."""
    values = config_values(replace(experiment, algorithm=experiment.settled_algorithm))
    kept = {key: value for key, value in values.items() if key not in ("seed", "plan")}
    return flat_values(json.loads(json.dumps(kept)))
