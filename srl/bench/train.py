"""How fast whole training goes, under one plan or several: `srl bench train`."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from typing import Any

from srl.bench.alone import act_alone, learn_alone
from srl.bench.rounds import (
    Rates,
    in_turns,
    median,
    parse_training,
    repeated,
    training_arguments,
)
from srl.dataflow.plans import resolve
from srl.experiment import Experiment, load_experiment
from srl.launch.local import make_trainer

_NOTES = """Plans are separated by commas and train in turns. The ratio is to what act and learn,
compiled and each alone in the same round, would allow one after the other. What is not listed goes
to the experiment: --num-envs 256."""
_ACT, _LEARN = "act alone", "learn alone"


def main(words: list[str]) -> int:
    """`srl bench train FILE|ENV_ID [--plan NAME,NAME] ... [--json]`."""
    parser = training_arguments("train", None, 20.0, _NOTES)
    parser.add_argument("--plan", metavar="NAMES", help="such as fused,inline; default: its own")
    options, overrides = parse_training(parser, words)
    plans = options.plan.split(",") if options.plan else [None]
    experiments = {}
    for name in plans:
        chosen = [*overrides, "--plan", name] if name else overrides
        experiment = load_experiment(options.target, chosen).experiment
        experiments[name or _own_plan(experiment)] = experiment
    rates = _measure(experiments, options.seconds, options.rounds)
    allowed = _allowed(rates)
    for name, experiment in experiments.items():
        line = _line(options.target, name, experiment, rates[name], allowed)
        sys.stdout.write((json.dumps(line) if options.json else _text(line)) + "\n")
    return 0


def _own_plan(experiment: Experiment) -> str:
    plan = resolve(experiment.plan, experiment.env)
    return plan if isinstance(plan, str) else plan.name


def _measure(experiments: dict[str, Experiment], seconds: float, rounds: int) -> Rates:
    """Env steps per second of each plan, and of act and learn alone."""
    experiment = next(iter(experiments.values()))
    num_envs = experiment.num_envs
    sides = {}
    with ExitStack() as opened:
        for name, each in experiments.items():
            trainer = make_trainer(each)
            opened.callback(trainer.close)
            trainer.start()
            sides[name] = repeated(trainer.update, each.num_envs * each.algorithm.unroll_length)
        learn, _ = learn_alone(experiment)
        sides[_ACT] = repeated(act_alone(experiment, num_envs), num_envs)
        sides[_LEARN] = repeated(learn, num_envs * experiment.algorithm.unroll_length)
        return in_turns(sides, seconds, rounds)


def _allowed(rates: Rates) -> list[float]:
    """What act and learn would allow, one after the other, in each round."""
    pairs = zip(rates[_ACT], rates[_LEARN], strict=True)
    return [1 / (1 / act + 1 / learn) for act, learn in pairs]


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
            "vs": "act and learn alone",
        },
        "value": median(rates),
        "unit": "env_steps/s",
        "rounds": rates,
        "vs_value": median(allowed),
        "ratio": median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
    }


def _text(line: dict[str, Any]) -> str:
    rounds = line["rounds"]
    return (
        f"{line['config']['plan']:<18} {line['value']:>12,.0f} env steps/s"
        f"  ({min(rounds):,.0f} to {max(rounds):,.0f})"
        f"  {line['ratio']:.2f} of act and learn alone"
        f"  ({line['ratio_min']:.2f} to {line['ratio_max']:.2f})"
    )
