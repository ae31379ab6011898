"""The command `srl export`: the policies of a run as a file that is read without srl.

A safetensors file has the parameters of all policies; an ONNX file computes the actions of one.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from srl.core.errors import UserError
from srl.core.tree import leaves_of, names_of
from srl.policies.onnx_graph import SUFFIX as ONNX
from srl.record import array_file
from srl.record.array_file import SUFFIX
from srl.record.checkpoint import Checkpoints
from srl.record.files import expect_place, writing
from srl.record.run_record import find_run, read_config
from srl.run.folder import file_metadata

_PARTS = {"params": "", "observations": "observations", "values": "values"}


def export(
    run_dir: Path,
    output: Path,
    version: int | str | None = None,
    policy: str | None = None,
    trust: bool = False,
) -> int:
    """Writes the policies of a run in the format that the suffix of `output` names.

    Args:
        run_dir: The run's folder.
        output: NAME.safetensors or NAME.onnx.
        version: Of the checkpoint, or "best"; the newest by default.
        policy: Which policy; by default all, of which an ONNX file can hold one.
        trust: As for `srl.load`, which makes ONNX files.

    Returns:
        The version that was written.

    Raises:
        UserError: For a name with another suffix, a run without such a checkpoint or policy, or a
            file that cannot be written.
    """
    formats = {SUFFIX: _write_parameters, ONNX: partial(_write_graph, trust=trust)}
    if output.suffix not in formats:
        raise UserError(
            f"{output}: the suffix names the format, and {' and '.join(formats)} are offered; "
            f"call it {output.stem}{SUFFIX} or {output.stem}{ONNX}"
        )
    expect_place("the output", output)
    return formats[output.suffix](run_dir, output, version, policy)


def _write_parameters(
    run_dir: Path, output: Path, version: int | str | None, policy: str | None
) -> int:
    """Writes parameters, normalisers, and the run's configuration.

    Names are as in the network (`policy/...`, `value/...`, `observations/...`); with several
    policies each name begins with its policy's.
    """
    folder = find_run(run_dir, trained=True)
    config = read_config(folder)
    learners, counts = Checkpoints(folder.checkpoints).learners(version)
    if policy is not None:
        learners = {policy: learners[_expect_policy(policy, learners)]}
    tensors: dict[str, np.ndarray] = {}
    for name, state in learners.items():
        outer = name if len(learners) > 1 else ""
        for part, inner in _PARTS.items():
            tree = state.get(part, {})
            names = names_of(tree, "/".join(filter(None, (outer, inner))))
            tensors.update(zip(leaves_of(names), leaves_of(tree), strict=True))
    with writing(output):
        array_file.write(output, tensors, file_metadata(config, counts, list(learners)))
    return counts["updates"]


def _write_graph(
    run_dir: Path, output: Path, version: int | str | None, policy: str | None, *, trust: bool
) -> int:
    """Writes the function that acts with a policy; see `srl.policies.onnx_graph`."""
    from srl.policies.agent import load
    from srl.policies.onnx_graph import write_policy

    agent = load(run_dir, version, trust=trust)
    names = list(agent.policies)
    if policy is None and len(names) > 1:
        raise UserError(
            f"an ONNX file holds one policy, and {agent.path} has {', '.join(names)}: choose one "
            "with --policy"
        )
    name = names[0] if policy is None else _expect_policy(policy, names)
    write_policy(agent, name, output)
    return agent.version


def _expect_policy(name: str, policies: Any) -> str:
    """Gives the name of a policy; raises UserError where there is none of that name."""
    if name not in policies:
        raise UserError(f"--policy {name}: the run has the policies {', '.join(policies)}")
    return name
