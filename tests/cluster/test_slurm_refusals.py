"""What a Slurm cannot run is refused at the start, with the host's name and the cure."""

import importlib.metadata
import json
import sys
from pathlib import Path

import pytest
from slurm_run import APART, CARTPOLE, SlurmRun

PYTHON = Path(sys.executable).parent


class Impaired:
    """A host that, in a `with` block, sees something else than the others in one place."""

    def __init__(self, host, *mount):
        self.host, self.mount = host, mount

    def __enter__(self):
        self.host.run("mount", *self.mount)

    def __exit__(self, *error):
        self.host.run("umount", self.mount[-1])


def refused(cluster, folder, *options, hosts=APART, meanwhile=None, target=CARTPOLE):
    """What a run tells that ends as a mistake of the user's, and leaves no job.

    Args:
        cluster: Where to run.
        folder: The run's.
        *options: Of `srl run`.
        hosts: Those of its options that say where workers are.
        target: What it trains, with the options for that.
        meanwhile: Called when it is submitted, before anything of it has begun.
    """
    state = ["scontrol", "update", "partitionname=main"]
    if meanwhile:
        cluster.run(*state, "state=down")
    run = SlurmRun(cluster, folder, *hosts, "--updates", "3", *options, target=target)
    if meanwhile:
        run.until(lambda run: "jobs: PENDING" in run.told)
        meanwhile()
        cluster.run(*state, "state=up")
    assert run.wait() == 2, run.all
    cluster.wait_nodes({node.name: "idle" for node in cluster.nodes})
    return run.told


def test_what_there_is_no_room_for_at_a_time_is_refused_before_it_is_submitted(slurm, tmp_path):
    cluster, folder = slurm(2), tmp_path / "run"
    told = refused(cluster, folder)
    assert "asks for 4 nodes of their own at a time (learner 1, actors 2, policies 1)" in told
    assert "the default partition has 2" in told
    more = ("--plan.actors.cores", "4", "--partition", "main")
    told = refused(cluster, folder, *more, hosts=("--plan", "decoupled"))
    assert "asks for 10 cores at a time (learner 1, actors 8, policies 1)" in told
    assert "the partition main has 8" in told
    told = refused(cluster, folder, "--plan.learner.gpus", "1", hosts=("--plan", "decoupled"))
    assert "asks for 1 GPUs at a time (learner 1)" in told
    narrow = ("--sbatch=--exclude=host2", "--plan.learner.memory", "5GB")  # it narrows the check
    told = refused(cluster, folder, *narrow, hosts=("--plan", "decoupled"))
    assert "each host of learner is to have 2 cores, 5.4 GiB of memory" in told
    assert "the default partition has 0 such nodes, and 1 are needed" in told
    many, target = ("--plan", "inline", "--plan.actors.replicas", "2048"), CARTPOLE[:1]
    told = refused(cluster, folder, hosts=many, target=(*target, "--num-envs", "2048"))
    assert "--plan.actors.replicas 2048 would be a job array of 2,048 elements" in told
    assert "this Slurm takes at most 1,001 (MaxArraySize)" in told
    assert "--plan.actors.hosts N" in told
    assert not folder.exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1], ids=["the controller's host", "another host"])
def test_a_host_that_cannot_take_part_is_named_with_the_cure(slurm, tmp_path, number):
    cluster = slurm(4)
    host = cluster.nodes[number]
    shared = tmp_path / "shared"
    shared.mkdir()
    with Impaired(host, "-t", "tmpfs", "tmpfs", shared):
        told = refused(cluster, shared / "run")
    assert f"{host.name} cannot take part: it cannot write {shared}/run/logs" in told
    assert "a file system that all nodes share: choose one with --run-dir" in told
    with Impaired(host, "-t", "tmpfs", "tmpfs", PYTHON):
        told = refused(cluster, tmp_path / "no_srl")
    assert f"{host.name} has no {sys.executable}: install srl in a place that all nodes see" in told


@pytest.mark.slow
def test_a_host_that_has_something_else_is_named_with_the_cure(slurm, tmp_path):
    cluster = slurm(4)
    host, ours = cluster.nodes[1], importlib.metadata.version("srl-rl")
    files = importlib.metadata.files("srl-rl") or []
    metadata = next(file.locate() for file in files if file.name == "METADATA")
    other = tmp_path / "METADATA"
    other.write_text(Path(metadata).read_text().replace(f"\nVersion: {ours}\n", "\nVersion: 9\n"))
    with Impaired(host, "--bind", other, metadata):
        told = refused(cluster, tmp_path / "version")
    assert f"{host.name} has srl 9, the controller {ours}: install the same" in told

    folder, changed = tmp_path / "experiment", tmp_path / "config.json"

    def change():
        config = json.loads((folder / "config.json").read_text())
        changed.write_text(json.dumps({**config, "sha256": "0" * 64}))
        host.run("mount", "--bind", changed, folder / "config.json")

    told = refused(cluster, folder, meanwhile=change)
    assert f"{host.name} sees another experiment file than the run's" in told


@pytest.mark.slow
def test_keys_that_others_can_read_are_refused_with_the_cure(slurm, tmp_path):
    folder = tmp_path / "run"
    file = folder / "keys" / "curve.secret"
    told = refused(slurm(4), folder, meanwhile=lambda: file.chmod(0o644))
    assert f"others can read the run's keys (mode 0644); if none has done so: chmod 600 {file}" in (
        told
    )
