"""Training on simulators of which some steps take long: in lock step, and as they get ready."""

from __future__ import annotations

from srl.core.console.arguments import Arguments, number
from srl.extras.bench.rounds import add_rounds, comparison, in_turns, median, show
from srl.extras.bench.train import PlanSide
from tools.bench import PROGRAM

_NOTES = """Simulators wait, each in a process, for times with a normal logarithm. What is not
listed goes to the experiment: --algorithm dqn."""
_STALENESS = "4"


def main(argv: list[str]) -> int:
    """`bench skew [--num-envs N] [--microseconds N] [--sigma X] ... [--json]`."""
    parser = Arguments("skew", program=PROGRAM, epilog=_NOTES)
    add, least = parser.add_argument, number(0.0)
    add("--num-envs", type=number(2), default=16, metavar="N", help="simulators; default 16")
    add("--microseconds", type=least, default=2000.0, metavar="N", help="mean; default 2000")
    add("--sigma", type=least, default=1.0, metavar="X", help="of the logarithm; default 1")
    add_rounds(parser, 40.0)
    options, more = parser.parse_known_args(argv)
    count = str(options.num_envs)
    common = ["--num-envs", count, "--workers", count, "--plan", "inline"]
    common += ["--env.microseconds", str(options.microseconds), "--env.waits", "true"]
    common += ["--env.sigma", str(options.sigma), "--plan.actors.replicas", "1"]
    common += more or ["--algorithm", "appo"]
    together, ready = "in lock step", "as they get ready"
    target, stale = "srl.extras.bench.busy:Busy", ["--max-staleness", _STALENESS]
    sides = {
        together: PlanSide(target, [*common, "--groups", "1"]),
        ready: PlanSide(target, [*common, *stale]),
    }
    rates = in_turns(sides, options.seconds, options.rounds)
    ratios = [own / other for own, other in zip(rates[ready], rates[together], strict=True)]
    compared = comparison(rates[together], ratios)
    line = {
        "name": "skew",
        "config": {
            "num_envs": options.num_envs,
            "microseconds": options.microseconds,
            "sigma": options.sigma,
            "options": more,
            "vs": together,
        },
        "value": median(rates[ready]),
        "unit": "env_steps/s",
        "rounds": rates[ready],
        **compared,
    }
    text = (
        f"{line['value']:,.0f} env steps/s {ready}, {compared['vs_value']:,.0f} {together}: "
        f"{compared['ratio']:.2f} times as many "
        f"({compared['ratio_min']:.2f} to {compared['ratio_max']:.2f})"
    )
    show(line, text, options.json)
    return 0
