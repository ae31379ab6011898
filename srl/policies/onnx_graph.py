"""A policy as one ONNX graph, to act without srl and without JAX.

The graph does all that `srl.Agent.act` does with a batch: it normalises the observations, keeps
forbidden actions out, and stretches actions to the bounds of their space. jax2onnx translates the
very function that acts.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from srl.algorithms.algorithm import Instance
from srl.core.errors import UserError, described
from srl.core.lazy import jax
from srl.core.optional_packages import install_command
from srl.core.spaces import Space, narrow_dtype, space_tree
from srl.core.tree import leaves_of, map_tree, names_of
from srl.core.types import Array, Policy, Tree
from srl.policies.agent import Agent
from srl.record.files import write_output
from srl.record.run_record import RunFolder, read_config
from srl.run.folder import file_metadata

SUFFIX = ".onnx"
BATCH = "batch"
"""The name of the axis that all inputs and outputs begin with."""


def write_policy(agent: Agent, name: str, output: Path) -> None:
    """Writes one of an agent's policies, with the settings of its run; see `write_onnx`."""
    config = read_config(RunFolder(agent.path))
    counts = {"updates": agent.version, "env_steps": agent.env_steps}
    about = file_metadata(config, counts, [name])
    space = agent.specs.observation
    write_onnx(output, agent.instances[name], agent.policies[name], space, about)


def write_onnx(
    output: Path, instance: Instance, policy: Policy, space: Space, metadata: Mapping[str, str]
) -> None:
    """Writes the graph of a policy's most probable actions.

    Its inputs are `observation`, or `observation/NAME` for each array of a nested one, and with
    memory `memory`, which is zeros at the begin of an episode. Its outputs are `action`, as the
    environment takes it (nested: `action/NAME`), what the action follows from (see
    `Instance.action_outputs`), and with memory `next_memory`.

    Args:
        output: The file.
        instance: The policy's functions.
        policy: Its parameters and statistics.
        space: What the environment gives to observe.
        metadata: Texts by name, which the file holds, too.

    Raises:
        UserError: If jax2onnx is not installed or too old for this JAX, or a policy computes what
            it cannot translate, or the file cannot be written.
    """
    translator = _jax2onnx()
    (batch,) = jax.export.symbolic_shape(BATCH)
    leaves, start = space_tree(space), instance.initial_memory(1)
    observation = map_tree(
        lambda leaf: jax.ShapeDtypeStruct((batch, *leaf.shape), narrow_dtype(leaf.dtype)), leaves
    )
    memory = map_tree(lambda x: jax.ShapeDtypeStruct((batch, *x.shape[1:]), x.dtype), start)
    form = jax.tree.structure((observation, memory))
    names = [*leaves_of(names_of(leaves, "observation")), *leaves_of(names_of(start, "memory"))]

    def act(*inputs: Array) -> dict[str, Array]:
        observation, memory = form.unflatten(inputs)
        decision = instance.act_greedy(policy, observation, memory)
        return {
            **_named("action", instance.env_action(decision.action)),
            **instance.action_outputs(policy, observation, memory),
            **_named("next_memory", decision.memory),
        }

    inputs = leaves_of((observation, memory))
    outputs = list(jax.eval_shape(act, *inputs))
    try:
        model = _translated(translator, act, inputs, names, outputs)
    except AttributeError as error:  # jax2onnx reaches for names of JAX that newer ones moved
        raise UserError(
            f"jax2onnx {version('jax2onnx')} fails with JAX {jax.__version__} ({error}); write "
            f"{output.stem}.safetensors, or install an older JAX: pip install 'jax<0.12'"
        ) from error
    except Exception as error:  # of jax2onnx, whatever it is
        raise UserError(
            f"the policy cannot be written as ONNX: {described(error)}; write "
            f"{output.stem}.safetensors, or compute it with other functions of JAX"
        ) from error
    model.metadata_props.update(metadata)
    with _quiet():
        body = translator[0].to_proto(model).SerializeToString()
    write_output(output, body)


def _translated(
    translator: tuple[Any, Any, Any],
    act: Callable[..., dict[str, Array]],
    inputs: list[Any],
    names: list[str],
    outputs: list[str],
) -> Any:
    """Gives the graph of a function, for inputs of these shapes and names."""
    _, passes, to_onnx = translator
    with _quiet():
        model = to_onnx(
            lambda *inputs: tuple(act(*inputs)[name] for name in outputs),
            inputs,
            model_name="policy",
            input_names=names,
            output_names=outputs,
            return_mode="ir",
        )
        # The action and what it follows from come of the same network.
        passes.DeduplicateInitializersPass(size_limit=2**31)(model)
        passes.CommonSubexpressionEliminationPass()(model)
        passes.RemoveUnusedNodesPass()(model)
    return model


def _named(name: str, tree: Tree) -> dict[str, Array]:
    """The arrays of a tree by their names, which begin with `name`."""
    return dict(zip(leaves_of(names_of(tree, name)), leaves_of(tree), strict=True))


def _jax2onnx() -> tuple[Any, Any, Any]:
    """Imports the translator: the modules of graphs and of their passes, and the function."""
    try:
        with _quiet():
            import onnx_ir
            from jax2onnx import to_onnx
            from onnx_ir.passes import common
    except ImportError as error:
        raise UserError(
            f"srl writes ONNX with jax2onnx, which is not installed: {install_command('onnx')}"
        ) from error
    return onnx_ir, common, to_onnx


@contextmanager
def _quiet() -> Any:
    """Silences what jax2onnx and its libraries report of themselves."""
    logger = logging.getLogger("onnx_ir")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
