"""Light actors served by one learner and a few policy workers."""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from srl.config.experiment import Resolved, load_experiment
from srl.core.console.arguments import Arguments, number
from srl.core.errors import RunError, UserError
from srl.extras.bench.rounds import show
from srl.launch.controller import Controller
from srl.pools import make_pool
from srl.run.folder import create_run
from tools.bench import PROGRAM
from tools.bench.watched import CONTROLLER, Snapshot, WatchedHost

_IDLE = "srl.extras.bench.busy:Idle"
_NOTES = """The environment costs nothing, unless another or an experiment is named. What is not
listed goes to the experiment: --algorithm.unroll-length 16. Time on cores is user and system time,
so it does not depend on what else runs here. Memory is PSS.
"""
_PATIENCE_SECONDS = 600.0  # for all actors to begin
_WARM_SECONDS = 5.0
_BUSY = 0.9  # of the machine's cores, from which on these are the limit


def main(argv: list[str]) -> int:
    """`bench actors [FILE|ENV_ID] [--num-actors N] [--slots N] ... [--json]`."""
    synopsis = ("[FILE|ENV_ID]", "[OPTION VALUE ...]", "[--FIELD VALUE ...]")
    parser = Arguments("actors", program=PROGRAM, epilog=_NOTES, synopsis=synopsis)
    parser.set_defaults(target=_IDLE)
    add, count = parser.add_argument, number(1)
    add("--num-actors", type=count, default=256, metavar="N", help="actor processes; default 256")
    add("--slots", type=count, default=4, metavar="N", help="of each actor; default 4")
    add("--policies", type=count, default=2, metavar="N", help="policy workers; default 2")
    add("--learners", type=count, default=1, metavar="N", help="default 1")
    add(
        "--transport",
        choices=("host", "network"),
        default="host",
        help="of streams: by shared memory, or by TCP as between hosts; default host",
    )
    add("--seconds", type=number(1e-3), default=60.0, metavar="S", help="default 60")
    add("--json", action="store_true", help="print one JSON object")
    options, overrides = parser.parse_target(argv)
    line = bench_actors(options.target, options, overrides)
    show(line, _text(line), options.json)
    return 0


def bench_actors(target: str, options: Any, overrides: list[str]) -> dict[str, Any]:
    """Trains for a while, and gives the line that `--json` prints.

    Args:
        target: An experiment file or an environment id.
        options: `num_actors`, `slots`, `policies`, `learners`, `transport` and `seconds`.
        overrides: Arguments for the experiment.

    Raises:
        RunError: If the run fails, or a worker dies while it is measured.
    """
    resolved = _sized(target, options, overrides)
    experiment = resolved.experiment
    plan = experiment.settled_plan
    with TemporaryDirectory(prefix="srl-bench-", ignore_cleanup_errors=True) as place:
        folder = create_run(resolved, Path(place) / "run")
        hosts = WatchedHost(plan)
        watch = _Watch(hosts, options.num_actors, options.seconds)
        controller = Controller(
            plan,
            folder,
            watch,
            heartbeat_seconds=experiment.heartbeat_seconds,
            transport=options.transport,
            hosts=hosts,
        )
        with closing(controller):
            controller.run(watch.enough)
    names = ("num_actors", "slots", "policies", "learners", "transport", "seconds")
    config = {"env": target, **{name: getattr(options, name) for name in names}}
    config |= {
        "num_envs": experiment.num_envs,
        "unroll_length": experiment.algorithm.unroll_length,
        "max_staleness": experiment.max_staleness,
        "cores": len(os.sched_getaffinity(0)),
    }
    first, last = watch.snapshots
    found = _found(first, last, watch.bottleneck)
    return {"name": "actors", "config": config, "begin_seconds": watch.begin_seconds, **found}


