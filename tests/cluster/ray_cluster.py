"""A real Ray over the hosts of a network: a head, hosts that train, and others that have room."""

import importlib.util
import os
import secrets
import subprocess
import sys
from pathlib import Path

from waiting import wait_until

PROGRAM = [sys.executable, "-m", "ray.scripts.scripts"]
AGAIN = ["sh", "-c", 'until "$@"; do sleep 1; done', "sh"]  # on a slow machine a start gives up
PLACE = Path("/tmp/ray")  # where Ray keeps what hosts must not share
READY = Path(__file__).with_name("ray_ready.py")
SECONDS = 300
FOLDER = '--resources={"folder": 1}'
AGENTS = ("metrics-export", "dashboard-agent-grpc", "dashboard-agent-listen", "runtime-env-agent")
# Ray waits 15 s at most for agents to find ports of their own; a host has all to itself.
PORTS = [f"--{agent}-port={9000 + number}" for number, agent in enumerate(AGENTS)]
LEAST = ["--num-gpus=0", "--object-store-memory=80000000", "--disable-usage-stats", "--block"]


def why_no_ray() -> str | None:
    """What this Python lacks for Ray, if anything."""
    there = importlib.util.find_spec("ray")
    return None if there else "Ray is not installed: pip install 'ray[default]'"


class RayCluster:
    """Ray's own daemons, which let in only who has their token."""

    def __init__(self, folder, hosts, trainers=0):
        """Starts nothing.

        Args:
            folder: For logs, and for what only some hosts see: `runs` in it.
            hosts: The head first, then those that train, then others.
            trainers: That see `runs` as the head does, and have the custom resource `folder`; where
                there is none, the head trains.
        """
        self.folder, self.head, self.workers = folder, hosts[0], hosts[1:]
        self.trainers = hosts[1 : 1 + trainers]
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_failure_threshold": "3",
            "RAY_worker_niceness": "0",  # else any load of the machine starves a run
        }
        self.runs = folder / "runs"
        self.address = f"http://{self.head.address}:8265"

    def start(self):
        """Starts it, and waits until all hosts are there and jobs are taken."""
        room = ["--num-cpus=0"] if self.trainers else ["--num-cpus=1", FOLDER]
        head = ["--head", "--port=6379", f"--dashboard-host={self.head.address}"]
        self._start(self.head, *head, *room)
        self._wait_for_head()
        self.runs.mkdir()
        for host in self.workers:
            self.join(host)
        self.wait_for_hosts(len(self.workers) + 1)

    def join(self, host):
        """Starts Ray on a host of `workers` that has just booted."""
        own = ["--num-cpus=2"]
        if host in self.trainers:  # where a run's other workers are, too, there is room for it all
            own = ["--num-cpus=4", FOLDER]
        else:
            host.run("mount", "-t", "tmpfs", "tmpfs", self.runs)
        self._start(host, f"--address={self.head.address}:6379", *own)

    def wait_for_hosts(self, count):
        """Waits until so many are there, with the head, and jobs are taken."""
        words = [sys.executable, READY, self.address, count]
        self.head.run(*words, env=self.environment, timeout=SECONDS)

    def popen(self, *command, **options) -> subprocess.Popen:
        """Starts a process at the head; options are those of `Host.popen`."""
        return self.head.popen(*command, env=self.environment, **options)

    def _start(self, host, *options):
        PLACE.mkdir(exist_ok=True)
        host.run("mount", "-t", "tmpfs", "tmpfs", PLACE)
        words = [
            *AGAIN,
            *PROGRAM,
            "start",
            f"--node-ip-address={host.address}",
            *options,
            *PORTS,
            *LEAST,
        ]
        with (self.folder / f"{host.name}-ray.log").open("a") as log:
            host.popen(*words, env=self.environment, stdout=log, stderr=log)

    def _wait_for_head(self):
        log = self.folder / f"{self.head.name}-ray.log"
        wait_until(lambda: "Ray runtime started" in log.read_text(), SECONDS, log.read_text)
