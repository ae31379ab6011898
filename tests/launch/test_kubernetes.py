"""The manifest that `srl run --on k8s --dry-run` shows. No cluster has ever run one of ours."""

import json
import re
import subprocess

import pytest
from kubernetes_shapes import KINDS, misfits

from srl.cli import main
from srl.launch.host_words import OUTCOME_FILE

RUN = ("run", "native:CartPole-v1", "--plan", "decoupled", "--on", "k8s")


@pytest.fixture
def manifest(capsys):
    """`manifest(...)` gives its objects by kind and name, for more words of the command line."""

    def made(*words):
        assert main([*RUN, "--dry-run", "--image", "here/srl:1", *words]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["kind"] == "List"
        return {(item["kind"], item["metadata"]["name"]): item for item in told["items"]}

    return made


def pod(item):
    return item["spec"]["template"]["spec"]


def test_every_object_fits_the_api(manifest):
    objects = manifest("--plan.actors.hosts", "2", "--plan.learner.gpus", "1")
    for (kind, name), item in objects.items():
        assert not misfits(item, KINDS[kind], name)
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,48}[a-z0-9])?", name)


@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_every_object_fits_the_schemas_that_kubernetes_publishes(manifest, version):
    reason = "the schemas are large: pip install kubernetes-validate"
    schemas = pytest.importorskip("kubernetes_validate", reason=reason)
    objects = manifest("--plan.actors.hosts", "2", "--plan.learner.gpus", "1")
    for item in objects.values():
        assert schemas.validate(item, version, strict=True) == version
    job = objects["Job", "srl-native-cartpole-v1-actors"]
    pod(job)["tolerations"][0]["tolerationSecond"] = 30
    with pytest.raises(schemas.ValidationError, match="tolerationSecond"):
        schemas.validate(job, version, strict=True)


def test_a_mistyped_field_does_not_fit(manifest):
    job = manifest()["Job", "srl-native-cartpole-v1-actors"]
    job["spec"]["completion"] = 2
    pod(job)["containers"][0]["command"] = "python"
    del pod(job)["containers"][0]["image"]
    assert len(misfits(job, KINDS["Job"])) == 3


def test_the_plan_gives_jobs_their_hosts_cores_and_gpus(manifest):
    words = ("--plan.actors.replicas", "4", "--plan.actors.hosts", "2", "--plan.actors.cores", "2")
    objects = manifest(*words, "--plan.learner.gpus", "1")
    actors = objects["Job", "srl-native-cartpole-v1-actors"]
    learner = objects["Job", "srl-native-cartpole-v1-learner"]
    assert actors["spec"]["completions"] == 2
    assert pod(actors)["containers"][0]["resources"] == {"requests": {"cpu": "4"}}
    assert pod(actors)["containers"][0]["command"][-2:] == ["actors", "2"]
    assert "podAntiAffinity" in pod(actors)["affinity"]
    assert pod(learner)["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert "affinity" not in pod(learner)


def test_keys_are_named_and_never_shown(manifest):
    objects = manifest()
    configuration = objects["ConfigMap", "srl-native-cartpole-v1"]
    assert "kubectl create secret" in configuration["metadata"]["annotations"]["make-keys"]
    for (kind, _), item in objects.items():
        if kind == "Job":
            [key] = [v for v in pod(item)["containers"][0]["env"] if v["name"] == "SRL_KEYS"]
            reference = {"name": "srl-native-cartpole-v1-keys", "key": "SRL_KEYS"}
            assert key["valueFrom"] == {"secretKeyRef": reference}


def test_the_first_step_of_a_pod_puts_a_run_into_the_volume(manifest, tmp_path):
    objects = manifest("--run-dir", "My run")
    given, runs = tmp_path / "given", tmp_path / "runs"
    given.mkdir()
    for name, text in objects["ConfigMap", "srl-my-run"]["data"].items():
        (given / name).write_text(text)
    [first] = pod(objects["Job", "srl-my-run-controller"])["initContainers"]
    script = first["command"][2].replace("/given", str(given)).replace("/runs", str(runs))
    (runs / "srl-my-run").mkdir(parents=True)
    (runs / "srl-my-run" / OUTCOME_FILE).write_text("of a run that is to go on")
    for name in ("pod-1", "pod-2"):
        subprocess.run(["sh", "-c", script], env={"HOSTNAME": name}, check=True, timeout=30)
    found = {file.name for file in (runs / "srl-my-run").iterdir()}
    assert found == {"config.json", "logs", "checkpoints", "videos"}


def test_an_image_is_asked_for(capsys):
    assert main([*RUN, "--dry-run"]) == 2
    assert "--image" in capsys.readouterr().err


def test_without_a_dry_run_the_user_is_told_what_to_do(capsys, tmp_path):
    assert main([*RUN, "--image", "here/srl:1", "--run-dir", str(tmp_path / "run")]) == 2
    assert "kubectl apply" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
