"""The speed of pools, alone or against a peer: `srl bench pool`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from srl.config.experiment import file_of, load_experiment
from srl.core.console.arguments import Arguments, listed, number, one_of
from srl.core.errors import UserError
from srl.core.spaces import limits
from srl.extras.bench.actions import BATCHES, random_actions
from srl.extras.bench.backends import BACKENDS, Case, Side, Stepper, split_env
from srl.extras.bench.rounds import (
    add_rounds,
    comparison,
    in_turns,
    median,
    neighbouring_ratios,
    show,
)
from srl.pools.config import EnvConfig, environment_options
from srl.system.search_path import add_folder

_NOTES = """
Lists are separated by commas; each combination is a row. What is not listed above goes to the
environment: --env.scenario full. Backends, for --backend and --vs:

  native           srl's C++ pool of srl's C++ environments
  srl-envpool      srl's pool over EnvPool: what envpool:Pong-v5 means
  serial           srl's pool of Gymnasium environments in one process
  processes        the same in worker processes
  envpool          EnvPool by its own Python interface
  gymnasium        Gymnasium's own vector environment of that id, else its SyncVectorEnv
  gymnasium-sync   Gymnasium's SyncVectorEnv
  gymnasium-async  Gymnasium's AsyncVectorEnv, over shared memory
  bare             Gymnasium environments in a bare loop over env.step, in one process: N workers
                   reach N times as much at best
  physics          a native MuJoCo environment's physics alone, without a pool

srl.extras.bench.busy:Busy is an environment whose step takes --env.microseconds 100.

With --vs the two step in turns, and the ratio is that of neighbouring rounds: median, least and
greatest. EnvPool is first tried in three ways, of which the fastest is measured: with as many
threads, which are bound to cores where that is faster (synchronous), with one thread, and
asynchronously in halves.
"""


def bench_pool(
    backend: str, case: Case, vs: str | None, seconds: float, rounds: int
) -> dict[str, Any]:
    """Measures one case, and maybe a peer `vs`; gives the line that `--json` prints.

    Raises:
        UserError: If the two sides cannot be compared.
    """
    with ExitStack() as opened:
        own = BACKENDS[backend](case)
        opened.callback(own.close)
        peer = BACKENDS[vs](case) if vs else None
        if peer:
            opened.callback(peer.close)
            _check_alike(backend, own, vs, peer)
        sides = [side for side in (own, peer) if isinstance(side, Stepper)]
        for side in sides:  # both draw from the first one's space
            slots = case.num_envs * side.agents
            space = sides[0].action_space
            side.load(random_actions(space, slots, BATCHES, case.sticky))
        rates = {"": own.rate} | ({f" against {vs}": peer.rate} if peer else {})
        title = f"{case.env}, {case.num_envs:,} environments"
        found, *vs_rates = in_turns(rates, seconds, rounds, title).values()
    line = {
        "name": "pool",
        "config": {
            "backend": backend,
            "env": case.env,
            "num_envs": case.num_envs,
            "batch_size": own.batch_size,
            "threads": own.threads,
            "policy": "sticky" if case.sticky else "uniform",
            **case.options,
            **({"vs": vs} if vs else {}),
        },
        "value": median(found),
        "unit": "env_steps/s",
        "per_thread": median(found) / own.threads,
        "rounds": found,
    }
    if peer:
        line |= comparison(vs_rates[0], neighbouring_ratios(found, vs_rates[0]))
        line["vs_rounds"] = vs_rates[0]
        line["vs_threads"], line["vs_batch_size"] = peer.threads, peer.batch_size
        line["vs_way"] = peer.way
    return line


def _check_alike(backend: str, own: Side, vs: str | None, peer: Side) -> None:
    """Checks that both sides do the same work."""
    ours, theirs = own.action_space, peer.action_space
    if ours is None or theirs is None:  # the bare physics draw their own
        return
    if own.agents != peer.agents:
        raise UserError(f"{backend} has {own.agents} agents, {vs} {peer.agents}; not comparable")
    if _choice(ours) != _choice(theirs):
        raise UserError(
            f"the actions are {ours} with {backend}, {theirs} with {vs}; not comparable"
        )


def _choice(space: gymnasium.Space) -> tuple[Any, ...]:
    """Describes the allowed actions of a space regardless of dtype, for a comparison."""
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete):
        kind = "box" if isinstance(space, spaces.Box) else "discrete"
        return (kind, *(np.round(np.asarray(x, float), 4).tolist() for x in limits(space)))
    return (space,)


def main(argv: list[str]) -> int:
    """`srl bench pool --env IDS ... [--json]`."""
    parser = Arguments("bench pool", epilog=_NOTES)
    add = parser.add_argument
    envs = "such as native:CartPole-v1,native:Ant-v5; or experiments' files"
    add("--env", type=listed(str), required=True, metavar="IDS", help=envs)
    backend, stepping = one_of(*BACKENDS), "what steps them; default: the id's prefix, or serial"
    add("--backend", type=backend, metavar="NAME", help=stepping)
    sizes = "such as 1,64; 256/64 is in batches of 64"
    add("--num-envs", type=listed(_size), default="64", metavar="NS", help=sizes)
    add("--batch-size", type=int, metavar="N", help="fewer than all: asynchronous")
    whole_numbers = listed(number(0))
    add("--threads", type=whole_numbers, default=[0], metavar="NS", help="default: one a core")
    pinned = "pin native threads to these cores; default: nowhere"
    add("--cores", type=whole_numbers, default=[], metavar="NS", help=pinned)
    add("--workers", type=int, default=0, metavar="N", help="of processes; default: one a core")
    add("--policy", choices=("uniform", "sticky"), default="uniform", help="default: uniform")
    peers = listed(backend)
    add("--vs", type=peers, default=[None], metavar="NAMES", help="backends to compare with")
    add_rounds(parser, 10.0)
    options, rest = parser.parse_known_args(argv)
    add_folder(Path.cwd())  # as `srl run` does for an environment's id
    rows = list(_rows(options, environment_options(rest)))
    table = _Table(rows)
    for backend, case, vs in rows:
        line = bench_pool(backend, case, vs, options.seconds, options.rounds)
        show(line, table.row(line), options.json)
    return 0


def _rows(options: Any, env_options: dict[str, Any]) -> Iterator[tuple[str, Case, str | None]]:
    """Backend, case and peer of each row."""
    named = {env: _id_and_options(env) for env in options.env}
    for given, size, threads, vs in itertools.product(
        options.env, options.num_envs, options.threads, options.vs
    ):
        env, own_options = named[given]
        prefix, bare = split_env(env)
        backend = options.backend or ("processes" if options.workers else prefix)
        if prefix not in ("serial", backend):
            raise UserError(f"--backend {backend} and --env {env} name two backends; leave out one")
        num_envs, batch_size = size
        batch_size = options.batch_size or batch_size or num_envs
        if not 1 <= batch_size <= num_envs:
            raise UserError(f"batches of {batch_size} from {num_envs} environments; expected less")
        sizes = num_envs, batch_size, threads, options.workers, tuple(options.cores)
        case = Case(bare, *sizes, own_options | env_options, options.policy == "sticky")
        yield backend, case, vs


def _id_and_options(env: str) -> tuple[str, dict[str, Any]]:
    """An environment's id, and the options that it has in the file of an experiment."""
    if file_of(env)[0] is None:
        return env, {}
    given = load_experiment(env).experiment.env
    if isinstance(given, EnvConfig):
        return given.pool_id, given.options()
    if isinstance(given, str):
        return given, {}
    raise UserError(f"--env {env}: its environment is a function; name it by an id")


