"""The speed of whole training runs, under one plan or several: `srl bench train`."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from srl.config.experiment import Experiment, load_experiment
from srl.core.errors import RunError
from srl.extras.bench.alone import loop_alone
from srl.extras.bench.rounds import (
    Interrupted,
    Rates,
    comparison,
    in_turns,
    median,
    repeated,
    show,
    training_arguments,
)
from srl.loop.stage import Stage
from srl.run.metrics import is_evaluation
from srl.run.status import read_reason, read_stage
from srl.system.child_process import child_command

_NOTES = """Plans are separated by commas. Each trains for a while in every round, in a run of its
own as `srl run` makes it. The ratio is to the loop alone in the same round: acting and learning as
one compiled program, whose environments take no time. Only plans that act while they learn can be
faster. What is not listed goes to the experiment: --num-envs 256.
"""
_ALONE = "loop alone"
_ENDLESS = "1000000000"  # updates
_PATIENCE_SECONDS = 300.0
_STOP_SECONDS = 60.0
FIRST_REPORT = "first report"
"""The name in `PlanSide.stages` of the first report."""


class OutOfTime(RunError):
    """A measurement without a figure at its deadline."""


def main(argv: list[str]) -> int:
    """`srl bench train FILE|ENV_ID [--plan NAME,NAME] ... [--json]`."""
    parser = training_arguments("bench train", None, 20.0, _NOTES)
    parser.add_argument("--plan", metavar="NAMES", help="such as fused,inline; default: its own")
    options, overrides = parser.parse_target(argv)
    sides: dict[str, PlanSide] = {}
    experiments: dict[str, Experiment] = {}
    for name in options.plan.split(",") if options.plan else [None]:
        chosen = [*overrides, "--plan", name] if name else overrides
        experiment = load_experiment(options.target, chosen, flags=options.flags).experiment
        name = name or experiment.settled_plan.name
        sides[name], experiments[name] = PlanSide(options.target, chosen), experiment

    def show_all(rates: Rates) -> None:
        for name, experiment in experiments.items():
            line = _line(options.target, name, experiment, rates[name], rates[_ALONE])
            show(line, _text(line), options.json)

    try:
        show_all(_measure(experiments, sides, options.seconds, options.rounds))
    except Interrupted as stopped:
        if stopped.rates[_ALONE]:
            show_all(stopped.rates)
        raise
    return 0


class PlanSide:
    """Runs of an experiment under one plan, each in processes of its own."""

    def __init__(
        self,
        target: str,
        overrides: list[str],
        environment: Mapping[str, str] = MappingProxyType({}),
        report_every: int = 1,
        deadline: float = math.inf,
        stop_seconds: float = _STOP_SECONDS,
    ) -> None:
        """Takes what `srl run` takes.

        Args:
            target: The experiment.
            overrides: Its options.
            environment: Variables of the runs, on top of this process' own.
            report_every: Updates between two reports of the first run.
            deadline: Time, by `time.monotonic`, after which no report is waited for.
            stop_seconds: Seconds that a run may take to end before it is killed, at the deadline
                at the latest.
        """
        self._command = child_command(
            "srl.api.cli", "run", target, *overrides, dies_with_parent=True
        )
        self._environment = {**os.environ, **environment}
        self._report_every, self._deadline = report_every, deadline
        self._stop_seconds = stop_seconds
        self.stages: dict[str, float] = {}
        """Seconds from the start of the last run to each stage that it has been in, and to its
        first report."""

    def __call__(self, seconds: float) -> float:
        """Trains for so long after the first report, and gives env steps per second."""
        first, last = self.reports(seconds)
        return (last["env_steps"] - first["env_steps"]) / (last["time"] - first["time"])

    def reports(self, seconds: float) -> tuple[dict[str, Any], dict[str, Any]]:
        """Trains for so long after the first report, or until the deadline.

        Returns:
            The first report and the last one.

        Raises:
            OutOfTime: If there are no two reports by the deadline.
            RunError: With the run's own error, if it ends by itself.
        """
        with TemporaryDirectory() as folder, self._run(Path(folder)) as run:
            first = last = self._next_report(run, Path(folder), after=0.0)
            try:
                while last["time"] - first["time"] < seconds:
                    last = self._next_report(run, Path(folder), after=last["time"])
            except OutOfTime:
                if last is first:
                    raise
        # Reports take time too: about ten in the next round.
        updates = (last["updates"] - first["updates"]) / (last["time"] - first["time"])
        self._report_every = max(1, round(updates * seconds / 10))
        return first, last

    def until(self, reached: Callable[[dict[str, Any]], bool]) -> tuple[float, dict[str, Any]]:
        """Trains until a report is as wanted; gives that, and the seconds since the run's start.

        Raises:
            RunError: With the run's own error, if it ends by itself.
        """
        begin = time.time()
        with TemporaryDirectory() as folder, self._run(Path(folder)) as run:
            report = self._next_report(run, Path(folder), after=0.0)
            while not reached(report):
                report = self._next_report(run, Path(folder), after=report["time"])
        return report["time"] - begin, report

    @contextlib.contextmanager
    def _run(self, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
        """A run in a folder, interrupted at the end."""
        argv = ["--updates", _ENDLESS, "--report-every", str(self._report_every)]
        argv += ["--run-dir", str(folder / "run")]
        self._begin, self.stages = time.monotonic(), {}
        with (folder / "output").open("wb") as output:
            run = subprocess.Popen(
                [*self._command, *argv], stdout=output, stderr=output, env=self._environment
            )
        try:
            yield run
        finally:
            run.send_signal(signal.SIGINT)
            left = max(0.0, self._deadline - time.monotonic())
            try:
                run.wait(min(self._stop_seconds, left))
            except subprocess.TimeoutExpired:
                pass
            finally:
                run.kill()
                run.wait()

    def _next_report(
        self, run: subprocess.Popen[bytes], folder: Path, after: float
    ) -> dict[str, Any]:
        """The last line of metrics, once there is one that was written after a time."""
        deadline = min(time.monotonic() + _PATIENCE_SECONDS, self._deadline)
        while run.poll() is None and time.monotonic() < deadline:
            stage = read_stage(folder / "run")
            elapsed = time.monotonic() - self._begin
            if stage is not None:
                self.stages.setdefault(stage[0], elapsed)
            with contextlib.suppress(FileNotFoundError):
                *lines, _ = (folder / "run" / "metrics.jsonl").read_text().split("\n")
                reports = (json.loads(line) for line in reversed(lines))
                report = next((report for report in reports if not is_evaluation(report)), None)
                if report is not None and report["time"] > after:
                    self.stages.setdefault(FIRST_REPORT, elapsed)
                    return report
            time.sleep(0.02)
        if run.returncode is None:
            seconds = time.monotonic() - self._begin
            stage, _ = read_stage(folder / "run") or (Stage.STARTING, "")
            raise OutOfTime(f"the run needs longer: after {seconds:.0f} s it is {stage}")
        last = (folder / "output").read_text(errors="replace").strip().rpartition("\n")[2]
        reason = read_reason(folder / "run") or last
        raise RunError(f"the run ended with {run.returncode}: {reason}")


def _measure(
    experiments: dict[str, Experiment], plans: dict[str, PlanSide], seconds: float, rounds: int
) -> Rates:
    """Env steps per second of each plan, and of the loop alone."""
    loop, steps = loop_alone(next(iter(experiments.values())))
    return in_turns({**plans, _ALONE: repeated(loop, steps)}, seconds, rounds)


def _line(
    target: str, plan: str, experiment: Experiment, rates: list[float], allowed: list[float]
) -> dict[str, Any]:
    ratios = [own / most for own, most in zip(rates, allowed, strict=True)]
    return {
        "name": "train",
        "config": {
            "env": target,
            "plan": plan,
            "num_envs": experiment.num_envs,
            "unroll_length": experiment.algorithm.unroll_length,
            "max_staleness": experiment.max_staleness,
            "vs": _ALONE,
        },
        "value": median(rates),
        "unit": "env_steps/s",
        "rounds": rates,
        **comparison(allowed, ratios),
    }


def _text(line: dict[str, Any]) -> str:
    rounds = line["rounds"]
    return (
        f"{line['config']['plan']:<18} {line['value']:>12,.0f} env steps/s"
        f"  ({min(rounds):,.0f} to {max(rounds):,.0f})"
        f"  {line['ratio']:.2f} of the loop alone"
        f"  ({line['ratio_min']:.2f} to {line['ratio_max']:.2f})"
    )
