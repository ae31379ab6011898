"""Policies of a run as one safetensors file, to be read without srl."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from srl import array_file
from srl.array_file import SUFFIX
from srl.checkpoint import Checkpoints
from srl.errors import UserError
from srl.tree import leaves_of, names_of

_PARTS = {"params": "", "observations": "observations", "values": "values"}


def export(run_dir: Path, output: Path, version: int | str | None = None) -> int:
    """Writes the parameters and normalisers of a run's policies, and its configuration.

    Names are as in the network (`policy/...`, `value/...`, `observations/...`); with several
    policies each name begins with its policy's. The metadata hold the configuration as JSON.

    Returns:
        The version that was written.

    Raises:
        UserError: For a name with another suffix, a run without such a checkpoint, or a file that
            cannot be written.
    """
    from srl.run.folder import find_run, read_config

    if output.suffix != SUFFIX:
        raise UserError(
            f"{output}: the suffix names the format, and only {SUFFIX} is offered; "
            f"call it {output.stem}{SUFFIX}"
        )
    if not output.parent.is_dir():
        raise UserError(
            f"there is no folder {output.parent}; make it, or choose another for {output}"
        )
    folder = find_run(run_dir, trained=True)
    config = read_config(folder)
    learners, counts = Checkpoints(folder.checkpoints).learners(version)
    tensors: dict[str, np.ndarray] = {}
    for policy, state in learners.items():
        outer = policy if len(learners) > 1 else ""
        for part, name in _PARTS.items():
            tree = state.get(part, {})
            names = names_of(tree, "/".join(filter(None, (outer, name))))
            tensors.update(zip(leaves_of(names), leaves_of(tree), strict=True))
    metadata = {
        "config": json.dumps(config["experiment"]),
        "policies": json.dumps(list(learners)),
        "version": str(counts["updates"]),
        "env_steps": str(counts["env_steps"]),
        "srl": str(config.get("srl")),
    }
    try:
        array_file.write(output, tensors, metadata)
    except OSError as error:
        raise UserError(f"cannot write {output}: {error.strerror or error}") from error
    return counts["updates"]
