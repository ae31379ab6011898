"""Hosts, and a cluster of them, that end with their test."""

from contextlib import ExitStack

import pytest
from hosts import Network, why_no_hosts
from ray_cluster import RayCluster, why_no_ray
from slurm import Slurm, why_no_slurm


@pytest.fixture
def hosts(tmp_path):
    """`hosts(n)` gives n hosts of a new network, whose folder is the test's `tmp_path`."""
    if reason := why_no_hosts():
        pytest.skip(reason)
    with ExitStack() as stack:
        yield lambda count: stack.enter_context(Network(tmp_path, count)).hosts


@pytest.fixture
def slurm(hosts, tmp_path):
    """`slurm(n)` gives a Slurm with n idle nodes, besides the host where its commands run.

    `slurm(n, more)` gives one with further lines in its slurm.conf.
    """
    if reason := why_no_slurm():
        pytest.skip(reason)

    def start(count, more=""):
        login, *nodes = hosts(count + 1)
        cluster = Slurm(tmp_path / "slurm", login, nodes, more)
        cluster.start()
        return cluster

    return start


@pytest.fixture
def ray(hosts, tmp_path):
    """`ray(n)` gives a Ray with a head that trains, and n hosts that do not see its files.

    `ray(n, trainers=m)` gives one whose head does not, and whose first m hosts see its files.
    """
    if reason := why_no_ray():
        pytest.skip(reason)

    def start(count, trainers=0):
        cluster = RayCluster(tmp_path, hosts(count + 1), trainers)
        cluster.start()
        return cluster

    return start


@pytest.fixture(scope="module")
def lasting_ray(tmp_path_factory):
    """As `ray(2)`, for tests of a module that leave it as it was."""
    if reason := why_no_hosts() or why_no_ray():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("ray")
    with Network(folder, 3) as network:
        cluster = RayCluster(folder, network.hosts)
        cluster.start()
        yield cluster
