"""A real Ray over the hosts of a network: a head, which trains, and others that have room."""

import importlib.util
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = [sys.executable, "-m", "ray.scripts.scripts"]
PLACE = Path("/tmp/ray")  # where Ray keeps what hosts must not share
READY = Path(__file__).with_name("ray_ready.py")
SECONDS = 120
LEAST = ["--num-gpus=0", "--object-store-memory=80000000", "--disable-usage-stats", "--block"]


def why_no_ray() -> str | None:
    """What this Python lacks for Ray, if anything."""
    there = importlib.util.find_spec("ray")
    return None if there else "Ray is not installed: pip install 'ray[default]'"


class RayCluster:
    """Ray's own daemons, which let in only who has their token."""

    def __init__(self, folder, hosts):
        """Starts nothing.

        Args:
            folder: For logs, and for what only the head sees: `runs` in it.
            hosts: The head first; only it has the custom resource `folder`.
        """
        self.folder, self.head, self.workers = folder, hosts[0], hosts[1:]
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_failure_threshold": "3",
        }
        self.runs = folder / "runs"
        self.address = f"http://{self.head.address}:8265"

    def start(self):
        """Starts it, and waits until all hosts are there and jobs are taken."""
        head = ["--head", "--port=6379", f"--dashboard-host={self.head.address}"]
        self._start(self.head, *head, "--num-cpus=1", '--resources={"folder": 1}')
        self._wait_for_head()
        self.runs.mkdir()
        for host in self.workers:
            host.run("mount", "-t", "tmpfs", "tmpfs", self.runs)
            self._start(host, f"--address={self.head.address}:6379", "--num-cpus=2")
        words = [sys.executable, READY, self.address, len(self.workers) + 1]
        self.head.run(*words, env=self.environment, timeout=SECONDS)

    def popen(self, *command, **options) -> subprocess.Popen:
        """Starts a process at the head; options are those of `Host.popen`."""
        return self.head.popen(*command, env=self.environment, **options)

    def _start(self, host, *options):
        PLACE.mkdir(exist_ok=True)
        host.run("mount", "-t", "tmpfs", "tmpfs", PLACE)
        words = [*PROGRAM, "start", f"--node-ip-address={host.address}", *options, *LEAST]
        with (self.folder / f"{host.name}-ray.log").open("a") as log:
            host.popen(*words, env=self.environment, stdout=log, stderr=log)

    def _wait_for_head(self):
        deadline = time.monotonic() + SECONDS
        log = self.folder / f"{self.head.name}-ray.log"
        while "Ray runtime started" not in (told := log.read_text()):
            assert time.monotonic() < deadline, told
            time.sleep(0.1)
