"""The subcommand `srl check-env`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from srl.core.console.arguments import Arguments, number
from srl.extras.check_env.child import findings_of_child
from srl.extras.check_env.report import Settings
from srl.pools.config import environment_options


def main(argv: list[str]) -> int:
    """`srl check-env ID|MODULE:FACTORY [--seed S] [--steps N] [--seconds S] [--json]`."""
    parser = Arguments(
        "check-env",
        description="Checks that an environment keeps the promises that training relies on.",
        epilog="Options of the environment are --env.NAME VALUE. The exit code is 0 if nothing "
        "needs a fix, otherwise 1.",
    )
    add = parser.add_argument
    add("env", metavar="ID|MODULE:FACTORY", help="CartPole-v1, native:..., my_module:make_env")
    add("--seed", type=number(0), default=0, metavar="S", help="default 0")
    steps = "at most, a check; default 1000"
    add("--steps", type=number(1), default=1000, metavar="N", help=steps)
    add(
        "--seconds",
        type=number(1e-3),
        default=5.0,
        metavar="S",
        help="at most, a check; default 5. A step or reset that takes twice as long is a hang; "
        "making an environment may take at least a minute",
    )
    add("--json", action="store_true", help="one JSON object a line")
    options, rest = parser.parse_known_args(argv)
    played = options.steps, options.seconds, options.seed
    code = 0
    for finding in findings_of_child(Settings(options.env, *played, environment_options(rest))):
        if finding.verdict == "fix":
            code = 1
        text = f"{finding.verdict:8} {finding.check:13} {finding.text}"
        sys.stdout.write((json.dumps(asdict(finding)) if options.json else text) + "\n")
        sys.stdout.flush()
    return code
