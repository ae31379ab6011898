"""An experiment as its run's config.json records it, for processes that take part in the run."""

from __future__ import annotations

from pathlib import Path

from srl.errors import UserError
from srl.experiment import Experiment, load_experiment
from srl.files import parse_json


def recorded_experiment(folder: Path) -> Experiment:
    """The experiment of a run whose folder `open_run` would accept.

    Raises:
        UserError: When `config.json` is damaged, or the experiment file cannot be imported.
    """
    file = folder / "config.json"
    try:
        config = parse_json(file.read_bytes())
        target, words, directory = config["target"], config["overrides"], config["directory"]
        source = folder / "experiment.py" if config["source"] else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"cannot read {file}: {error}") from error
    return load_experiment(target, words, source=source, directory=Path(directory)).experiment
