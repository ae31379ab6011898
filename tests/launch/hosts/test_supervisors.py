"""Supervisors and their controller, all on this machine."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, closing

import pytest
from waiting import wait_until
from watching import account, processes

from srl.config.experiment import load_experiment
from srl.launch.engines import slurm
from srl.launch.engines.engine import parts_of
from srl.launch.hosts import supervisor
from srl.record.checkpoint import Checkpoints
from srl.run.folder import create_run
from srl.streams.transport.keys import create_keys
from srl.system.child_process import program_command

SECONDS = 120
SCHEMAS = (
    *("--num-envs", "16", "--algorithm.unroll-length", "16", "--plan", "decoupled"),
    *("--report-every", "1"),
)


AGAIN = ("bash", "-c", f'{slurm._AGAIN}again "$@"', "again")
LASTING = ("bash", "-c", f'{slurm._AGAIN}{slurm._LASTING}lasting "$@"', "lasting")
"""What starts the controller, and supervisors, again as a job of Slurm does."""


class Cluster:
    """A run whose controller and supervisors are processes here; they end with their test."""

    def __init__(self, folder, *words):
        actors = () if "replicated" in words else ("--plan.actors.replicas", "2")
        resolved = load_experiment("native:CartPole-v1", [*SCHEMAS, *words, *actors])
        self.run, self.plan = create_run(resolved, folder), resolved.experiment.settled_plan
        create_keys(self.run.path)
        self.stack = ExitStack()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.stack.close()

    def start(self, module, *words, folder=None, within=(), **options):
        folder = str(folder or self.run.path)
        command = [*within, *program_command(module, folder, *words)]
        process = self.stack.enter_context(subprocess.Popen(command, text=True, **options))
        self.stack.callback(process.terminate)
        return process

    def supervise(self, fragment, *within, **options):
        job = next(job for job in parts_of(self.plan) if job.fragment == fragment)
        words = fragment, str(job.slots)
        return self.start("srl.launch.hosts.supervisor", *words, within=within, **options)

    def supervise_all(self, *within, **options):
        return {
            job.fragment: [
                self.supervise(job.fragment, *within, **options) for _ in range(job.hosts)
            ]
            for job in parts_of(self.plan)
        }

    def serve(self, *within):
        self.terminal = self.run.log("terminal")
        with self.terminal.open("a") as file:
            return self.start(
                "srl.launch.engines.controller_main", stdout=file, stderr=file, within=within
            )

    def process(self, *words):
        """The process of Python's that runs a module of these words."""
        wanted = {sys.executable, str(self.run.path), *words}
        (found,) = processes(lambda words: wanted <= set(words) and "bash" not in words)
        return found

    def worker(self, fragment, replica):
        """The process of a worker."""
        own = f'"folder": "{self.run.path}", "fragment": "{fragment}", "replica": {replica},'
        (found,) = processes(lambda words: any(own in word for word in words))
        return found

    def updates(self):
        file = self.run.path / "metrics.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return max((json.loads(line)["updates"] for line in lines), default=0)

    def goes_on(self):
        """Waits for a report that is newer than this call."""
        file, now = self.run.path / "metrics.jsonl", time.time()
        self.until(
            lambda: (
                file.exists()
                and any(json.loads(line)["time"] > now for line in file.read_text().splitlines())
            )
        )

    def until(self, condition):
        wait_until(condition, SECONDS, self.terminal.read_text)


@pytest.fixture
def cluster(tmp_path):
    with ExitStack() as stack:
        yield lambda *words: stack.enter_context(Cluster(tmp_path / "run", *words))


@pytest.fixture
def ahead():
    """What starts a process whose clocks are days ahead; nothing where no user can change them."""
    words = ["unshare", "--time", "--fork", "--kill-child", "--monotonic", "500000"]
    words += ["--boottime", "500000"]
    can = not subprocess.run([*words, "true"], capture_output=True, timeout=SECONDS).returncode
    return words if can else []


