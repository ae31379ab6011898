"""A run of `srl run` in a folder of its own: begun once, and gone on with where it stopped."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from srl.config.experiment import Experiment, load_experiment
from srl.core.errors import UserError
from srl.record.checkpoint import Checkpoints
from srl.record.files import short_path
from srl.record.run_record import RunFolder, read_config
from srl.run.folder import open_run, record, recorded
from srl.run.metrics import is_evaluation, newest_first
from srl.run.status import OUTCOME_FILE, read_outcome
from srl.run.terminal import DONE
from srl.run.train_loop import finished
from srl.system.child_process import child_command, program_command


@dataclass(frozen=True)
class ManagedRun:
    """A run that a command makes, and reads."""

    path: Path
    """The run's folder, which need not exist."""
    arguments: tuple[str, ...]
    """The arguments of `srl run`; the target first."""

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment to run.

        Raises:
            UserError: If the arguments do not fit.
        """
        target, *overrides = self.arguments
        return load_experiment(target, overrides).experiment

    @property
    def begun(self) -> bool:
        """True if there is a run to go on with."""
        return RunFolder(self.path).config.exists()

    def newest_first(self) -> Iterator[Mapping[str, Any]]:
        """Yields the lines of its metrics, with those of evaluations, the last one first."""
        with suppress(OSError):  # there is none yet
            yield from newest_first(self.path)

    def progress(self) -> float:
        """The share of its budget that is used up, by its last report."""
        trained = (report for report in self.newest_first() if not is_evaluation(report))
        last = next(trained, None)
        return 0.0 if last is None else self.share_of(last)

    def share_of(self, report: Mapping[str, Any]) -> float:
        """The share of its budget that was used up at a report."""
        updates, env_steps = self.experiment.updates, self.experiment.env_steps
        done = report["env_steps"] / env_steps if updates is None else report["updates"] / updates
        return min(done, 1.0)

    def finished(self) -> bool:
        """Tells if its budget is used up, its target is reached, or a hook has ended it.

        A run whose configuration is damaged is not finished; `expect_same_settings` tells why.
        """
        try:
            if not self.begun or self._recorded() != self.arguments:
                return False
        except UserError:
            return False
        if read_outcome(self.path) == DONE:
            return True
        checkpoints = Checkpoints(RunFolder(self.path).checkpoints)
        return bool(finished(self.experiment, checkpoints))

    def expect_same_settings(self, option: str) -> None:
        """Raises UserError if the folder holds a run of other arguments.

        Args:
            option: The command-line option by which another folder can be chosen.
        """
        if not self.begun:
            return
        open_run(self.path, to_train=True)
        if (arguments := self._recorded()) != self.arguments:
            raise UserError(
                f"{short_path(self.path)} holds another run, of `srl run {' '.join(arguments)}`; "
                f"remove it, or give {option} another folder"
            )

    def change(self) -> None:
        """Gives a run that has begun, and ended, these arguments in place of its own.

        Raises:
            UserError: If they are wrong, or another process trains the run.
        """
        if self._recorded() == self.arguments:
            return
        folder, (target, *overrides) = RunFolder(self.path), self.arguments
        config = {**read_config(folder), "target": target, "overrides": overrides}
        resolved = recorded(folder, config)
        with folder.locked():
            (self.path / OUTCOME_FILE).unlink(missing_ok=True)  # it goes on
            record(folder, resolved)

    def _recorded(self) -> tuple[str, ...]:
        config = read_config(RunFolder(self.path))
        return (config["target"], *config["overrides"])

    def child_command(self) -> list[str]:
        """The command of a process that trains it to its end, and ends with this thread."""
        words = self._resumed if self.begun else self._run
        return child_command("srl.api.cli", *words, dies_with_parent=True)

    def shell_command(self, **python: str) -> str:
        """The same for a shell, which becomes that process: also if it is run again later."""
        run, resumed = (
            shlex.join(program_command("srl", *words, **python))
            for words in (self._run, self._resumed)
        )
        config = shlex.quote(str(RunFolder(self.path.absolute()).config))
        return f"[ -e {config} ] && exec {resumed}; exec {run}"

    @property
    def _run(self) -> tuple[str, ...]:
        return ("run", *self.arguments, "--run-dir", str(self.path.absolute()))

    @property
    def _resumed(self) -> tuple[str, ...]:
        # It may have been killed early. The command that begins runs has looked at it; hosts may
        # know another user's key.
        return ("resume", str(self.path.absolute()), "--anew", "--trust")
