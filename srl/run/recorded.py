"""An experiment as its run's config.json records it, for processes that take part in the run."""

from __future__ import annotations

from pathlib import Path

from srl.experiment import Experiment
from srl.run.folder import RunFolder, read_config, recorded


def recorded_experiment(folder: Path) -> Experiment:
    """The experiment of a run whose folder `open_run` would accept.

    Raises:
        UserError: When `config.json` is damaged, or the experiment file cannot be imported.
    """
    run = RunFolder(folder)
    return recorded(run, read_config(run)).experiment
