"""XLA has one thread where programs are small."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from srl.loop.xla_threads import flops_of

PROGRAM = """
import sys
from pathlib import Path
from srl.config.experiment import load_experiment
from srl.system.compilation import keep_compiled_programs
from srl.loop.learning.learner import bind_policy_set
from srl.loop.xla_threads import choose_for_acting, choose_for_learning
from srl.pools import make_pool

keep_compiled_programs()
experiment = load_experiment("native:CartPole-v1", sys.argv[2:]).experiment
specs = make_pool(experiment.env, 1).specs
if sys.argv[1] == "act":
    choose_for_acting(experiment, bind_policy_set(experiment, specs), experiment.num_envs)
else:
    choose_for_learning(experiment, specs, experiment.num_envs)
import jax
jax.devices()
names = [file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")]
print(sum("XLAEigen" in name for name in names))
"""


def flops(function, *shapes):
    return flops_of(jax.make_jaxpr(function)(*map(jnp.zeros, shapes)).jaxpr)


def test_matrix_products_are_counted_whatever_calls_them():
    assert flops(jnp.dot, (3, 5), (5, 7)) == 2 * 3 * 5 * 7
    assert flops(jax.jit(jnp.dot), (3, 5), (5, 7)) == 2 * 3 * 5 * 7
    assert flops(jax.vmap(jnp.dot), (4, 3, 5), (4, 5, 7)) == 4 * 2 * 3 * 5 * 7


def test_a_loop_counts_as_often_as_it_runs():
    def loop(x):
        return jax.lax.scan(lambda x, _: (x @ x, None), x, None, 6)[0]

    assert flops(loop, (3, 3)) == 6 * 2 * 3**3


def test_a_gradient_counts_three_times_as_much():
    def loss(weights, x):
        return (x @ weights).sum()

    assert flops(jax.grad(loss, (0, 1)), (5, 7), (3, 5)) == 3 * 2 * 3 * 5 * 7


def test_convolutions_are_counted():
    def convolution(x, kernel):
        return jax.lax.conv(x, kernel, (1, 1), "VALID")

    # Each of 8 * 4 * 4 outputs is a sum over 3 * 5 * 5 products.
    assert flops(convolution, (1, 3, 8, 8), (8, 3, 5, 5)) == 2 * (8 * 4 * 4) * (3 * 5 * 5)


ANYWHERE = """
import os
from pathlib import Path
import threading
import jax
from srl.system.background.priority import keep_to_one_thread

end = threading.Event()
threading.Thread(target=end.wait).start()  # as a worker has, that talks to the controller
keep_to_one_thread()
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


def threads(folder: Path, *arguments: str, **variables: str) -> int:
    """The threads that XLA computes with in a process that prepares for an experiment."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**os.environ, "SRL_COMPILATION_CACHE": str(folder), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")
def test_small_programs_get_one_thread_and_large_ones_all(tmp_path):
    wide = (
        "--num-envs",
        "512",
        "--algorithm.minibatches",
        "1",
        "--algorithm.network.mlp.width",
        "256",
    )
    assert threads(tmp_path, "learn") == threads(tmp_path, "act") == 1
    (kept, _) = sorted(tmp_path.glob("srl-flops-*"), key=lambda file: int(file.read_text()))[::-1]
    assert threads(tmp_path, "learn", *wide) == threads(tmp_path, "act", *wide) > 1
    assert threads(tmp_path, "learn", NPROC="2") == 2
    kept.write_text("100000000")  # what was counted once is not counted again
    assert threads(tmp_path, "learn") > 1
    kept.write_text("damaged")
    assert threads(tmp_path, "learn") == 1


@pytest.mark.usefixtures("gpu")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")
def test_next_to_a_gpu_all_threads_compile_for_it_unless_the_program_is_for_the_cpu(tmp_path):
    assert threads(tmp_path, "learn") > 1
    assert threads(tmp_path, "learn", "--plan", "fused") == 1
