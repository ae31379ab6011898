"""What Kubernetes takes of the objects in a manifest, as its API reference has it (batch/v1, v1).

Only kinds and fields that srl writes are here, so a mistyped one does not fit, as at a server that
validates strictly. A shape is a type; a tuple of the texts that are allowed; a list for a list of
its one element; `{ANY: shape}` for free names; or fields by name, with `!` after required ones.
"""

ANY = "*"
_LABELS = {ANY: str}
_METADATA = {"name!": str, "labels": _LABELS, "annotations": {ANY: str}}
_CONTAINER = {
    "name!": str,
    "image!": str,
    "command": [str],
    "env": [
        {"name!": str, "value": str, "valueFrom": {"secretKeyRef": {"name!": str, "key!": str}}}
    ],
    "resources": {"requests": {ANY: str}, "limits": {ANY: str}},
    "volumeMounts": [{"name!": str, "mountPath!": str}],
    "securityContext": {"allowPrivilegeEscalation": bool, "capabilities": {"drop": [str]}},
}
_VOLUME = {
    "name!": str,
    "persistentVolumeClaim": {"claimName!": str},
    "configMap": {"name!": str},
    "emptyDir": {"medium": ("", "Memory")},
}
_TOLERATION = {
    "key": str,
    "operator": ("Exists", "Equal"),
    "effect": ("NoSchedule", "PreferNoSchedule", "NoExecute"),
    "tolerationSeconds": int,
}
_APART = {"labelSelector": {"matchLabels": _LABELS}, "topologyKey!": str}
_POD = {
    "restartPolicy": ("Never", "OnFailure"),
    "terminationGracePeriodSeconds": int,
    "automountServiceAccountToken": bool,
    "enableServiceLinks": bool,
    "securityContext": {
        "runAsNonRoot": bool,
        "runAsUser": int,
        "runAsGroup": int,
        "fsGroup": int,
        "seccompProfile": {"type!": ("RuntimeDefault", "Localhost", "Unconfined")},
    },
    "tolerations": [_TOLERATION],
    "initContainers": [_CONTAINER],
    "containers!": [_CONTAINER],
    "volumes": [_VOLUME],
    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_APART]}},
}
_RULE = {
    "action!": ("Count", "FailIndex", "FailJob", "Ignore"),
    "onExitCodes": {"containerName": str, "operator!": ("In", "NotIn"), "values!": [int]},
    "onPodConditions": [{"type!": str, "status!": ("True", "False", "Unknown")}],
}
_JOB = {
    "completionMode": ("Indexed", "NonIndexed"),
    "completions": int,
    "parallelism": int,
    "backoffLimit": int,
    "podFailurePolicy": {"rules!": [_RULE]},
    "template!": {"metadata": {"labels": _LABELS}, "spec!": _POD},
}
KINDS = {
    "Job": {"apiVersion!": ("batch/v1",), "kind!": str, "metadata!": _METADATA, "spec!": _JOB},
    "ConfigMap": {
        "apiVersion!": ("v1",),
        "kind!": str,
        "metadata!": _METADATA,
        "data": {ANY: str},
    },
}


def misfits(value, shape, where="manifest"):
    """Where a value is not of a shape, in words."""
    if isinstance(shape, type):
        return [] if type(value) is shape else [f"{where} is {value!r}, not {shape.__name__}"]
    if isinstance(shape, tuple):
        return [] if value in shape else [f"{where} is {value!r}, not of {shape}"]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{where} is {value!r}, not a list"]
        return [m for k, v in enumerate(value) for m in misfits(v, shape[0], f"{where}[{k}]")]
    if not isinstance(value, dict):
        return [f"{where} is {value!r}, not an object"]
    fields = {name.rstrip("!"): inner for name, inner in shape.items()}
    required = {name[:-1] for name in shape if name.endswith("!")}
    found = [f"{where} lacks {name}" for name in required - value.keys()]
    for name, inner in value.items():
        known = fields.get(name, fields.get(ANY))
        if known is None:
            found.append(f"{where} has no field {name}")
        else:
            found += misfits(inner, known, f"{where}.{name}")
    return found
