"""What Slurm does to jobs by itself: takes hosts away, starts jobs again, ends their time."""

import json
import re
import subprocess
import sys
from contextlib import suppress

import pytest
from slurm_run import APART, CARTPOLE, SlurmRun, newest, updates
from watching import account, processes

from srl.api.cli import main

pytestmark = pytest.mark.slow
LONG = (*APART, "--env-steps", "1_000_000_000", "--checkpoint-minutes", "0.05")


def controllers(run):
    return processes(
        lambda words: (
            {"srl.launch.engines.controller_main", str(run.folder)} <= set(words)
            and "bash" not in words[0]
        )
    )


def restarted(run, kind, times=1):
    job = run.job(kind)
    return job["JobState"] == "RUNNING" and job["Restarts"] == str(times)


def test_a_run_goes_on_whose_jobs_are_preempted_and_started_again(slurm, tmp_path):
    cluster = slurm(4)
    cluster.configure("KillWait", 30)  # as it usually is
    words = ("--env-steps", "1_000_000_000", "--checkpoint-minutes", "100")
    run = SlurmRun(cluster, tmp_path / "run", *APART, *words)
    run.until(updates(3))
    host = run.host("actors")
    cluster.run("scontrol", "requeue", run.number("actors"))
    run.until(lambda run: f" left with its host, {host.name}; it is started again" in run.told)
    run.until(lambda run: restarted(run, "actors"))
    reached = run.metrics()[-1]["updates"]
    run.until(updates(reached + 3))
    run.until(lambda run: newest(run.folder))
    reached = run.metrics()[-1]["env_steps"]
    cluster.run("scontrol", "requeue", run.number("learner"))
    run.until(lambda run: restarted(run, "learner"))
    run.until(lambda run: "goes on after" in run.told)
    (kept,) = re.findall(r"goes on after ([\d,]+) env steps", run.told)
    assert int(kept.replace(",", "")) >= reached  # it was written when the job was taken away
    reached = run.metrics()[-1]["updates"]
    run.until(updates(reached + 20))
    assert len(controllers(run)) == 1
    assert restarted(run, "learner")
    run.stop()
    assert run.wait() == 130, run.all
    assert account(run.told).learned == 4 * newest(run.folder)
    assert account(run.told).rolled_back == 0
    assert all(line["staleness_max"] == 0 for line in run.metrics())


PREEMPTING = """
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF
PartitionName=DEFAULT PriorityTier=1 PreemptMode=REQUEUE GraceTime=100000
"""


def preempt(run, kind, restarts):
    """Has a job of higher priority take a fragment's host for a second; waits for its return.

    Gives the unrolls that the learner had learned from, as the controller noted last.
    """
    cluster = run.cluster
    script = cluster.folder / "other.sh"
    script.write_text("#!/bin/sh\nsleep 1\n")
    where = ("--partition=urgent", f"--nodelist={run.host(kind).name}", "--exclusive")
    number = cluster.run("sbatch", "--parsable", *where, script).stdout.strip()
    cluster.wait_job(number)
    learned = json.loads((run.folder / "unrolls.json").read_text())["0"][1]
    run.until(lambda run: restarted(run, kind, restarts))
    return learned


