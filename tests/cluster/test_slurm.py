"""What srl will count on of Slurm, and the harness that runs it."""

import signal

import pytest
from waiting import wait_until

SECONDS = 60

COUNTING = """
echo $(hostname) ${SLURM_RESTART_COUNT:-0} >> placed
[ -n "$SLURM_RESTART_COUNT" ] || sleep 1000
"""
ELASTIC = """
srun --no-kill --wait=0 sh -c 'hostname >> started; while ! [ -e go ]; do sleep 0.1; done;
hostname >> done'
"""


def submit(cluster, script, *options):
    """Submits a batch job whose folder is the network's; gives its number."""
    file = cluster.folder / "script.sh"
    file.write_text(f"#!/bin/sh\n{script}\n")
    return cluster.run("sbatch", "--parsable", *options, file).stdout.strip()


def wait_lines(file, *lines):
    """Waits until a file has these lines and no others, in any order."""

    def told():
        return file.read_text().splitlines() if file.exists() else []

    wait_until(lambda: sorted(told()) == sorted(lines), SECONDS, told)


def test_a_job_runs_on_each_of_its_hosts(slurm, tmp_path):
    cluster = slurm(2)
    assert cluster.states() == {"host2": "idle", "host3": "idle"}
    job = submit(cluster, "srun hostname", "--nodes=2", "--output=told")
    assert cluster.wait_job(job)["NodeList"] == "host[2-3]"
    wait_lines(tmp_path / "told", "host2", "host3")


@pytest.mark.slow
def test_a_job_of_two_parts_starts_as_one(slurm, tmp_path):
    cluster = slurm(2)
    script = """#SBATCH --nodes=1 --comment=learners --output=told
#SBATCH hetjob
#SBATCH --nodes=1 --comment=actors
srun --het-group=0 hostname : --het-group=1 hostname
"""
    job = submit(cluster, script)
    cluster.wait_job(job)
    wait_lines(tmp_path / "told", "host2", "host3")


@pytest.mark.slow
def test_the_job_of_a_node_that_is_known_to_be_lost_starts_again_elsewhere(slurm, tmp_path):
    cluster = slurm(2)
    job = submit(cluster, COUNTING, "--requeue")
    wait_lines(tmp_path / "placed", "host2 0")
    cluster.power_off(cluster.nodes[0])
    assert cluster.wait_job(job)["Restarts"] == "1"
    wait_lines(tmp_path / "placed", "host2 0", "host3 1")


@pytest.mark.slow
def test_after_a_power_loss_that_slurm_finds_one_job_goes_on_and_another_starts_again_elsewhere(
    slurm, tmp_path
):
    cluster = slurm(3)
    lost = cluster.nodes[1]
    elastic = submit(cluster, ELASTIC, "--nodes=2", "--no-kill", "--nodelist=host[2-3]")
    gang = submit(cluster, COUNTING, "--requeue", "--exclude=host2", "--nodes=1", "--oversubscribe")
    wait_lines(tmp_path / "started", "host2", "host3")
    wait_lines(tmp_path / "placed", "host3 0")
    lost.power_off()
    cluster.wait_nodes({lost.name: "down*"})
    assert cluster.wait_job(gang)["Restarts"] == "1"
    wait_lines(tmp_path / "placed", "host3 0", "host4 1")
    assert cluster.job(elastic)["JobState"] == "RUNNING"
    (tmp_path / "go").touch()
    wait_lines(tmp_path / "done", "host2")
    cluster.power_on(lost)
    cluster.wait_nodes({lost.name: "idle"})


@pytest.mark.slow
def test_the_controller_may_be_restarted_while_a_job_runs(slurm, tmp_path):
    cluster = slurm(1)
    script = "echo >> started; while ! [ -e go ]; do sleep 0.1; done"
    job = submit(cluster, script)
    wait_lines(tmp_path / "started", "")
    cluster.controller.send_signal(signal.SIGTERM)
    assert cluster.controller.wait(SECONDS) == 0
    cluster.start_controller()
    (tmp_path / "go").touch()
    cluster.wait_job(job)
