"""An experiment as its run's config.json records it, for processes that have to start quickly.

Reading command-line words takes a third of the time in which a worker starts; putting recorded
values back into what the experiment file holds takes none.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any

from srl.dataflow.plan import Fragment, Plan
from srl.errors import UserError
from srl.experiment import Experiment, config_values, load_experiment
from srl.files import parse_json
from srl.pools import NamedEnv

_PLAIN = (bool, int, float, str, type(None))


def recorded_experiment(folder: Path) -> Experiment:
    """The experiment of a run whose folder `open_run` would accept.

    Raises:
        UserError: When `config.json` is damaged, or the experiment file cannot be imported.
    """
    file = folder / "config.json"
    try:
        config = parse_json(file.read_bytes())
        target, recorded = config["target"], config["experiment"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"cannot read {file}: {error}") from error
    source = folder / "experiment.py" if config["source"] else None
    directory = Path(config["directory"])
    # The file's values may need the overrides to be valid; a record may not fit the code.
    with suppress(UserError, AttributeError, KeyError, TypeError):
        loaded = load_experiment(target, source=source, directory=directory)
        experiment = put_back(loaded.experiment, recorded)
        if json.loads(json.dumps(config_values(experiment))) == recorded:
            return experiment
    words = config["overrides"]
    return load_experiment(target, words, source=source, directory=directory).experiment


def put_back(value: Any, recorded: Any) -> Any:
    """`value` with its plain fields as `config_values` recorded those of another.

    What cannot be told from its record stays as it is.
    """
    if isinstance(value, Plan):
        return _plan(recorded)
    if isinstance(value, str | NamedEnv) and isinstance(recorded, Mapping):  # an environment's id
        return NamedEnv(recorded["id"], recorded["arguments"])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        old = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        new = {name: put_back(item, recorded.get(name, item)) for name, item in old.items()}
        changed = {name: item for name, item in new.items() if item is not old[name]}
        return dataclasses.replace(value, **changed) if changed else value
    if isinstance(value, Mapping) and isinstance(recorded, Mapping):
        return {name: put_back(value.get(name), item) for name, item in recorded.items()}
    if isinstance(value, tuple) and isinstance(recorded, list):
        return tuple(recorded)
    unclear = value is None and isinstance(recorded, str)  # a path is recorded as text too
    plain = isinstance(value, _PLAIN) and isinstance(recorded, _PLAIN)
    return recorded if plain and not unclear and not isinstance(value, Enum) else value


def _plan(recorded: Mapping[str, Any]) -> Plan:
    fragments = {}
    for name, record in recorded["fragments"].items():
        values = {key: item for key, item in record.items() if key != "type"}
        fragments[name] = Fragment(**{**values, "nodes": tuple(values["nodes"])})
    # "memory" is of runs from before recurrent memory always travelled.
    values = {key: item for key, item in recorded.items() if key not in ("type", "memory")}
    return Plan(**{**values, "fragments": fragments})