def test_a_learner_that_a_job_of_higher_priority_preempts_writes_a_checkpoint(slurm, tmp_path):
    words = ("--env-steps", "1_000_000_000", "--checkpoint-minutes", "100")
    run = SlurmRun(slurm(4, PREEMPTING), tmp_path / "run", *APART, *words)
    run.until(updates(3))
    run.until(lambda run: newest(run.folder))
    reached = run.metrics()[-1]["updates"]
    preempt(run, "learner", 1)  # the grace is long: the job ends by the TERM that begins it
    run.until(lambda run: "goes on after" in run.told)
    kept = newest(run.folder)
    assert kept >= reached
    run.until(updates(100 * (kept // 100 + 1)))  # there is a report every 100
    own = f'"folder": "{run.folder}", "fragment": "learner",'
    (learner,) = processes(lambda words: any(own in word for word in words))
    run.cluster.run("scontrol", "update", "partitionname=main", "gracetime=3")
    # It can write none: Slurm lets it continue before the TERM, and this stops it again.
    holding = subprocess.Popen(["sh", "-c", f"while :; do kill -STOP {learner} 2>/dev/null; done"])
    try:
        learned = preempt(run, "learner", 2)
    finally:
        holding.kill()
        holding.wait()
    run.until(lambda run: run.told.count("goes on after") == 2)
    run.until(lambda run: "first steps" in run.told.rpartition("goes on after")[2])
    run.stop()
    assert run.wait() == 130, run.all
    assert account(run.told).learned == 4 * newest(run.folder)
    *_, kept = re.findall(r"goes on after ([\d,]+) env steps", run.told)
    steps = 4 * 16  # of an unroll's environments
    assert account(run.told).rolled_back == learned - int(kept.replace(",", "")) // steps >= 0


def test_a_job_that_is_held_as_its_node_has_failed_starts_by_the_command_that_is_shown(
    slurm, tmp_path
):
    prolog = tmp_path / "prolog"
    prolog.write_text("#!/bin/sh\n[ $SLURMD_NODENAME != host2 ]\n")
    prolog.chmod(0o755)
    cluster = slurm(3, f"Prolog={prolog}")
    run = SlurmRun(cluster, tmp_path / "run", "--plan", "decoupled", "--updates", "3")
    held = r"PENDING \(launch failed requeued held: `(scontrol release \d+)` lets it start\)"
    run.until(lambda run: re.search(held, run.told))
    assert cluster.states()["host2"] == "drained"
    released = set()
    while run.process.poll() is None:  # several jobs may have been given that node
        for command in set(re.findall(held, run.told)) - released:
            cluster.run(*command.split())
            released.add(command)
        with suppress(subprocess.TimeoutExpired):
            run.process.wait(0.2)
    assert run.wait() == 0, run.all
    assert newest(run.folder) == 3


def test_a_run_whose_time_ends_has_written_a_checkpoint_and_can_be_gone_on_with(slurm, tmp_path):
    words = (*APART, "--env-steps", "1_000_000_000", "--time", "2")
    run = SlurmRun(slurm(4), tmp_path / "run", *words)
    assert run.wait() == 130, run.all
    assert "interrupted; `srl resume" in run.told
    done = newest(run.folder)
    assert account(run.told).learned == 4 * done
    budget = str((done + 20) * 4 * 4 * 16)  # as many unrolls of as many steps of as many slots
    assert main(["resume", str(run.folder), "--env-steps", budget]) == 0
    assert newest(run.folder) == done + 20


def test_a_run_that_is_told_to_stop_before_it_listens_ends(slurm, tmp_path):
    run = SlurmRun(slurm(4), tmp_path / "run", *LONG)
    run.until(lambda run: run.folder.joinpath("slurm", "jobs.json").exists())
    run.until(lambda run: run.job("learner")["JobState"] == "RUNNING")
    run.stop()
    assert run.wait() == 130, run.all


# In the place of a supervisor: one finds no controller at first, the other fails once.
ENDINGS = """#!/bin/sh
echo $SLURM_ARRAY_TASK_ID ${SLURM_RESTART_COUNT:-0} >> tries
case "$SLURM_ARRAY_TASK_ID $SLURM_RESTART_COUNT $(grep -c ^1 tries)" in
  "0  "*) exit 75 ;;
  "1  1") exit 70 ;;
esac
"""


def test_a_host_that_no_controller_comes_to_waits_in_the_queue_and_no_other_with_it(
    slurm, tmp_path, capsys
):
    cluster, folder = slurm(2), tmp_path / "run"
    words = ["run", *CARTPOLE, *APART, "--run-dir", str(folder), "--on", "slurm", "--dry-run"]
    assert main(words) == 0
    script = capsys.readouterr().out.partition("# actors.sh\n")[2].partition("# policies.sh\n")[0]
    (tmp_path / "endings").write_text(ENDINGS)
    (tmp_path / "endings").chmod(0o755)
    supervisor = f"{sys.executable} -P -m srl.launch.hosts.supervisor {folder} actors 1"
    assert supervisor in script
    (tmp_path / "actors.sh").write_text(script.replace(supervisor, str(tmp_path / "endings")))
    (folder / "logs").mkdir(parents=True)
    job = cluster.run("sbatch", "--parsable", f"--chdir={tmp_path}", tmp_path / "actors.sh")
    number = job.stdout.strip()
    cluster.wait_job(f"{number}_1")
    assert cluster.wait_job(f"{number}_0")["Restarts"] == "1"
    assert sorted((tmp_path / "tries").read_text().split("\n")[:-1]) == ["0 0", "0 1", "1 0", "1 0"]
    told = (folder / "logs" / "slurm-actors.log-1").read_text()
    assert "the supervisor has ended with 70; it is started again in 5 s" in told
