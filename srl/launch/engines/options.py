"""The options of commands that train on this machine or on a cluster."""

from __future__ import annotations

from typing import Any

from srl.core.console.arguments import Arguments
from srl.core.errors import UserError

OF_SBATCH = ("partition", "account", "constraint", "time")
"""The options of sbatch that `srl run` takes by their own names."""


_OF_ENGINE = {"slurm": (*OF_SBATCH, "sbatch"), "ray": ("ray_address", "ray_resource")}


def refuse_engine_options(options: Any) -> None:
    """Raises UserError for an option of an engine that does not train the run."""
    for engine, names in _OF_ENGINE.items():
        for name in names:
            if getattr(options, name) and options.on != engine:
                raise UserError(f"--{name.replace('_', '-')} goes with --on {engine}")


def add_engine(parser: Arguments) -> None:
    """Adds `--on`, and the options of the engines that it names."""
    add, engines = parser.add_argument, ("local", "slurm", "ray")
    add("--on", choices=engines, default="local", help="this machine, or a cluster")
    for name in OF_SBATCH:
        add(f"--{name}", metavar="...", help="as for Slurm's sbatch")
    more = "more for sbatch; repeatable"
    add("--sbatch", action="append", default=[], metavar="OPTION", help=more)
    address = "of the cluster, for Ray's job API"
    add("--ray-address", metavar="http://HEAD:8265", help=address)
    resource = "custom resource of hosts that see the run's folder"
    add("--ray-resource", metavar="NAME", help=resource)
