"""Policies of a run as one safetensors file, to be read without srl."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from srl.checkpoint import Checkpoints
from srl.errors import UserError
from srl.outputs import replace_whole

SUFFIX = ".safetensors"
"""What the name of an export ends in: the suffix names the format."""
_PARTS = {"params": "", "observations": "observations", "values": "values"}


def export(run_dir: Path, output: Path, version: int | None = None) -> int:
    """Writes the parameters and normalisers of a run's policies, and its configuration.

    Names are as in the network (`policy/...`, `value/...`, `observations/...`); with several
    policies each name begins with its policy's. The metadata hold the configuration as JSON.

    Returns:
        The version that was written.

    Raises:
        UserError: For a name with another suffix, a run without such a checkpoint, or a file that
            cannot be written.
    """
    from safetensors.numpy import save

    from srl.launch.folder import find_run, read_config

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
    with contextlib.closing(Checkpoints(folder.checkpoints)) as checkpoints:
        learners, counts = checkpoints.learners(version)
    tensors: dict[str, np.ndarray] = {}
    for policy, state in learners.items():
        prefix = f"{policy}/" if len(learners) > 1 else ""
        for part, name in _PARTS.items():
            for path, array in _leaves(state.get(part, {})):
                tensors[prefix + "/".join(filter(None, (name, path)))] = array
    metadata = {
        "config": json.dumps(config["experiment"]),
        "policies": json.dumps(list(learners)),
        "version": str(counts["updates"]),
        "env_steps": str(counts["env_steps"]),
        "srl": str(config.get("srl")),
    }
    try:
        replace_whole(output, _with_sorted_metadata(save(tensors, metadata)))
    except OSError as error:
        raise UserError(f"cannot write {output}: {error.strerror or error}") from error
    return counts["updates"]


def _with_sorted_metadata(body: bytes) -> bytes:
    """The same file with its metadata in order, so that equal policies make equal files.

    safetensors writes them in the order of a hash map, which is another one each time. A file is
    the length of its header (8 bytes, little endian), the header (JSON, with spaces behind it up to
    a multiple of 8 bytes), and the tensors.
    """
    size = int.from_bytes(body[:8], "little")
    header = json.loads(body[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + body[8 + size :]


def _leaves(tree: Any, path: str = "") -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(tree, Mapping):
        for name, inner in tree.items():
            yield from _leaves(inner, f"{path}/{name}" if path else name)
    else:
        yield path, tree
