"""The speed of a compiled `act`, by the number of slots: `srl bench act`."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

from srl.config.experiment import Experiment, load_experiment
from srl.core.console.arguments import listed, number, one_of
from srl.core.errors import UserError
from srl.core.types import Specs
from srl.extras.bench.act_peer import RUN, one_group, serve
from srl.extras.bench.alone import act_alone, first_timestep
from srl.extras.bench.rounds import in_turns, median, repeated, show, training_arguments
from srl.loop.acting.local_acting import LocalActing, compiled_act
from srl.loop.learning.learner import Learner
from srl.loop.policy_set import PolicySet
from srl.loop.xla_threads import act_in_calling_thread, choose_for_acting
from srl.streams.group_state import STATE_BYTES
from srl.streams.inference import RemoteActing
from srl.streams.transport import connect
from srl.streams.transport.message import Identity
from srl.system.child_process import child_command
from srl.system.compilation import keep_compiled_programs

_THROUGH = ("thread", "host", "network")

_NOTES = """Lists are separated by commas. XLA has as many threads as the largest number of slots is
given in a run. What is not listed goes to the experiment:
--algorithm.network.width 128."""


def main(argv: list[str]) -> int:
    """`srl bench act [FILE|ENV_ID] [--num-slots 8,64,256] ... [--json]`."""
    parser = training_arguments("bench act", "native:CartPole-v1", 2.0, _NOTES)
    add, sizes = parser.add_argument, listed(number(1))
    add("--num-slots", type=sizes, default="8,64,256", metavar="NS", help="default 8,64,256")
    through = f"inference streams too: {', '.join(_THROUGH)}"
    ways = listed(one_of(*_THROUGH))
    add("--through", type=ways, default=[], metavar="TRANSPORT,...", help=through)
    options, overrides = parser.parse_target(argv)
    experiment = load_experiment(options.target, overrides, flags=options.flags).experiment
    experiment = one_group(experiment, experiment.num_envs)
    keep_compiled_programs()
    act_in_calling_thread()
    specs, _ = first_timestep(experiment, 1)
    agents = len(specs.agents)
    if any(size % agents for size in options.num_slots):
        given = ",".join(map(str, options.num_slots))
        raise UserError(
            f"--num-slots {given}: an environment has {agents} slots; expected multiples of "
            f"{agents}, separated by commas"
        )
    largest = max(options.num_slots) // agents
    policy_set = PolicySet.of_experiment(experiment, specs)
    choose_for_acting(experiment, policy_set, largest)
    for size in options.num_slots:
        sized = one_group(experiment, size // agents)
        with contextlib.ExitStack() as stack:
            calls = {"compiled call": act_alone(sized, sized.num_envs)}
            for way in ["in process", *options.through] if options.through else []:
                calls[way] = stack.enter_context(_deciding(sized, options.target, overrides, way))
            sides = {way: repeated(call, size) for way, call in calls.items()}
            for way, rates in in_turns(sides, options.seconds, options.rounds).items():
                _show(options, way, size, rates)
    return 0


def _show(options: Any, way: str, size: int, rates: list[float]) -> None:
    line = {
        "name": "act",
        "config": {"env": options.target, "num_slots": size, "through": way},
        "value": median(rates),
        "unit": "slots/s",
        "latency_us": 1e6 * size / median(rates),
        "rounds": rates,
    }
    numbers = f"{line['latency_us']:>10,.1f} us  {line['value']:>14,.0f} slots/s"
    text = f"{size:>8} slots  {way:<14} {numbers}"
    show(line, text, options.json)


@contextlib.contextmanager
def _deciding(
    experiment: Experiment, target: str, overrides: list[str], way: str
) -> Iterator[Callable[[], Any]]:
    """Gives an actor's call for a step, on NumPy arrays, in this process or through a stream."""
    specs, timestep = first_timestep(experiment, experiment.num_envs)
    clock = itertools.count()  # as a group's: what does not go on by one is converted anew
    if way == "in process":
        learner = Learner(experiment, specs)
        envs = range(experiment.num_envs)
        acting = LocalActing(
            experiment,
            learner.policy_set,
            compiled_act(learner.policy_set),
            lambda oldest: (learner.progress.version, learner.policies),
            envs,
            swaps=False,
        )
        acting.begin((0, 0))
        memory = acting.initial_memory()
        yield lambda: acting.decide(timestep, memory, next(clock))
        return
    with _server(experiment, specs, target, overrides, way) as address:
        identity = Identity(RUN, 0, 0)
        remote = RemoteActing(
            lambda: connect(address, identity, limit_bytes=STATE_BYTES), lambda: ()
        )
        memory = remote.initial_memory()
        yield lambda: remote.decide(timestep, memory, next(clock))
        remote.close()


@contextlib.contextmanager
def _server(
    experiment: Experiment, specs: Specs, target: str, overrides: list[str], way: str
) -> Iterator[str]:
    """The address of a policy worker, in a thread or in a process."""
    if way == "thread":
        server, listener = serve(experiment, specs, "thread")
        ended = threading.Event()
        thread = threading.Thread(target=server.serve, args=(ended.is_set,))
        thread.start()
        yield listener.address
        ended.set()
        thread.join()
        listener.close()
        return
    settings = {"target": target, "overrides": overrides, "transport": way}
    settings["num_envs"] = experiment.num_envs
    command = child_command("srl.extras.bench.act_peer", json.dumps(settings))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process.stdout.readline().decode().strip()
        process.communicate()