def _sized(target: str, options: Any, overrides: list[str]) -> Resolved:
    """The experiment with so many workers, and as many environments as that takes."""
    with closing(
        make_pool(load_experiment(target, overrides, flags=options.flags).experiment.env, 1)
    ) as pool:
        agents = len(pool.specs.agents)
    if options.slots % agents:
        raise UserError(
            f"--slots {options.slots}: an environment has {agents} slots; expected a multiple"
        )
    options_given = ["--plan", "decoupled", "--plan.actors.replicas", str(options.num_actors)]
    options_given += ["--plan.policies.replicas", str(options.policies)]
    options_given += ["--plan.learner.replicas", str(options.learners)]
    options_given += ["--num-envs", str(options.num_actors * options.slots // agents)]
    if "--max-staleness" not in overrides:
        options_given += ["--max-staleness", "1"]
    endless = ["--updates", str(10**9), "--report-every", "1"]
    return load_experiment(target, [*options_given, *overrides, *endless])


class _Watch:
    """The run's terminal; it takes two snapshots once all actors have begun."""

    def __init__(self, hosts: WatchedHost, num_actors: int, seconds: float) -> None:
        self._hosts, self._num_actors, self._seconds = hosts, num_actors, seconds
        self._created = time.perf_counter()
        self._begun = 0.0
        self.snapshots: list[Snapshot] = []
        self.bottleneck = ""
        """The bottleneck in the last report; empty before the first."""

    @property
    def begin_seconds(self) -> float:
        return self._begun - self._created

    def say(self, text: str) -> None:
        sys.stderr.write(text + "\n")

    def report(self, metrics: Mapping[str, Any]) -> None:
        self.bottleneck = metrics["bottleneck"]

    def enough(self) -> bool:
        """Tells if the run may end; called several times a second."""
        now = time.perf_counter()
        if not self._begun:
            reports = self._hosts.reports.items()
            stepped = [name for name, each in reports if each.counters.get("env_steps", 0) > 0]
            if len(stepped) == self._num_actors and self.bottleneck:
                self._begun = now
            elif now > self._created + _PATIENCE_SECONDS:
                raise RunError(
                    f"after {_PATIENCE_SECONDS:g} s {len(stepped)} of {self._num_actors} actors "
                    "step; give fewer"
                )
        elif not self.snapshots and now > self._begun + _WARM_SECONDS:
            self.snapshots.append(self._hosts.snapshot(first=True))
        elif len(self.snapshots) == 1 and now > self.snapshots[0].time + self._seconds:
            self.snapshots.append(self._hosts.snapshot(first=False))
        return len(self.snapshots) == 2


def _found(first: Snapshot, last: Snapshot, bottleneck: str) -> dict[str, Any]:
    """Computes rates and resource use between two snapshots."""
    if again := sorted(name for name in last.pids if last.pids[name] != first.pids.get(name)):
        raise RunError(f"{', '.join(again)} died while it was measured")
    seconds = last.time - first.time
    rates = sorted(_rates(first, last, "env_steps").values())
    requests = sum(_rates(first, last, "requests").values())
    fps = sum(rates)
    if fps == 0:
        raise RunError("no environment has stepped during the measurement; give more --seconds")
    mean = fps / len(rates)
    roles = _roles(first, last)
    for role in roles.values():
        role["us_per_env_step"] = 1e6 * role["cores"] / fps
    busy, there = (b - a for a, b in zip(first.machine, last.machine, strict=True))
    own = sum(role["cores"] for role in roles.values()) * seconds
    most = max(roles, key=lambda name: roles[name]["cores"])
    limit = bottleneck
    if busy / there > _BUSY:
        share = roles[most]["cores"] * seconds / own
        limit = f"this machine's cores: {most} take {share:.0%} of what the run gets of them"
    return {
        "value": fps,
        "unit": "env_steps/s",
        "spread": {"min": rates[0] / mean, "max": rates[-1] / mean},
        "requests_per_second": requests,
        "controller_messages_per_second": (last.messages - first.messages) / seconds,
        "roles": roles,
        "machine_busy": busy / there,
        "own_share": own / there,
        "limit": limit,
        "bottleneck": bottleneck,
    }


def _rates(first: Snapshot, last: Snapshot, counter: str) -> dict[str, float]:
    """Computes the growth of a counter per second between two snapshots, by worker."""
    rates = {}
    for name, report in last.reports.items():
        before = first.reports[name]
        if counter in report.counters:
            grown = report.counters[counter] - before.counters.get(counter, 0.0)
            rates[name] = grown / (report.time - before.time) if report.time > before.time else 0.0
    return rates


def _roles(first: Snapshot, last: Snapshot) -> dict[str, dict[str, float]]:
    """Computes each role's use of cores, and the mean memory of one of its processes."""
    seconds = last.time - first.time
    names: dict[str, list[str]] = defaultdict(list)
    for name in last.pids:
        names[name if name == CONTROLLER else name.rpartition("-")[0]].append(name)

    def mean(values: Mapping[str, float], members: list[str]) -> float:
        return sum(values[name] for name in members) / len(members)

    return {
        role: {
            "processes": len(members),
            "cores": sum(last.cpu[name] - first.cpu[name] for name in members) / seconds,
            "memory_mb": mean(last.memory, members) / 1e6,
            "growth_mb": (mean(last.memory, members) - mean(first.memory, members)) / 1e6,
        }
        for role, members in names.items()
    }


def _text(line: dict[str, Any]) -> str:
    config, spread = line["config"], line["spread"]
    lines = [
        f"{config['num_actors']} actors of {config['slots']} slots, {config['policies']} policy "
        f"workers, {config['learners']} learners; all stepped after {line['begin_seconds']:.0f} s",
        f"{line['value']:,.0f} env steps/s; an actor's are {spread['min']:.2f} to "
        f"{spread['max']:.2f} times the mean",
        f"messages: {line['requests_per_second']:,.0f} requests/s and as many replies, "
        f"{line['controller_messages_per_second']:,.0f}/s to the controller",
        "role         processes   cores  us/env step  MB each    grew",
    ]
    for name, role in line["roles"].items():
        lines.append(
            f"{name:<12} {role['processes']:>9} {role['cores']:>7.3f} "
            f"{role['us_per_env_step']:>12.1f} {role['memory_mb']:>8.1f} {role['growth_mb']:>7.2f}"
        )
    lines.append(f"cores are busy for {line['machine_busy']:.0%}, for {line['own_share']:.0%} here")
    lines.append(f"limit: {line['limit']}")
    return "\n".join(lines)