def test_workers_of_a_supervisor_that_died_are_started_by_the_next_whatever_its_clock(
    cluster, ahead
):
    run = cluster("--updates", "60", "--heartbeat-seconds", "2")
    controller, supervisors = run.serve(), run.supervise_all()
    run.until(lambda: run.updates() >= 3)
    os.kill(supervisors["actors"][0].pid, signal.SIGKILL)
    run.supervise("actors", *ahead)
    assert controller.wait(SECONDS) == 0
    told = run.terminal.read_text()
    assert "was lost with its host" in told
    with closing(Checkpoints(run.run.checkpoints)) as checkpoints:
        assert checkpoints.latest() == 60
    assert account(told).learned == 4 * 60
    for process in [*supervisors["learner"], *supervisors["policies"], supervisors["actors"][1]]:
        assert process.wait(SECONDS) == 0


@pytest.mark.slow
def test_a_supervisor_that_is_stopped_is_given_up_and_goes_on_when_it_continues(cluster):
    run = cluster("--env-steps", "100_000_000", "--heartbeat-seconds", "120")
    controller, supervisors = run.serve(), run.supervise_all()
    run.goes_on()
    stopped = supervisors["actors"][0]
    stopped.send_signal(signal.SIGSTOP)
    try:
        run.supervise("actors")
        run.until(lambda: "was lost with its host" in run.terminal.read_text())
        run.goes_on()
    finally:
        stopped.send_signal(signal.SIGCONT)
    log = run.run.log("controller")
    there = " is there, for 1 x actors"
    run.until(lambda: log.read_text().count(there) == 4)  # it came back as another host
    run.goes_on()
    controller.send_signal(signal.SIGUSR1)
    assert controller.wait(SECONDS) == 130
    assert stopped.wait(SECONDS) == 0


@pytest.mark.slow
def test_supervisors_leave_a_controller_that_is_stopped_and_come_back(cluster, tmp_path):
    run, told = cluster("--env-steps", "100_000_000"), tmp_path / "told"
    with told.open("w") as file:
        controller, supervisors = run.serve(), run.supervise_all(stderr=file)
    run.goes_on()
    controller.send_signal(signal.SIGSTOP)
    try:
        run.until(lambda: told.read_text().count("the controller has not beaten for 10 s") == 4)
    finally:
        controller.send_signal(signal.SIGCONT)
    run.goes_on()
    controller.send_signal(signal.SIGUSR1)
    assert controller.wait(SECONDS) == 130
    assert all(each.wait(SECONDS) == 0 for several in supervisors.values() for each in several)
    reported = run.terminal.read_text()
    assert "started again" not in reported
    assert "was lost with its host" not in reported


@pytest.mark.slow
def test_processes_that_abort_end_no_run_of_several_hosts(cluster):
    run = cluster("--env-steps", "100_000_000", "--heartbeat-seconds", "2")
    controller = run.serve(*AGAIN)
    run.supervise_all(*LASTING)
    run.goes_on()
    workers = ("actors", "policies", "learner")
    for fragment in workers:
        os.kill(run.worker(fragment, 0), signal.SIGABRT)
    for fragment in workers:
        died = f"{fragment}-0 was killed by SIGABRT; it is started again"
        run.until(lambda died=died: died in run.terminal.read_text())
    run.goes_on()
    os.kill(run.process("srl.launch.hosts.supervisor", "learner"), signal.SIGABRT)
    run.until(lambda: "learner-0 was lost with its host" in run.terminal.read_text())
    run.goes_on()
    os.kill(run.process("srl.launch.engines.controller_main"), signal.SIGABRT)
    log = run.run.log("controller")
    run.until(lambda: log.read_text().count("found ") == 4)
    run.goes_on()
    os.kill(run.process("srl.launch.engines.controller_main"), signal.SIGUSR1)
    assert controller.wait(SECONDS) == 130


def test_a_controller_leaves_a_run_alone_that_another_has_taken_over(cluster):
    run = cluster()
    first = run.serve()
    run.until((run.run.path / "controller.json").exists)
    run.serve()
    assert first.wait(SECONDS) == 1
    told = run.terminal.read_text()
    assert "another controller has taken this run over; this one leaves it alone" in told
    assert "the run failed" not in told
    assert not (run.run.path / "outcome.json").exists()


