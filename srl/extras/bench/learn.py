"""The speed of a compiled `learn` on a batch: `srl bench learn`."""

from __future__ import annotations

from srl.config.experiment import load_experiment
from srl.extras.bench.alone import learn_alone
from srl.extras.bench.rounds import in_turns, median, repeated, show, training_arguments
from srl.system.compilation import keep_compiled_programs

_NOTES = """A sample is one step of one slot, however often the algorithm goes through it. What is
not listed goes to the experiment: --num-envs 256."""


def main(argv: list[str]) -> int:
    """`srl bench learn [FILE|ENV_ID] ... [--json]`."""
    parser = training_arguments("learn", "native:CartPole-v1", 5.0, _NOTES)
    options, overrides = parser.parse_target(argv)
    experiment = load_experiment(options.target, overrides, flags=options.flags).experiment
    keep_compiled_programs()
    learn, samples = learn_alone(experiment)
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
