"""XLA has one thread where programs are small."""

import os
import subprocess
import sys

import pytest

from srl.config.experiment import load_experiment
from srl.loop import xla_threads
from srl.loop.binding import bind_policy_set
from srl.pools import make_pool

PROGRAM = """
import sys
from pathlib import Path
from srl.config.experiment import load_experiment
from srl.loop.binding import bind_policy_set
from srl.loop.xla_threads import choose_for_acting, choose_for_learning
from srl.pools import make_pool

experiment = load_experiment("native:CartPole-v1", sys.argv[2:]).experiment
policy_set = bind_policy_set(experiment, make_pool(experiment.env, 1).specs)
choose = choose_for_acting if sys.argv[1] == "act" else choose_for_learning
choose(experiment, policy_set, experiment.num_envs)
import jax
jax.devices()
names = [file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")]
print(sum("XLAEigen" in name for name in names))
"""


ANYWHERE = """
import os
from pathlib import Path
import threading
import jax
from srl.system.background.priority import keep_to_threads

end = threading.Event()
threading.Thread(target=end.wait).start()  # as a worker has, that talks to the controller
keep_to_threads(1)
jax.devices()
threads = Path("/proc/self/task").iterdir()
print({frozenset(os.sched_getaffinity(int(thread.name))) for thread in threads})
end.set()
"""


def test_a_process_with_one_thread_may_run_on_any_core():
    done = subprocess.run(
        [sys.executable, "-c", ANYWHERE], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{ {frozenset(os.sched_getaffinity(0))} }\n"


def threads(*arguments: str, **variables: str) -> int:
    """The threads that XLA computes with in a process that prepares for an experiment."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])


@pytest.fixture
def chosen(monkeypatch):
    """Gives the number of threads that XLA would get in a process: where it is not kept, all."""
    kept = []
    monkeypatch.setattr(xla_threads, "keep_to_threads", kept.append)
    choices = {"act": xla_threads.choose_for_acting, "learn": xla_threads.choose_for_learning}

    def choose(role, *arguments):
        experiment = load_experiment("native:CartPole-v1", arguments).experiment
        with make_pool(experiment.env, 1) as pool:
            policy_set = bind_policy_set(experiment, pool.specs)
        choices[role](experiment, policy_set, experiment.num_envs)
        return kept.pop() if kept else len(os.sched_getaffinity(0))

    return choose


WIDE = ("--num-envs", "512", "--algorithm.network.mlp.width", "256")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")
def test_small_programs_get_one_thread_and_large_ones_all(chosen):
    assert chosen("learn") == chosen("act") == 1
    assert chosen("act", *WIDE) > 1
    assert chosen("learn", *WIDE, "--algorithm.minibatches", "1") > 1
    assert chosen("learn", "--algorithm", "r2d2") > 1  # a batch of sequences


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")
def test_xla_has_the_threads_that_are_chosen():
    assert threads("learn") == 1
    assert threads("act", *WIDE) > 1
    assert threads("learn", NPROC="2") == 2


@pytest.mark.usefixtures("gpu")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")
def test_next_to_a_gpu_all_threads_compile_for_it_unless_the_program_is_for_the_cpu():
    assert threads("learn") > 1
    assert threads("learn", "--plan", "fused") == 1


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")
def test_a_workers_threads_fill_its_share_of_the_cores(chosen, monkeypatch):
    monkeypatch.setenv("SRL_CORES", "1")
    assert chosen("learn", "--num-envs", "4096") == 1
