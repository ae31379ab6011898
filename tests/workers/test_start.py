"""What a worker loads before it works, how long that takes, and how much memory."""

import json
import subprocess
import sys

import pytest

from srl.config.experiment import load_experiment
from srl.launch.processes import train_in_processes
from srl.run.folder import create_run

PROGRAM = """
import json, resource, sys, time
start = time.perf_counter()
from pathlib import Path
from srl.workers import main, control, worker
from srl.workers.roles import role_of
from srl.dataflow import plans
role = role_of(plans.named(sys.argv[1]).fragments["actors"])
loaded = {"jax", "jaxlib", "flax", "optax", "zmq", "tensorboardX", "rich"}
usage = resource.getrusage(resource.RUSAGE_SELF)
told = {
    "role": role.__name__,
    "modules": sorted(loaded & set(sys.modules)),
    "seconds": time.perf_counter() - start,
    "processor_seconds": usage.ru_utime + usage.ru_stime,
    "memory": int(Path("/proc/self/smaps_rollup").read_text().split("Pss:")[1].split()[0]) / 1024,
}
print(json.dumps(told))
"""


@pytest.mark.parametrize("name", ["central", "decoupled", "env_servers"])
def test_a_worker_that_does_not_act_loads_neither_jax_nor_flax(name):
    done = subprocess.run([sys.executable, "-c", PROGRAM, name], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    sys.stdout.write(
        f"{name}: {told['seconds']:.2f} s, of the processor {told['processor_seconds']:.2f} s, "
        f"{told['memory']:.0f} MB\n"
    )
    assert told["modules"] == []
    assert told["memory"] < 80  # its proportional share, before it makes environments


@pytest.mark.parametrize("name", ["central", "decoupled"])
def test_a_worker_that_does_not_act_needs_neither_while_it_runs(tmp_path, name):
    words = ["--plan", name, "--plan.actors.replicas", "2", "--num-envs", "8", "--updates", "3"]
    resolved = load_experiment("native:CartPole-v1", words)
    folder = create_run(resolved, tmp_path / "run")
    assert train_in_processes(resolved.experiment, folder, role="watched_role:watched") == 0
    for actor in ("actors-0", "actors-1"):
        told = json.loads((folder.path / f"told-{actor}").read_text())
        sys.stdout.write(f"{name}, {actor}: {told['memory']:.0f} MB\n")
        assert (told["role"], told["modules"]) == ("run_actor", [])
        assert told["memory"] < 80
