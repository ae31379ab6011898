"""Thousands of hosts and workers in memory: without processes and sockets.

python tests/launch/many_hosts.py HOSTS SLOTS prints how long a controller's start takes with them.
"""

import itertools
import json
import sys
import tempfile
import time
from collections import deque
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from unittest import mock

from srl.config.experiment import load_experiment
from srl.core.optional_packages import installed_version
from srl.launch.beginning import why_all_that_step
from srl.launch.controller import Controller
from srl.launch.hosts import remote_hosts
from srl.launch.hosts.messages import HostCard, HostMessage, unwrapped, wrapped
from srl.launch.hosts.remote_hosts import RemoteHosts
from srl.run.folder import create_run
from srl.streams.transport import JOINED, Identity, Message, Peer
from srl.streams.transport.keys import create_keys
from srl.workers.control import ControlMessage, pack


class HostsInMemory:
    """A listener with supervisors that have come; their workers register once started."""

    address = "memory:1"
    refused = 0

    def __init__(self):
        self.arrived = deque()
        self.begun = set()
        """Numbers of the workers that were sent START."""
        self._numbers = itertools.count(1)

    def come(self, fragment, slots):
        """Adds a host for workers of a fragment."""
        number = next(self._numbers)
        peer = Peer(Identity(0, number, 0), None, shares_memory=False)
        version, relay = installed_version(), f"host{number}:1"
        card = HostCard(f"host{number}", fragment, slots, version, "", relay)
        self.arrived.append((peer, pack(HostMessage.HOST, asdict(card))))

    def receive(self, timeout):
        if self.arrived:
            return self.arrived.popleft()
        time.sleep(timeout)  # nobody else can send anything meanwhile
        return None

    def send(self, peer, message):
        if message.kind == HostMessage.START:
            spec = json.loads(json.loads(bytes(message.body))["spec"])
            key = spec["number"], spec["incarnation"]
            served = {} if spec["fragment"] == "actors" else {spec["fragment"]: "host:2"}
            hello = pack(ControlMessage.HELLO, {"addresses": served, "specs": None})
            self.arrived += [(peer, wrapped(*key, said)) for said in (Message(JOINED), hello)]
        elif message.kind == HostMessage.WORKER:
            number, _, inner = unwrapped(message)
            if inner.kind == ControlMessage.START:
                self.begun.add(number)
        elif message.kind == HostMessage.BEAT:
            beat = pack(HostMessage.BEAT, {"states": {}, "accounts": []})
            self.arrived.append((peer, beat))

    def refuse(self, sender, reason):
        raise AssertionError(f"{sender}: {reason}")

    def cut_off(self, peer, reason):
        raise AssertionError(f"{peer}: {reason}")

    def close(self):
        pass


class Terminal:
    """Keeps what a controller says."""

    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)

    def report(self, metrics):
        raise AssertionError(metrics)


class Reached(Exception):
    """What was waited for has happened."""


class Start:
    """A controller with hosts in memory, of which none has come yet."""

    def __init__(self, folder, *options):
        words = ["--plan", "inline", *options]
        resolved = load_experiment("native:CartPole-v1", words)
        run, self.plan = create_run(resolved, folder), resolved.experiment.settled_plan
        create_keys(run.path)
        self.hosts, self.terminal = HostsInMemory(), Terminal()
        with mock.patch.object(remote_hosts, "listen", return_value=self.hosts):
            remote = RemoteHosts(run)
        self.controller = Controller(
            self.plan,
            run,
            self.terminal,
            transport="cluster",
            hosts=remote,
            all_that_step=why_all_that_step(resolved.experiment),
        )

    def run(self, until, of_round=lambda step: step()):
        """Runs the controller until a condition holds; `of_round` does each of its rounds."""
        one = self.controller._round

        def stop():
            if until():
                raise Reached
            return False

        self.controller._round = lambda *asked: of_round(lambda: one(*asked))
        with closing(self.controller), suppress(Reached):
            self.controller.run(stop)


def main(hosts, slots):
    with tempfile.TemporaryDirectory() as folder:
        workers = str(hosts * slots)
        start = Start(
            Path(folder) / "run", "--num-envs", workers, "--plan.actors.replicas", workers
        )
        start.hosts.come("learner", 1)
        rounds, left = [], iter(range(hosts))

        def timed(step):
            for _ in itertools.islice(left, 2):
                start.hosts.come("actors", slots)
            before = time.process_time()
            try:
                step()
            finally:
                rounds.append(time.process_time() - before)

        begin = time.process_time()
        start.run(lambda: len(start.hosts.begun) == hosts * slots + 1, timed)
        sys.stdout.write(
            f"{workers} workers on {hosts} hosts: {time.process_time() - begin:.1f} s of core, "
            f"the longest of {len(rounds)} rounds {max(rounds):.2f} s\n"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
