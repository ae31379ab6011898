"""The subcommand `srl bench`."""

from __future__ import annotations

import json
import sys
from typing import Any

from srl.arguments import Arguments
from srl.errors import UserError


def bench(words: list[str]) -> int:
    """`srl bench pool --env ID [--num-envs N] ... [--json]`."""
    if not words or words[0] in ("-h", "--help"):
        sys.stdout.write("usage: srl bench pool --env ID ...; see srl bench pool --help\n")
        return 0
    if words[0] != "pool":
        raise UserError(f"there is no benchmark {words[0]!r}; there is: pool")
    return _pool(words[1:])


def _pool(words: list[str]) -> int:
    parser = Arguments("bench pool")
    parser.add_argument("--env", required=True, metavar="ID")
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--batch-size", type=int, help="fewer than all: asynchronous")
    parser.add_argument("--threads", type=int, default=0, help="default: one for each core")
    parser.add_argument("--policy", choices=("uniform", "sticky"), default="uniform")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options, rest = parser.parse_known_args(words)
    if options.seconds <= 0:
        raise UserError(f"--seconds {options.seconds}; expected more than 0")
    from srl.bench.pool import bench_pool

    line = bench_pool(
        options.env,
        options.num_envs,
        options.batch_size,
        options.threads,
        options.policy,
        options.seconds,
        _environment_options(rest),
    )
    if options.json:
        sys.stdout.write(json.dumps(line) + "\n")
    else:
        settings = ", ".join(f"{name}={value}" for name, value in line["config"].items())
        sys.stdout.write(f"{line['value']:,.0f} env steps/s ({line['per_thread']:,.0f} a thread)\n")
        sys.stdout.write(f"{settings}\n")
    return 0


def _environment_options(words: list[str]) -> dict[str, Any]:
    """`--scenario full --hiders 3` as {"scenario": "full", "hiders": 3}."""
    if len(words) % 2 or any(not word.startswith("--") for word in words[::2]):
        raise UserError(f"{' '.join(words)!r} is not made of pairs --option value")
    return {
        name[2:].replace("-", "_"): _value(text)
        for name, text in zip(words[::2], words[1::2], strict=True)
    }


def _value(text: str) -> Any:
    """A flag or a number where the text is one."""
    try:
        value = json.loads(text.lower())
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float) else text
