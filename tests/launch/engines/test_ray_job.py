import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from srl.api.cli import main
from srl.core.errors import UserError
from srl.launch.engines.engine import Part
from srl.launch.engines.ray_job import bundles, refuse_too_much

LEARNER = Part("learner", hosts=1, slots=1, cores=2, gpus=1, apart=False, controls=True)
ACTORS = Part("actors", hosts=3, slots=4, cores=4, gpus=0, apart=True, controls=False)
SMALL, LARGE = {"CPU": 4.0}, {"CPU": 8.0, "GPU": 1.0, "disk": 1.0}


def cluster(*hosts):
    """What Ray tells of a cluster with these hosts."""
    return SimpleNamespace(nodes=lambda: [{"Alive": True, "Resources": host} for host in hosts])


def test_memory_is_taken_of_each_host_and_shown_as_people_read_it():
    large = replace(LEARNER, memory=3 << 30)
    assert bundles(large, "") == [{"CPU": 2, "GPU": 1, "memory": 3 << 30}]
    hosts = cluster(LARGE | {"memory": 2.0 * 2**30})
    with pytest.raises(UserError, match=r"has 2 CPU, 1 GPU, 3\.0 GiB memory.*, for learner"):
        refuse_too_much(hosts, [large], "")


def test_only_what_trains_is_bound_to_hosts_that_see_the_folder():
    assert bundles(LEARNER, "disk") == [{"CPU": 2, "GPU": 1, "disk": 0.001}]
    assert bundles(ACTORS, "disk") == [{"CPU": 4}] * 3
    assert bundles(replace(ACTORS, hosts=1, evaluates=True), "disk") == [{"CPU": 4, "disk": 0.001}]


def test_a_cluster_with_room_for_all_is_taken():
    refuse_too_much(cluster(LARGE, SMALL, SMALL), [LEARNER, ACTORS], "disk")


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ([SMALL, SMALL, SMALL], "no host of the Ray cluster has .*GPU.*, for learner"),
        ([LARGE, LARGE], "actors is to have 3 hosts with .*; the Ray cluster has 2 of them"),
        ([LARGE, SMALL, {"CPU": 1.0}], "actors is to have 3 hosts with .*; .* has 2 of them"),
        ([LARGE | SMALL, SMALL, SMALL], "takes 14 CPU in all; the Ray cluster has 12"),
    ],
)
def test_a_plan_for_a_larger_cluster_is_refused(hosts, words):
    with pytest.raises(UserError, match=words):
        refuse_too_much(cluster(*hosts), [LEARNER, ACTORS], "disk")


def test_a_dry_run_shows_the_job(capsys, tmp_path):
    words = ["run", "native:CartPole-v1", "--plan", "decoupled", "--on", "ray", "--dry-run"]
    assert main([*words, "--run-dir", str(tmp_path / "run")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [group["strategy"] for group in told["placement_groups"].values()] == ["PACK"] * 3
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("engine", ["ray", "slurm"])
def test_what_evaluates_versions_has_a_host_of_its_own(capsys, engine):
    words = ["run", "native:CartPole-v1", "--plan", "inline", "--on", engine, "--dry-run"]
    assert main([*words, "--evaluation.episodes", "5"]) == 0
    told = capsys.readouterr().out
    if engine == "ray":
        groups = json.loads(told)["placement_groups"]
        (bundle,) = groups["evaluator"]["bundles"]
        assert bundle["CPU"] == 2
        assert bundle["memory"] > 2**28
    else:
        assert "--job-name=srl-native-CartPole-v1-evaluator" in told
        assert "-P -m srl.launch.engines.evaluator_main" in told
