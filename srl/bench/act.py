"""How fast a compiled `act` decides, by the number of slots: `srl bench act`."""

from __future__ import annotations

import json
import sys

from srl.bench.alone import act_alone, first_timestep
from srl.bench.rounds import in_turns, median, parse_training, repeated, training_arguments
from srl.errors import UserError
from srl.experiment import load_experiment
from srl.launch.compilation import keep_compiled_programs

_NOTES = """Lists are separated by commas. What is not listed goes to the experiment:
--algorithm.network.width 128."""


def main(words: list[str]) -> int:
    """`srl bench act [FILE|ENV_ID] [--num-slots 8,64,256] ... [--json]`."""
    parser = training_arguments("act", "native:CartPole-v1", 2.0, _NOTES)
    parser.add_argument("--num-slots", default="8,64,256", metavar="NS", help="default 8,64,256")
    options, overrides = parse_training(parser, words)
    experiment = load_experiment(options.target, overrides).experiment
    keep_compiled_programs()
    agents = len(first_timestep(experiment, 1)[0].agents)
    sides = {
        str(size): repeated(act_alone(experiment, size // agents), size)
        for size in _sizes(options.num_slots, agents)
    }
    for size, rates in in_turns(sides, options.seconds, options.rounds).items():
        line = {
            "name": "act",
            "config": {"env": options.target, "num_slots": int(size)},
            "value": median(rates),
            "unit": "slots/s",
            "latency_us": 1e6 * int(size) / median(rates),
            "rounds": rates,
        }
        text = f"{size:>8} slots  {line['latency_us']:>10,.1f} us  {line['value']:>14,.0f} slots/s"
        sys.stdout.write((json.dumps(line) if options.json else text) + "\n")
    return 0


def _sizes(text: str, agents: int) -> list[int]:
    """The numbers of slots, which must make whole environments."""
    sizes = [int(part) if part.isdecimal() else 0 for part in text.split(",")]
    for size in sizes:
        if size == 0 or size % agents:
            raise UserError(
                f"--num-slots {text}: an environment has {agents} slots; expected multiples of "
                f"{agents}, separated by commas"
            )
    return sizes