@pytest.mark.slow
def test_what_ends_with_a_host_that_is_taken_away_is_started_by_the_next_at_once(cluster):
    run = cluster("--env-steps", "100_000_000")
    controller, supervisors = run.serve(), run.supervise_all()
    run.until(lambda: run.updates() >= 3)
    leaving = supervisors["actors"][0]
    leaving.terminate()
    assert leaving.wait(SECONDS) == 143
    run.supervise("actors")
    run.until(lambda: " left with its host" in run.terminal.read_text())
    reached = run.updates()
    run.until(lambda: run.updates() >= reached + 3)
    controller.send_signal(signal.SIGUSR1)
    assert controller.wait(SECONDS) == 130
    told = run.terminal.read_text()
    assert "was lost with its host" not in told
    assert account(told).learned > 0


SLOW_DISK = """
import os
import time

fsync = os.fsync


def slowly(descriptor):
    if os.path.exists({file!r}):
        time.sleep(1)
    fsync(descriptor)


os.fsync = slowly
"""
"""Has Python take a second to sync a file, as long as there is another one."""


@pytest.mark.parametrize("plan", ["decoupled", pytest.param("central", marks=pytest.mark.slow)])
def test_a_learner_that_is_taken_away_with_its_host_has_written_a_checkpoint(
    cluster, tmp_path, plan
):
    run = cluster("--plan", plan, "--env-steps", "100_000_000", "--checkpoint-minutes", "100")
    slow = tmp_path / "slow"
    (tmp_path / "sitecustomize.py").write_text(SLOW_DISK.format(file=str(slow)))
    controller = run.serve()
    supervisors = run.supervise_all(env={**os.environ, "PYTHONPATH": str(tmp_path)})
    run.until(lambda: run.updates() >= 20)
    reached = run.updates()
    slow.touch()  # meanwhile all groups come to the end of their unrolls, and wait for tickets
    controller.terminate()
    (leaving,) = supervisors["learner"]
    leaving.terminate()
    assert leaving.wait(SECONDS) == 143
    slow.unlink()
    with closing(Checkpoints(run.run.checkpoints)) as checkpoints:
        kept = checkpoints.latest()
    assert kept >= reached
    controller.wait(SECONDS)
    controller = run.serve()
    run.supervise("learner")
    run.until(lambda: run.updates() >= kept + 3)
    controller.send_signal(signal.SIGUSR1)
    assert controller.wait(SECONDS) == 130
    told = run.terminal.read_text()
    assert f"goes on after {kept * 4 * 4 * 16:,} env steps" in told
    assert "for a host that has room" not in told  # the controller found all but the learner
    assert account(told).rolled_back == 0


def test_what_a_learner_had_learned_is_rolled_back_where_it_dies_with_its_controller(cluster):
    run = cluster("--env-steps", "100_000_000", "--checkpoint-minutes", "100")
    controller, supervisors = run.serve(), run.supervise_all()
    noted = run.run.path / "unrolls.json"
    run.until(lambda: noted.exists() and json.loads(noted.read_text()).get("0", [0, 0])[1] >= 40)
    for process in (controller, supervisors["learner"][0]):
        process.kill()
        process.wait(SECONDS)
    controller = run.serve()
    run.supervise("learner")
    run.until(lambda: "goes on after" in run.terminal.read_text())
    run.goes_on()
    controller.send_signal(signal.SIGUSR1)
    assert controller.wait(SECONDS) == 130
    assert account(run.terminal.read_text()).rolled_back > 0


@pytest.mark.parametrize("plan", ["decoupled", pytest.param("replicated", marks=pytest.mark.slow)])
def test_controllers_that_are_killed_one_after_the_other_are_not_felt(cluster, plan):
    run = cluster("--plan", plan, "--env-steps", "100_000_000")
    controller, _ = run.serve(), run.supervise_all()
    log = run.run.log("controller")
    workers = sum(fragment.replicas for fragment in run.plan.fragments.values())
    for killed in range(1, 3):
        reached = run.updates()
        run.until(lambda reached=reached: run.updates() >= reached + 3)
        controller.kill()
        controller.wait(SECONDS)
        controller = run.serve()
        run.until(lambda killed=killed: log.read_text().count("found ") == killed * workers)
    reached = run.updates()
    run.until(lambda: run.updates() >= reached + 3)
    controller.send_signal(signal.SIGUSR1)
    assert controller.wait(SECONDS) == 130
    assert "started again" not in run.terminal.read_text()


