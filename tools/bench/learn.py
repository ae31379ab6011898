"""The speed of a compiled `learn` on a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from srl.config.experiment import Experiment, load_experiment
from srl.core.lazy import jax
from srl.extras.bench.alone import going_on, started
from srl.extras.bench.rounds import in_turns, median, repeated, show, training_arguments
from srl.system.compilation import keep_compiled_programs
from tools.bench import PROGRAM

_NOTES = """A sample is one step of one slot, however often the algorithm goes through it. What is
not listed goes to the experiment: --num-envs 256."""


def main(argv: list[str]) -> int:
    """`bench learn [FILE|ENV_ID] ... [--json]`."""
    parser = training_arguments("learn", "native:CartPole-v1", 5.0, _NOTES, program=PROGRAM)
    options, overrides = parser.parse_target(argv)
    experiment = load_experiment(options.target, overrides, flags=options.flags).experiment
    keep_compiled_programs()
    learn, samples = _learn_alone(experiment)
    sides = {"learn": repeated(learn, samples)}
    rates = in_turns(sides, options.seconds, options.rounds)["learn"]
    length, num_envs = experiment.algorithm.unroll_length, experiment.num_envs
    line = {
        "name": "learn",
        "config": {"env": options.target, "num_envs": num_envs, "unroll_length": length},
        "value": median(rates),
        "unit": "samples/s",
        "samples": samples,
        "rounds": rates,
    }
    milliseconds = 1e3 * samples / median(rates)
    text = f"{samples:,} samples in {milliseconds:,.2f} ms: {line['value']:,.0f} samples/s"
    show(line, text, options.json)
    return 0


def _learn_alone(experiment: Experiment) -> tuple[Callable[[], Any], int]:
    """A compiled `learn`, and how many samples it learns from.

    A call waits for its result, and learns on from where the last one ended: algorithms with a
    replay take no gradient step before there is enough in it. The unroll's steps repeat the first.
    """
    _, policy_set, states, unroll = started(experiment)
    learn = jax.jit(policy_set.learn, donate_argnums=(0, 1))
    return going_on(learn, states, policy_set.empty_replays(unroll), unroll), unroll.log_prob.size
