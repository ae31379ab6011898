"""`srl run --on ray`, where only the head sees the run's folder.

These take minutes: pip install 'ray[default]' && pytest -m slow tests/cluster/test_ray_runs.py
"""

import json
import os
import re
import signal
import sys
import time

import pytest
from watching import account, processes

from srl.launch.local import INTERRUPTED

pytestmark = pytest.mark.slow

SECONDS = 240
SMALL = ("--num-envs", "16", "--algorithm.unroll-length", "16", "--plan", "decoupled")


class RayRun:
    """`srl run native:CartPole-v1 --on ray` at the head, and what it has told."""

    def __init__(self, cluster, *options):
        self.cluster, self.folder = cluster, cluster.runs / "run"
        self.terminal = cluster.folder / "terminal.txt"
        where = ("--on", "ray", "--ray-address", cluster.address, "--ray-resource", "folder")
        words = ["-m", "srl", "run", "native:CartPole-v1", *SMALL, *where, *options]
        with self.terminal.open("w") as file:
            self.process = cluster.popen(
                *(sys.executable, *words, "--run-dir", self.folder), stdout=file, stderr=file
            )

    @property
    def told(self):
        return self.terminal.read_text()

    def wait(self):
        """Waits for the end; gives the exit code."""
        return self.process.wait(SECONDS)

    def log(self):
        file = self.folder / "logs" / "controller.log"
        return file.read_text() if file.exists() else ""

    def until_updates(self, number):
        reported = re.compile(r"^updates (\d+)", re.MULTILINE)
        self.until(lambda: any(int(n) >= number for n in reported.findall(self.told)))

    def until(self, condition):
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert self.process.poll() is None, self.told
            assert time.monotonic() < deadline, self.told
            time.sleep(0.05)

    def controllers(self):
        own = {"srl.launch.serve", str(self.folder)}
        return set(processes(lambda words: own <= set(words)))


def test_hosts_that_do_not_see_the_run_folder_take_part_and_find_a_new_controller(ray):
    run = RayRun(ray(2), "--updates", "200")
    run.until_updates(3)
    before = run.controllers()
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    run.until(lambda: run.controllers() - before)
    assert run.wait() == 0, run.told
    names = set(re.findall(r"(\w+) is there, for 1 x (?:actors|policies)", run.log()))
    assert names <= {host.name for host in run.cluster.workers}
    assert "found actors-0" in run.log()
    assert account(run.told).learned == 4 * 200


def test_an_actor_whose_host_loses_power_goes_on_at_another(ray):
    cluster = ray(3)
    run = RayRun(cluster, "--plan.actors.hosts", "2", "--updates", "1000")
    run.until_updates(3)
    name = re.findall(r"(\w+) is there, for 1 x actors", run.log())[0]
    next(host for host in cluster.workers if host.name == name).power_off()
    assert run.wait() == 0, run.told
    assert f"was lost with its host, {name}" in run.told
    assert account(run.told).learned == 4 * 1000


def test_a_run_that_is_told_to_stop_ends_after_a_checkpoint(ray):
    cluster = ray(2)
    run = RayRun(cluster, "--updates", "1000000")
    run.until_updates(3)
    names = json.loads((run.folder / "ray" / "jobs.json").read_text())
    stop = f"from srl.launch import ray_engine; ray_engine.stop({names})"
    assert cluster.popen(sys.executable, "-c", stop).wait(SECONDS) == 0
    assert run.wait() == INTERRUPTED, run.told
    assert any((run.folder / "checkpoints").glob("[0-9]*"))


def test_what_the_cluster_has_no_room_for_is_refused(ray):
    run = RayRun(ray(1), "--plan.actors.cores", "100", "--updates", "1")
    assert run.wait() != 0
    assert "no host of the Ray cluster has {'CPU': 100}" in run.told
