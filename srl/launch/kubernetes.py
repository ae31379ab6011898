"""Kubernetes: a manifest of Indexed Jobs, for the user to apply. srl never talks to a cluster.

One Job runs the controller, and one for each fragment its supervisors. All see the run's folder on
a volume that they share; the first step of each pod puts the run's configuration there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from srl.errors import UserError
from srl.launch.engine import Part, Submission
from srl.launch.host_words import OUTCOME_FILE
from srl.launch.local import FAILED
from srl.launch.terminal import INTERRUPTED
from srl.streams.keys import VARIABLE

_CONTROLLER = Part("controller", hosts=1, slots=0, cores=1, gpus=0, apart=False, controls=False)
_TRIES = 1000  # of a Job's pods, over all of a run
_REFUSED = 2  # exit code of what cannot run as the user wants it
_GRACE_SECONDS = 120  # for the last checkpoint
_LOST_SECONDS = 30  # after which a host that does not answer is replaced
_NAME_LETTERS = 30  # of 63 that a name has; fragments and pods add theirs
_NO_MORE_RIGHTS = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_USER = 1000  # whoever that is: not root
# Whole files only, and what is there stays: other pods do the same. A run that has ended goes on.
_PUT = """\
set -e
mkdir -p {folder}/logs {folder}/checkpoints {folder}/videos
for file in experiment.py config.json; do
  if [ -e /given/$file ] && [ ! -e {folder}/$file ]; then
    cp /given/$file {folder}/$file.$HOSTNAME
    mv {folder}/$file.$HOSTNAME {folder}/$file
  fi
done
rm -f {folder}/{outcome}
"""
_MAKE_KEYS = (
    "kubectl create secret generic {secret} --from-literal={variable}="
    "\"$(python -c 'from srl.streams.keys import Keys; print(Keys.new().to_text())')\""
)


def texts(run: Submission) -> dict[str, str]:
    """The manifest of a run. An annotation in it holds the command that makes its secret.

    Raises:
        UserError: If no image is named.
    """
    if not run.options.image:
        raise UserError("name a container image with srl in it: --image IMAGE")
    name = _name(run)
    objects = [_configuration(run, name), *(_job(run, name, p) for p in (_CONTROLLER, *run.parts))]
    manifest = {"apiVersion": "v1", "kind": "List", "items": objects}
    return {f"{name}.json": json.dumps(manifest, indent=2)}


def submit(run: Submission) -> dict[str, str]:
    """Raises UserError: srl gives Kubernetes nothing itself."""
    raise _not_here()


def states(names: Mapping[str, str]) -> set[str]:
    """Raises UserError, as `submit`."""
    raise _not_here()


def refused(names: Mapping[str, str]) -> str:
    """Raises UserError, as `submit`."""
    raise _not_here()


def stop(names: Mapping[str, str]) -> bool:
    """Raises UserError, as `submit`."""
    raise _not_here()


def _not_here() -> UserError:
    return UserError(
        "srl writes the manifest and does not talk to Kubernetes: add --dry-run and > run.json, "
        "then kubectl apply -f run.json"
    )


def _name(run: Submission) -> str:
    """Of the run in the cluster: that of its folder, if one was given, or of the experiment."""
    given = run.options.run_dir.name if run.options.run_dir else run.name
    letters = re.sub(r"[^a-z0-9]+", "-", given.lower()).strip("-")
    return f"srl-{letters[:_NAME_LETTERS]}".rstrip("-")


def _configuration(run: Submission, name: str) -> dict[str, Any]:
    command = _MAKE_KEYS.format(secret=f"{name}-keys", variable=VARIABLE)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "annotations": {"make-keys": command}},
        "data": dict(run.files),
    }


def _job(run: Submission, name: str, part: Part) -> dict[str, Any]:
    """The Job of a part. What was killed is started again; any other end is an answer."""
    labels = {"srl-run": name, "srl-part": _label(part.fragment)}
    answers = sorted({FAILED, _REFUSED, INTERRUPTED})
    spec = {
        "completionMode": "Indexed",
        "completions": part.hosts,
        "parallelism": part.hosts,
        "backoffLimit": _TRIES,
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": "srl", "operator": "In", "values": answers},
                },
                {
                    "action": "Ignore",
                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                },
            ]
        },
        "template": {"metadata": {"labels": labels}, "spec": _pod(run, name, part, labels)},
    }
    metadata = {"name": f"{name}-{_label(part.fragment)}", "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _pod(run: Submission, name: str, part: Part, labels: Mapping[str, str]) -> dict[str, Any]:
    folder = f"/runs/{name}"
    first = {
        "name": "put-configuration",
        "command": ["sh", "-c", _PUT.format(folder=folder, outcome=OUTCOME_FILE)],
        "volumeMounts": [_mount("runs", "/runs"), _mount("given", "/given")],
    }
    common = {"image": run.options.image, "securityContext": _NO_MORE_RIGHTS}
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{trouble}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": _LOST_SECONDS,
            }
            for trouble in ("not-ready", "unreachable")
        ],
        "initContainers": [first | common],
        "containers": [_container(name, folder, part) | common],
        "volumes": [
            {"name": "runs", "persistentVolumeClaim": {"claimName": run.options.claim}},
            {"name": "given", "configMap": {"name": name}},
            {"name": "memory", "emptyDir": {"medium": "Memory"}},
        ],
    }
    if part.apart:
        term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
        always = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        pod["affinity"] = {"podAntiAffinity": always}
    return pod


def _container(name: str, folder: str, part: Part) -> dict[str, Any]:
    if part is _CONTROLLER:
        words = ["srl.launch.serve", folder]
    else:
        words = ["srl.launch.supervisor", folder, part.fragment, str(part.slots)]
    secret = {"secretKeyRef": {"name": f"{name}-keys", "key": VARIABLE}}
    limits = {"limits": {"nvidia.com/gpu": str(part.gpus)}} if part.gpus else {}
    return {
        "name": "srl",
        "command": ["python", "-m", *words],
        "env": [{"name": VARIABLE, "valueFrom": secret}, {"name": "HOME", "value": "/tmp"}],
        "resources": {"requests": {"cpu": str(part.cores)}, **limits},
        "volumeMounts": [_mount("runs", "/runs"), _mount("memory", "/dev/shm")],
    }


def _mount(name: str, path: str) -> dict[str, str]:
    return {"name": name, "mountPath": path}


def _label(fragment: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", fragment.lower()).strip("-")
