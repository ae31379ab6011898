"""The subcommand `srl check-env`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from srl.check_env.child import findings_of_child
from srl.console.arguments import Arguments
from srl.errors import expect_number
from srl.pools.config import environment_options


def check_env(words: list[str]) -> int:
    """`srl check-env ID|MODULE:FACTORY [--seed S] [--steps N] [--seconds S] [--json]`."""
    parser = Arguments(
        "check-env",
        description="Checks that an environment keeps the promises that training relies on.",
        epilog="Options of the environment are --env.NAME VALUE. The exit code is 0 if nothing "
        "must be mended, else 1.",
    )
    add = parser.add_argument
    add("env", metavar="ID|MODULE:FACTORY", help="CartPole-v1, native:..., my_module:make_env")
    add("--seed", type=int, default=0, metavar="S", help="default 0")
    add("--steps", type=int, default=1000, metavar="N", help="at most, a check; default 1000")
    add(
        "--seconds",
        type=float,
        default=5.0,
        metavar="S",
        help="at most, a check; default 5. A step or reset that takes twice as long is a hang",
    )
    add("--json", action="store_true", help="one JSON object a line")
    given, rest = parser.parse_known_args(words)
    expect_number("--steps", given.steps, 1)
    expect_number("--seconds", given.seconds, 1e-3)
    options = environment_options(rest)
    mend = 0
    checked = given.env, given.steps, given.seconds, given.seed, options
    for finding in findings_of_child(*checked):
        mend += finding.verdict == "mend"
        line = asdict(finding)
        text = f"{finding.verdict:8} {finding.check:13} {finding.text}"
        sys.stdout.write((json.dumps(line) if given.json else text) + "\n")
        sys.stdout.flush()
    return 1 if mend else 0
