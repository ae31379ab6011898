"""`srl run --on ray`, where only the head and hosts that train see the run's folder.

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

from srl.api.cli import main
from srl.record.checkpoint import Checkpoints
from srl.run.terminal import INTERRUPTED
from srl.system.child_process import program_command

pytestmark = pytest.mark.slow

SECONDS = 500
SMALL = ("--num-envs", "16", "--algorithm.unroll-length", "16", "--plan", "decoupled")
STEPS = 16 * 16  # of an update


class RayRun:
    """`srl run ... --on ray` at the head, and what it has told."""

    def __init__(self, cluster, name="run"):
        self.cluster, self.folder = cluster, cluster.runs / name
        self.terminal = cluster.folder / f"{name}.txt"

    def begin(self, *options, target="native:CartPole-v1"):
        """Starts a new run; gives this."""
        return self._command("run", target, *SMALL, *options, "--run-dir", self.folder)

    def resume(self, *options):
        """Goes on with the run, which has ended; gives this."""
        return self._command("resume", self.folder, *options)

    def _command(self, *words):
        where = ("--on", "ray", "--ray-address", self.cluster.address, "--ray-resource", "folder")
        with self.terminal.open("w") as file:
            self.process = self.cluster.popen(
                *program_command("srl", *words, *where), stdout=file, stderr=file
            )
        return self

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

    def checkpoints(self):
        """The updates after which there is one."""
        return Checkpoints(self.folder / "checkpoints").versions()

    def hosts(self, fragment):
        """Those that have come for a fragment, the first first."""
        names = re.findall(rf"(\w+) is there, for \d+ x {fragment}", self.log())
        there = {host.name: host for host in [self.cluster.head, *self.cluster.workers]}
        return [there[name] for name in names]

    def controllers(self):
        own = {"srl.launch.engines.controller_main", str(self.folder)}
        return set(processes(lambda words: own <= set(words)))


def test_hosts_that_do_not_see_the_run_folder_take_part_and_find_a_new_controller(lasting_ray):
    run = RayRun(lasting_ray, "new-controller").begin("--updates", "200")
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
    run = RayRun(cluster).begin("--plan.actors.hosts", "2", "--updates", "1000")
    run.until_updates(3)
    lost = run.hosts("actors")[0]
    lost.power_off()
    assert run.wait() == 0, run.told
    assert f"was lost with its host, {lost.name}" in run.told
    assert account(run.told).learned == 4 * 1000


def test_an_actor_whose_host_is_gone_waits_for_one_that_joins_the_cluster(ray):
    cluster = ray(2)
    run = RayRun(cluster).begin("--plan.actors.hosts", "2", "--updates", "400")
    run.until_updates(3)
    lost = run.hosts("actors")[0]
    lost.power_off()
    run.until(lambda: f"was lost with its host, {lost.name}" in run.told)
    lost.power_on()
    cluster.join(lost)
    assert run.wait() == 0, run.told
    assert run.hosts("actors").count(lost) == 2
    assert account(run.told).learned == 4 * 400


def test_a_learner_whose_host_loses_power_goes_on_at_another_that_sees_the_folder(ray):
    run = RayRun(ray(3, trainers=2)).begin("--updates", "400", "--checkpoint-minutes", "0.02")
    run.until(lambda: len(run.checkpoints()) > 1)
    lost = run.hosts("learner")[0]
    lost.power_off()
    assert run.wait() == 0, run.told
    assert run.hosts("learner") == [lost, next(h for h in run.cluster.trainers if h != lost)]
    assert account(run.told).learned == 4 * 400


def test_without_another_host_that_sees_the_folder_the_run_ends_and_can_be_resumed(ray):
    cluster = ray(2, trainers=1)
    run = RayRun(cluster).begin("--updates", "400", "--checkpoint-minutes", "0.02")
    run.until(lambda: len(run.checkpoints()) > 1)
    lost = cluster.trainers[0]
    lost.power_off()
    assert run.wait() == 1
    assert "learner has lost a host, and for 60 s the Ray cluster has had no other" in run.told
    lost.power_on()
    cluster.join(lost)
    cluster.wait_for_hosts(3)
    run.resume()
    assert run.wait() == 0, run.told
    assert account(run.told).learned == 4 * 400


def test_a_learner_that_would_go_on_where_the_folder_is_not_seen_ends_the_run(ray):
    cluster = ray(3, trainers=2)
    run = RayRun(cluster).begin("--updates", "400", "--checkpoint-minutes", "0.02")
    run.until(lambda: len(run.checkpoints()) > 1)
    lost = run.hosts("learner")[0]
    blind = next(host for host in cluster.trainers if host is not lost)
    blind.run("mount", "-t", "tmpfs", "tmpfs", cluster.runs)
    lost.power_off()
    assert run.wait() == 1
    assert f"{blind.name} cannot see the run's folder" in run.told


def test_several_learners_are_on_hosts_that_see_the_folder(ray):
    words = ("--plan", "replicated", "--plan.learners.hosts", "2", "--groups", "4")
    run = RayRun(ray(3, trainers=2)).begin(*words, "--updates", "20")
    assert run.wait() == 0, run.told
    assert set(run.hosts("learners")) == set(run.cluster.trainers)
    assert run.checkpoints()[-1] == 20


def test_a_run_moves_from_this_machine_to_the_cluster_and_back(lasting_ray):
    run = RayRun(lasting_ray, "moves")
    folder, words = str(run.folder), ("native:CartPole-v1", *SMALL, "--updates", "5")
    assert main(["run", *words, "--run-dir", folder]) == 0
    assert run.resume("--env-steps", str(10 * STEPS)).wait() == 0, run.told
    assert run.checkpoints()[-1] == 10
    assert main(["resume", folder, "--env-steps", str(15 * STEPS)]) == 0
    assert run.checkpoints()[-1] == 15


def test_modules_beside_the_experiment_have_to_be_on_all_hosts(lasting_ray, tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    (project / "beside.py").write_text("environment = 'native:CartPole-v1'\n")
    (project / "task.py").write_text(
        "from beside import environment\n"
        "from srl import Experiment\n"
        "experiment = Experiment(name='task', env=environment)\n"
    )
    for host in lasting_ray.workers:
        host.run("mount", "-t", "tmpfs", "tmpfs", project)
    run = RayRun(lasting_ray, "lacks").begin("--updates", "3", target=project / "task.py")
    assert run.wait() == 1
    assert re.search(r"no host is left for \w+: host\d: .*No module named 'beside'", run.told, re.S)
    for host in lasting_ray.workers:
        host.run("umount", project)
    run = RayRun(lasting_ray, "lacks-nothing")
    run.begin("--updates", "3", target=project / "task.py")
    assert run.wait() == 0, run.told
    assert account(run.told).learned == 4 * 3


def test_a_run_that_is_told_to_stop_ends_after_a_checkpoint(lasting_ray):
    run = RayRun(lasting_ray, "stops").begin("--updates", "1000000")
    run.until_updates(3)
    names = json.loads((run.folder / "ray" / "jobs.json").read_text())
    stop = f"from srl.launch.engines import ray; ray.stop({names})"
    assert lasting_ray.popen(sys.executable, "-c", stop).wait(SECONDS) == 0
    assert run.wait() == INTERRUPTED, run.told
    assert run.checkpoints()


def test_what_the_cluster_has_no_room_for_is_refused(lasting_ray):
    run = RayRun(lasting_ray, "refused").begin("--plan.actors.cores", "100", "--updates", "1")
    assert run.wait() != 0
    assert "no host of the Ray cluster has 100 CPU, " in run.told
