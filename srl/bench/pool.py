"""How fast pools step, alone or against a peer: `srl bench pool`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces

from srl.bench.backends import BACKENDS, STICKY_STEPS, Case, Side, Stepper, open_backend, split_env
from srl.bench.rounds import show
from srl.console.arguments import Arguments
from srl.console.stages import Stages
from srl.errors import UserError, expect_number
from srl.field_types import whole_number
from srl.pools.config import environment_options
from srl.spaces import choice_counts, limits
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
  physics          a native MuJoCo environment's physics alone, without a pool

With --vs the two step in turns, and the ratio is that of neighbouring rounds: median, least and
greatest. EnvPool's threads are bound to cores where that is faster (synchronous, several threads).
"""

T = TypeVar("T")

BATCHES = 20 * STICKY_STEPS
"""How many calls have actions of their own before they come round again."""


@dataclass(frozen=True)
class Comparison:
    """Env steps per second, a number for each round."""

    rates: list[float]
    vs_rates: list[float]
    """Of the peer, in turns with the others; empty without one."""

    @property
    def value(self) -> float:
        """The median round's."""
        return float(np.median(self.rates))

    @property
    def vs_value(self) -> float:
        """The peer's median round's."""
        return float(np.median(self.vs_rates))

    @property
    def ratios(self) -> list[float]:
        """Of neighbouring rounds, so that a machine that slows down slows both."""
        own, peer = self.rates, self.vs_rates
        return [
            *(a / b for a, b in zip(own, peer, strict=True)),
            *(a / b for a, b in zip(own[1:], peer[:-1], strict=True)),
        ]