def _size(text: str) -> tuple[int, int]:
    """`256/64` as 256 environments in batches of 64; 0 stands for all."""
    num_envs, _, batch_size = text.partition("/")
    return number(1)(num_envs), number(0)(batch_size or "0")


class _Table:
    """Rows for a person to read; the first one has the head above it."""

    def __init__(self, rows: Sequence[tuple[str, Any, str | None]]) -> None:
        self._widths = own, env = (
            max(len("backend"), *(len(backend) for backend, _, _ in rows)),
            max(len("env"), *(len(case.env) for _, case, _ in rows)),
        )
        self._compares = any(vs for *_, vs in rows)
        self._head = f"{'backend':{own}}  {'env':{env}}  {'envs':>9}  threads  {'env steps/s':>12}"
        self._head += f"  {'a thread':>12}"
        if self._compares:
            self._head += f"  {'vs':17}  {'env steps/s':>12}"
            self._head += f"  {'ratio':>8}  {'from':>8}  {'to':>8}"
        self._head += "\n"

    def row(self, line: dict[str, Any]) -> str:
        head, self._head = self._head, ""
        config, (own, env) = line["config"], self._widths
        size = str(config["num_envs"])
        if config["batch_size"] < config["num_envs"]:
            size += f"/{config['batch_size']}"
        text = f"{config['backend']:{own}}  {config['env']:{env}}  {size:>9}"
        text += f"  {config['threads']:>7}  {line['value']:>12,.0f}  {line['per_thread']:>12,.0f}"
        if self._compares:
            vs = ", ".join(word for word in (config["vs"], line["vs_way"]) if word)
            text += f"  {vs:17}  {line['vs_value']:>12,.0f}  {line['ratio']:>8.2f}"
            text += f"  {line['ratio_min']:>8.2f}  {line['ratio_max']:>8.2f}"
        return head + text