@pytest.mark.slow
def test_policy_workers_that_come_later_take_their_share(cluster):
    run = cluster("--plan.policies.replicas", "2", "--env-steps", "100_000_000")
    controller = run.serve()
    for fragment in ("learner", "actors", "actors", "policies"):
        run.supervise(fragment)
    run.until(lambda: run.updates() >= 3)
    run.supervise("policies")
    later = run.run.log("controller")
    run.until(lambda: "policies-1 registered" in later.read_text())
    reached = run.updates()
    run.until(lambda: run.updates() >= reached + 3)
    os.kill(run.worker("policies", 0), signal.SIGKILL)
    run.until(lambda: "policies-0 was killed by SIGKILL" in run.terminal.read_text())
    reached = run.updates()
    run.until(lambda: run.updates() >= reached + 3)
    controller.send_signal(signal.SIGUSR1)
    assert controller.wait(SECONDS) == 130


@pytest.mark.slow
def test_actors_that_come_later_take_part_and_others_make_their_unrolls_until_then(cluster):
    run = cluster("--max-staleness", "1", "--env-steps", "100_000_000")
    controller = run.serve()
    for fragment in ("learner", "policies", "actors"):
        run.supervise(fragment)
    run.until(lambda: run.updates() >= 3)
    assert "the run begins; 1 of 2 actors wait for a host" in run.terminal.read_text()
    run.supervise("actors")
    log = run.run.log("controller")
    run.until(lambda: "actors-1 registered" in log.read_text())
    reached = run.updates()
    run.until(lambda: run.updates() >= reached + 3)
    controller.send_signal(signal.SIGUSR1)
    assert controller.wait(SECONDS) == 130
    with closing(Checkpoints(run.run.checkpoints)) as checkpoints:
        assert account(run.terminal.read_text()).learned == 4 * checkpoints.latest()


def test_a_worker_that_cannot_be_started_costs_its_host_no_other(cluster):
    run = cluster("--updates", "20")
    log = run.run.log("actors-0")
    log.mkdir()  # its file cannot be opened
    controller, supervisors = run.serve(), run.supervise_all()
    run.until(lambda: "actors-0 could not be started on " in run.terminal.read_text())
    log.rmdir()
    assert controller.wait(SECONDS) == 0, run.terminal.read_text()
    assert all(each.wait(SECONDS) == 0 for several in supervisors.values() for each in several)


def test_a_supervisor_that_no_controller_comes_to_asks_to_be_started_another_time(
    cluster, monkeypatch
):
    run = cluster()
    monkeypatch.setattr(supervisor, "PATIENCE_SECONDS", 0.3)
    assert supervisor.Supervisor(run.run.path, "actors", 1, "here").run() == 75


def test_a_host_that_sees_another_experiment_is_refused_by_name(cluster, tmp_path):
    run = cluster()
    run.serve()
    run.until((run.run.path / "controller.json").exists)
    other = tmp_path / "other"
    shutil.copytree(run.run.path, other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "sha256": "0" * 64}))
    words = ("actors", "1")
    refused = run.start("srl.launch.hosts.supervisor", *words, folder=other, stderr=subprocess.PIPE)
    _, told = refused.communicate(timeout=SECONDS)
    assert refused.returncode == 2
    assert f"{os.uname().nodename} sees another experiment file than the run's" in told


def test_a_supervisor_of_no_fragment_of_the_plan_says_which_there_are(cluster):
    run = cluster()
    refused = run.start("srl.launch.hosts.supervisor", "actor", "1", stderr=subprocess.PIPE)
    _, told = refused.communicate(timeout=SECONDS)
    assert refused.returncode == 2
    assert "no fragment 'actor'; it has actors, policies, learner" in told


def test_keys_that_others_can_read_are_refused(cluster):
    run = cluster()
    file = run.run.path / "keys" / "curve.secret"
    file.chmod(0o644)
    refused = run.start("srl.launch.hosts.supervisor", "actors", "1", stderr=subprocess.PIPE)
    _, told = refused.communicate(timeout=SECONDS)
    assert refused.returncode == 2
    assert f"chmod 600 {file}" in told