def random_actions(
    space: gymnasium.Space, slots: int, batches: int, sticky: bool
) -> list[np.ndarray]:
    """Draws actions for `batches` steps of all slots, uniform in the action space.

    With `sticky`, each slot holds an action for ten steps, slots out of phase with each other.
    """
    rng = np.random.default_rng(0)

    def draw(count: int) -> np.ndarray:
        shape = (count, slots, *(space.shape or ()))
        if isinstance(space, spaces.Box):
            low, high = np.maximum(space.low, -1e3), np.minimum(space.high, 1e3)
            return rng.uniform(low, high, shape).astype(space.dtype)
        if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            return limits(space)[0] + rng.integers(0, choice_counts(space), shape, space.dtype)
        raise UserError(f"no random actions for {space}")

    if not sticky:
        return list(draw(batches))
    held = draw(batches // STICKY_STEPS + 2)
    phase = rng.integers(0, STICKY_STEPS, slots)
    return [
        np.ascontiguousarray(held[(t + phase) // STICKY_STEPS, np.arange(slots)])
        for t in range(batches)
    ]


def compare(
    own: Side,
    peer: Side | None,
    seconds: float,
    rounds: int,
    progress: Callable[[int], None] = lambda done: None,
) -> Comparison:
    """Steps both in turns, for about `seconds` each; a round before the first warms up.

    `progress` is called with how many rounds are done.
    """
    result = Comparison([], [])
    for number in range(rounds + 1):
        for side, rates in ((own, result.rates), (peer, result.vs_rates)):
            if side is not None:
                rate = side.rate(seconds / (rounds + 1))
                if number:
                    rates.append(rate)
        progress(number)
    return result


def bench_pool(
    backend: str, case: Case, vs: str | None, seconds: float, rounds: int
) -> dict[str, Any]:
    """Measures one case; gives the line that `--json` prints.

    Args:
        backend: What steps the environments.
        case: The environments.
        vs: The backend to compare with, if any.
        seconds: For each side.
        rounds: How many, after one to warm up.

    Raises:
        UserError: If the two sides cannot be compared.
    """
    with ExitStack() as opened:
        own = open_backend(backend, case)
        opened.callback(own.close)
        peer = open_backend(vs, case) if vs else None
        if peer:
            opened.callback(peer.close)
            _check_alike(backend, own, vs, peer)
        sides = [side for side in (own, peer) if isinstance(side, Stepper)]
        for side in sides:  # both draw from the first one's space
            slots = case.num_envs * side.agents
            space = sides[0].action_space
            side.load(random_actions(space, slots, BATCHES, case.sticky))
        what = f"{case.env}, {case.num_envs:,} environments: rounds"
        with Stages() as stages:
            result = compare(own, peer, seconds, rounds, stages.counter("stepping", what, rounds))
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
        "value": result.value,
        "unit": "env_steps/s",
        "per_thread": result.value / own.threads,
        "rounds": result.rates,
    }
    if peer:
        ratios = result.ratios
        line |= {
            "vs_value": result.vs_value,
            "ratio": float(np.median(ratios)),
            "ratio_min": min(ratios),
            "ratio_max": max(ratios),
            "vs_rounds": result.vs_rates,
        }
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
    """What may be chosen, whatever the dtype."""
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete):
        kind = "box" if isinstance(space, spaces.Box) else "discrete"
        return (kind, *(np.round(np.asarray(x, float), 4).tolist() for x in limits(space)))
    return (space,)


def main(argv: list[str]) -> int:
    """`srl bench pool --env IDS ... [--json]`."""
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
    options, rest = parser.parse_known_args(argv)
    if options.seconds <= 0:
        raise UserError(f"--seconds {options.seconds}; expected more than 0")
    expect_number("--rounds", options.rounds, 1)
    add_folder(Path.cwd())  # as `srl run` does for an environment's id
    rows = list(_rows(options, environment_options(rest)))
    table = _Table(rows)
    for backend, case, vs in rows:
        line = bench_pool(backend, case, vs, options.seconds, options.rounds)
        show(line, table.row(line), options.json)
    return 0


def _rows(options: Any, env_options: dict[str, Any]) -> Iterator[tuple[str, Case, str | None]]:
    """Backend, case and peer of each row."""
    peers = _list("--vs", options.vs, str) if options.vs else [None]
    for name in filter(None, (options.backend, *peers)):
        if name not in BACKENDS:
            raise UserError(f"there is no backend {name!r}; there are {', '.join(BACKENDS)}")
    cores = tuple(_list("--cores", options.cores, whole_number)) if options.cores else ()
    for env, size, threads, vs in itertools.product(
        _list("--env", options.env, str),
        _list("--num-envs", options.num_envs, _size),
        _list("--threads", options.threads, whole_number),
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
    return whole_number(num_envs), whole_number(batch_size or "0")


def _list(option: str, text: str, convert: Callable[[str], T]) -> list[T]:
    try:
        return [convert(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"{option} {text}: expected whole numbers, separated by commas") from None


class _Table:
    """Rows for a person to read; the first one has the head above it."""

    def __init__(self, rows: Sequence[tuple[str, Any, str | None]]) -> None:
        """Fits the columns to all `rows`."""
        self._widths = own, env = (
            max(len("backend"), *(len(backend) for backend, _, _ in rows)),
            max(len("env"), *(len(case.env) for _, case, _ in rows)),
        )
        self._compares = any(vs for *_, vs in rows)
        self._head = f"{'backend':{own}}  {'env':{env}}  {'envs':>9}  threads  {'env steps/s':>12}"
        self._head += f"  {'a thread':>12}"
        if self._compares:
            self._head += f"  {'vs':15}  {'env steps/s':>12}"
            self._head += f"  {'ratio':>8}  {'from':>8}  {'to':>8}"
        self._head += "\n"

    def row(self, line: dict[str, Any]) -> str:
        """The text of one result."""
        head, self._head = self._head, ""
        config, (own, env) = line["config"], self._widths
        size = str(config["num_envs"])
        if config["batch_size"] < config["num_envs"]:
            size += f"/{config['batch_size']}"
        text = f"{config['backend']:{own}}  {config['env']:{env}}  {size:>9}"
        text += f"  {config['threads']:>7}  {line['value']:>12,.0f}  {line['per_thread']:>12,.0f}"
        if self._compares:
            text += f"  {config['vs']:15}  {line['vs_value']:>12,.0f}  {line['ratio']:>8.2f}"
            text += f"  {line['ratio_min']:>8.2f}  {line['ratio_max']:>8.2f}"
        return head + text
