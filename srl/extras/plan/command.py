"""`srl plan`: what would run where, and what would cross between.

Nothing trains; one environment is made, as its observations' sizes are not known before.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from srl.config.experiment import Experiment, load_experiment
from srl.core.console.arguments import Arguments, number
from srl.core.errors import UserError
from srl.dataflow.cut import cut
from srl.dataflow.graph import Shapes
from srl.dataflow.plan import Plan, num_groups, shortage
from srl.dataflow.plans import compiles_unrolls, idle_gpu
from srl.dataflow.trace import trace
from srl.evaluation.background import beside
from srl.extras.plan.scene import Scene, nbytes
from srl.pools import make_pool
from srl.record.files import expect_place, write_output
from srl.system.background.cpu_limit import cores_granted
from srl.system.gpus import machine_gpus
from srl.system.shared_memory import available_bytes

FPS = 100_000.0
"""Environment steps a second that rates are given for, unless another number is given."""


def main(argv: list[str]) -> int:
    """`srl plan FILE[:NAME]|ENV_ID [--plan NAME] [--svg OUT] [--json] [--FIELD VALUE ...]`."""
    about = "Show what would run where. Makes one environment, to know its shapes; trains nothing."
    synopsis = (
        *("FILE[:NAME]|ENV_ID", "[--plan NAME]", "[--svg OUT.svg]", "[--json]", "[--fps N]"),
        "[--FIELD VALUE ...]",
    )
    parser = Arguments("plan", description=about, synopsis=synopsis)
    parser.add_argument("--svg", type=Path, metavar="OUT.svg", help="write a picture")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--fps", type=number(1e-3), default=FPS, metavar="N", help=f"for rates; default {FPS:,.0f}"
    )
    options, overrides = parser.parse_target(argv)
    if options.svg is not None:
        if options.svg.suffix != ".svg":
            raise UserError(f"--svg is {options.svg}; expected a name that ends in .svg")
        expect_place("--svg", options.svg)
    scene = scene_of(
        load_experiment(options.target, overrides, flags=options.flags).experiment, options.fps
    )
    if options.svg is not None:
        from srl.extras.plan.svg import picture

        write_output(options.svg, picture(scene).encode())
    if options.json:
        sys.stdout.write(json.dumps(scene.json(), indent=2) + "\n")
    elif options.svg is None:
        from rich.console import Console

        from srl.extras.plan.terminal import draw

        draw(scene, Console())
    return 0


def scene_of(experiment: Experiment, fps: float = FPS) -> Scene:
    """The texts and numbers to draw; makes one environment to know its shapes.

    Raises:
        UserError: If the experiment or its plan cannot work.
    """
    from srl.loop.shapes import shapes_of

    if experiment.plan == "auto":
        raise UserError(
            "--plan auto measures plans when the run starts; give --plan NAME to see one"
        )
    chosen = experiment.settled_plan
    count = num_groups(chosen, experiment)
    cut(experiment.graph, chosen)  # which refuses a plan that cannot work
    with make_pool(experiment.env, 1) as pool:
        shapes = shapes_of(experiment, pool.specs, pool.rows(1)[0].timestep, count)
    graph = trace(experiment.algorithm, shapes)
    lacking = shortage(chosen, cores_granted(), len(machine_gpus()))
    warning = _lack_of_memory(chosen, shapes) or lacking or idle_gpu(chosen, experiment.env)
    compiled = chosen.is_one_program or compiles_unrolls(chosen, experiment.env)
    stepping = {chosen.home("step"): replace(chosen.fragment("step"), compiled=compiled)}
    chosen = replace(chosen, fragments={**chosen.fragments, **stepping})
    staleness = experiment.max_staleness
    processes = beside(experiment)
    return Scene(experiment.name, graph, chosen, count, staleness, fps, warning, processes)


def _lack_of_memory(plan: Plan, shapes: Shapes) -> str:
    """Says if this machine could not hold the replay; empty if it could, or is not to."""
    free, elsewhere = available_bytes(), any(f.hosts for f in plan.fragments.values())
    if elsewhere or shapes.replay_bytes <= free:
        return ""
    return (
        f"the replay takes {nbytes(shapes.replay_bytes)}, and {nbytes(free)} of memory are free "
        "here: give a smaller algorithm.replay"
    )
