"""The subcommand `srl bench`."""

from __future__ import annotations

import importlib
import itertools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from srl.arguments import Arguments, table
from srl.errors import UserError, expect_number
from srl.pools.config import environment_options
from srl.search_path import add_folder

T = TypeVar("T")

_BENCHMARKS = {
    "pool": "environment steps of pools, alone or against a peer",
    "act": "decisions of a policy, by the number of slots",
    "learn": "samples that are learned from",
    "train": "whole training under one plan or several",
    "actors": "many actors, policy workers and a learner: what each role costs",
    "parameters": "new parameters, until many hosts have them",
    "stream": "blocks and messages that pass between threads, processes and hosts",
}

_NOTES = """
Lists are separated by commas; each combination is a row. What is not listed above goes to the
environment: --scenario full. Backends, for --backend and --vs:

  native           srl's C++ pool of srl's C++ environments
  srl-envpool      srl's pool over EnvPool: what envpool:Pong-v5 means
  serial           srl's pool of Gymnasium environments in one process
  processes        the same in worker processes
  envpool          EnvPool by its own Python interface
  gymnasium        Gymnasium's own vector environment of that id, else its SyncVectorEnv
  gymnasium-sync   Gymnasium's SyncVectorEnv
  gymnasium-async  Gymnasium's AsyncVectorEnv, over shared memory
  physics          a native MuJoCo environment's physics alone, without a pool

With --vs the two step in turns, and the ratio is that of neighbouring rounds: median, least and
greatest. EnvPool's threads are bound to cores where that is faster (synchronous, several threads).
"""


def bench(words: list[str]) -> int:
    """`srl bench NAME ... [--json]`."""
    if not words or words[0] in ("-h", "--help"):
        sys.stdout.write(f"usage: srl bench NAME ...\n\n{table(_BENCHMARKS)}\n\n")
        sys.stdout.write("srl bench NAME --help says more\n")
        return 0
    name, *rest = words
    if name not in _BENCHMARKS:
        raise UserError(f"there is no benchmark {name!r}; there are {', '.join(_BENCHMARKS)}")
    if name == "pool":
        return _pool(rest)
    return importlib.import_module(f"srl.bench.{name}").main(rest)


def _pool(words: list[str]) -> int:
    parser = Arguments("bench pool", epilog=_NOTES)
    add = parser.add_argument
    add("--env", required=True, metavar="IDS", help="such as native:CartPole-v1,native:Ant-v5")
    add("--backend", metavar="NAME", help="what steps them; default: the id's prefix, or serial")
    add("--num-envs", default="64", metavar="NS", help="such as 1,64; 256/64 is in batches of 64")
    add("--batch-size", type=int, metavar="N", help="fewer than all: asynchronous")
    add("--threads", default="0", metavar="NS", help="default: one for each core")
    add("--cores", metavar="NS", help="pin native threads to these cores; default: nowhere")
    add("--workers", type=int, default=0, metavar="N", help="of processes; default: one a core")
    add("--policy", choices=("uniform", "sticky"), default="uniform", help="default: uniform")
    add("--seconds", type=float, default=10.0, metavar="S", help="for each side; default 10")
    add("--rounds", type=int, default=5, metavar="N", help="after a first to warm up; default 5")
    add("--vs", metavar="NAMES", help="backends to compare with")
    add("--json", action="store_true", help="one JSON object a line")
    options, rest = parser.parse_known_args(words)
    if options.seconds <= 0:
        raise UserError(f"--seconds {options.seconds}; expected more than 0")
    expect_number("--rounds", options.rounds, 1)
    add_folder(Path.cwd())  # as `srl run` does for an environment's id
    from srl.bench.pool import bench_pool

    rows = list(_rows(options, environment_options(rest)))
    report = _json if options.json else _Table(rows)
    for backend, case, vs in rows:
        report(bench_pool(backend, case, vs, options.seconds, options.rounds))
    return 0


def _rows(options: Any, env_options: dict[str, Any]) -> Any:
    """Backend, case and peer of each row."""
    from srl.bench.backends import BACKENDS, Case, split_env

    peers = _list("--vs", options.vs, str) if options.vs else [None]
    for name in filter(None, (options.backend, *peers)):
        if name not in BACKENDS:
            raise UserError(f"there is no backend {name!r}; there are {', '.join(BACKENDS)}")
    cores = tuple(_list("--cores", options.cores, int)) if options.cores else ()
    for env, size, threads, vs in itertools.product(
        _list("--env", options.env, str),
        _list("--num-envs", options.num_envs, _size),
        _list("--threads", options.threads, int),
        peers,
    ):
        prefix, bare = split_env(env)
        backend = options.backend or ("processes" if options.workers else prefix)
        if prefix not in ("serial", backend):
            raise UserError(f"--backend {backend} and --env {env} name two backends; leave out one")
        num_envs, batch_size = size
        batch_size = options.batch_size or batch_size or num_envs
        if not 1 <= batch_size <= num_envs:
            raise UserError(f"batches of {batch_size} from {num_envs} environments; expected less")
        sizes = num_envs, batch_size, threads, options.workers, cores
        case = Case(bare, *sizes, env_options, options.policy == "sticky")
        yield backend, case, vs


def _size(text: str) -> tuple[int, int]:
    """`256/64` as 256 environments in batches of 64; 0 stands for all."""
    num_envs, _, batch_size = text.partition("/")
    return int(num_envs), int(batch_size or 0)


def _list(option: str, text: str, convert: Callable[[str], T]) -> list[T]:
    try:
        return [convert(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"{option} {text}: expected whole numbers, separated by commas") from None


def _json(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


class _Table:
    """Rows for a person to read, each printed as it is measured."""

    def __init__(self, rows: Sequence[tuple[str, Any, str | None]]) -> None:
        """Fits the columns to all `rows`."""
        self._widths = (
            max(len("backend"), *(len(backend) for backend, _, _ in rows)),
            max(len("env"), *(len(case.env) for _, case, _ in rows)),
        )
        self._compares = any(vs for *_, vs in rows)
        self._begun = False

    def _head(self) -> None:
        own, env = self._widths
        head = f"{'backend':{own}}  {'env':{env}}  {'envs':>9}  threads  {'env steps/s':>12}"
        head += f"  {'a thread':>12}"
        if self._compares:
            head += f"  {'vs':15}  {'env steps/s':>12}  {'ratio':>8}  {'from':>8}  {'to':>8}"
        self._say(head)

    def __call__(self, line: dict[str, Any]) -> None:
        """Prints a row, below the head."""
        if not self._begun:
            self._begun = True
            self._head()
        config, (own, env) = line["config"], self._widths
        size = str(config["num_envs"])
        if config["batch_size"] < config["num_envs"]:
            size += f"/{config['batch_size']}"
        text = f"{config['backend']:{own}}  {config['env']:{env}}  {size:>9}"
        text += f"  {config['threads']:>7}  {line['value']:>12,.0f}  {line['per_thread']:>12,.0f}"
        if self._compares:
            text += f"  {config['vs']:15}  {line['vs_value']:>12,.0f}  {line['ratio']:>8.2f}"
            text += f"  {line['ratio_min']:>8.2f}  {line['ratio_max']:>8.2f}"
        self._say(text)

    def _say(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
