"""How fast training goes on a GPU, by game and by plan: `srl bench gpu`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from srl.bench.actions import random_actions
from srl.bench.gpu_games import GAMES
from srl.bench.gpu_load import GpuLoad, gpu_names
from srl.bench.rounds import add_rounds, comparison, in_turns, median, repeated, show
from srl.bench.train import PlanSide
from srl.console.arguments import Arguments, listed, one_of
from srl.dataflow.plans import idle_gpu
from srl.errors import PlanError, UserError
from srl.experiment import Experiment, load_experiment
from srl.loop.stepping.environments import make_group
from srl.system.gpus import jax_gpus

_NOTES = """Games and plans are separated by commas. Games are cartpole and half_cheetah with small
perceptrons, pong with the network of DQN's paper, and hide_and_seek with the map and the network of
its paper.

Each plan trains for a while in every round, in a run of its own as `srl run` makes it. The share
is that of the rate at which a pool of as many environments steps with random actions on all cores.
The GPU's load is the mean that nvidia-smi reports meanwhile, of all GPUs. A plan that cannot train
a game has the reason in its row. What is not listed goes to every run: --num-envs 512.

--pong-time measures instead how long PPO takes under each plan from the start of the command until
the mean return of 100 episodes is 18; without a GPU that is a day.
"""
_FUSED = "fused"
PLANS = [_FUSED, "threads", "central", "decoupled"]
_GOAL = 18.0
_FILE = str(Path(__file__).with_name("gpu_games.py"))
_POOL_SECONDS = 3.0
_BATCHES = 20  # of actions


def main(argv: list[str]) -> int:
    """`srl bench gpu [--game NAME,...] [--plan NAME,...] [--pong-time] [--json]`."""
    parser = Arguments("bench gpu", epilog=_NOTES)
    games = listed(one_of(*GAMES))
    parser.add_argument("--game", type=games, default=list(GAMES), metavar="NAMES", help="all")
    plans = f"default {','.join(PLANS)}"
    parser.add_argument("--plan", type=listed(str), default=PLANS, metavar="NAMES", help=plans)
    goal = "seconds until PPO plays Pong well, in place of rates"
    parser.add_argument("--pong-time", action="store_true", help=goal)
    add_rounds(parser, 60.0)
    cpu = "measure on the CPU where JAX has no GPU"
    parser.add_argument("--on-cpu", action="store_true", help=cpu)
    options, overrides = parser.parse_known_args(argv)
    if not jax_gpus() and not options.on_cpu:
        raise UserError("JAX has no GPU here; --on-cpu measures on the CPU")
    names = gpu_names()
    head = {"gpus": names, "jax_gpus": jax_gpus()}
    if not options.json:
        show(head, f"GPUs: {', '.join(names) or 'none'}; JAX computes on {_device()}", False)
    for game in ["pong"] if options.pong_time else options.game:
        sides, refused = _sides(game, options.plan, overrides)
        for plan, reason in refused.items():
            line = {"name": "gpu", "config": {"game": game, "plan": plan}, "value": None}
            line |= {"unit": "env_steps/s", "refused": reason}
            show(line, f"{game:<14} {plan:<10} {reason}", options.json)
        measured = (
            _times(sides, _GOAL)
            if options.pong_time
            else _rates(game, sides, options.seconds, options.rounds)
        )
        for line, text in measured:
            line["config"] |= head
            show(line, text, options.json)
    return 0


class Side:
    """Runs of a game under one plan."""

    def __init__(self, game: str, overrides: Sequence[str]) -> None:
        """Takes the options of `srl run`.

        Raises:
            PlanError: If the plan cannot train it.
        """
        target = f"{_FILE}:{game}"
        self.experiment: Experiment = load_experiment(target, overrides).experiment
        plan = self.experiment.settled_plan
        idle = idle_gpu(plan, self.experiment.env)
        config = {"game": game, "plan": plan.name, "num_envs": self.experiment.num_envs}
        self.config = {**config, "learns_on": "CPU" if idle else _device()}
        self.runs = PlanSide(target, list(overrides))
        self.loads: list[float] = []
        """Percent of the GPUs' time, by round; the first round warms up."""

    def rate(self, seconds: float) -> float:
        """Trains for so long, and gives env steps per second; see `PlanSide`."""
        with closing(GpuLoad()) as load:
            first, last = self.runs.reports(seconds)
            mean = load.mean(first["time"], last["time"])
        self.loads += [] if mean is None else [mean]
        return (last["env_steps"] - first["env_steps"]) / (last["time"] - first["time"])


def _device() -> str:
    return "GPU" if jax_gpus() else "CPU"


def _sides(
    game: str, plans: Sequence[str], overrides: Sequence[str]
) -> tuple[dict[str, Side], dict[str, str]]:
    """The plans that can train a game, and the reasons of the others."""
    sides: dict[str, Side] = {}
    refused: dict[str, str] = {}
    for plan in plans:
        try:
            sides[plan] = Side(game, [*overrides, "--plan", plan])
        except PlanError as error:
            refused[plan] = str(error)
    return sides, refused


def _rates(
    game: str, sides: Mapping[str, Side], seconds: float, rounds: int
) -> Iterator[tuple[dict[str, Any], str]]:
    """Measures the plans in turns; gives a line for each, and its text."""
    if not sides:
        return
    pool = _pool_rate(next(iter(sides.values())).experiment)
    rates = in_turns(
        {plan: side.rate for plan, side in sides.items()}, seconds, rounds, f"{game}, "
    )
    for plan, side in sides.items():
        found, loads = rates[plan], side.loads[-rounds:]
        load = sum(loads) / len(loads) if loads else None
        line = {
            "name": "gpu",
            "config": {**side.config, "vs": "pool"},
            "value": median(found),
            "unit": "env_steps/s",
            "rounds": found,
            **comparison([pool], [rate / pool for rate in found]),
            "gpu_load": load,
        }
        busy = "-" if load is None else f"{load:.0f} %"
        text = (
            f"{game:<14} {plan:<10} on the {side.config['learns_on']}  {line['value']:>12,.0f} "
            f"env steps/s  {100 * line['ratio']:5.1f} % of the pool  GPU busy {busy}"
        )
        yield line, text


def _pool_rate(experiment: Experiment) -> float:
    """Env steps per second of a pool alone, with random actions."""
    num_envs = experiment.num_envs
    with closing(make_group(experiment, num_envs)) as pool:
        slots = num_envs * len(pool.specs.agents)
        actions = random_actions(pool.specs.action, slots, _BATCHES, sticky=False)
        pool.reset(experiment.seed)

        def steps() -> None:
            for action in actions:
                pool.step(action)

        side = repeated(steps, num_envs * _BATCHES)
        return in_turns({"pool": side}, _POOL_SECONDS, 2)["pool"][-1]


def _times(sides: Mapping[str, Side], goal: float) -> Iterator[tuple[dict[str, Any], str]]:
    """Trains under each plan until the mean return is `goal`."""
    for plan, side in sides.items():
        seconds, report = side.runs.until(lambda report: (report["episode_return"] or 0) >= goal)
        line = {
            "name": "gpu-time",
            "config": {**side.config, "goal": goal},
            "value": seconds,
            "unit": "s",
            "env_steps": report["env_steps"],
        }
        where = side.config["learns_on"]
        steps = f"{report['env_steps']:,} env steps"
        yield line, f"{plan:<10} on the {where}  {seconds:,.0f} s, {steps}, to a return of {goal:g}"
