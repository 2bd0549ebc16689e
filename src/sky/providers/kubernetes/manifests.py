"""What is written into a cluster for one machine: a pod, its secret, its disk.

Decides: names, labels and every field. Never: calls the API, or puts a credential anywhere but in the secret.
Follows: the name of a pod comes from its tag alone, so that a tag has one pod whoever asks and however often;
the secret belongs to the pod and goes with it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

import msgspec

from sky.domain.offer import Offer
from sky.providers.base import LaunchOrder, Refused
from sky.providers.kubernetes import relay
from sky.providers.kubernetes.config import KubernetesConfig
from sky.providers.kubernetes.shape import Item, mapping

MARK = "skyfleet/"
DEPLOYMENT, TAG, PROVIDER, DISK = f"{MARK}deployment", f"{MARK}node", f"{MARK}provider", f"{MARK}disk"
HOLDER = f"{MARK}holder"
"""On a disk: the tag of the machine that has it."""
TUNNEL = f"{MARK}tunnel"
"""On a pod that cannot dial the daemon: the port at which the daemon comes to it."""
QUEUE = "kueue.x-k8s.io/queue-name"
CONTAINER = "node"
SCRIPT = "start.sh"
SECRET_AT, WORK_AT, DISK_AT = "/skyfleet/secret", "/skyfleet/work", "/skyfleet/disk"
SHARED_AT = str(PurePosixPath("/dev", "shm"))
"""The pod's own shared memory, which is 64 MiB where nobody says otherwise."""
SECRET_BYTES_MAX = 1 << 20
PYTHON = "3.12"
"""Of an image that nobody named, where the compute does not care."""
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose the pods are."""

    deployment: str
    provider_id: str

    def labels(self) -> dict[str, str]:
        return {
            "app.kubernetes.io/name": "skyfleet-node",
            "app.kubernetes.io/managed-by": "skyfleet",
            DEPLOYMENT: label(self.deployment),
            PROVIDER: label(self.provider_id),
        }

    def selector(self) -> str:
        """Everything of this deployment, whichever row bought it."""
        return f"{DEPLOYMENT}={label(self.deployment)}"

    def name(self, what: str) -> str:
        """A name for ``what`` that no other deployment gives."""
        mark = hashlib.sha256(f"{self.deployment}\0{what}".encode()).hexdigest()[:10]
        return f"sky-{_NOT_IN_NAMES.sub('-', what.lower()).strip('-')[:40].strip('-')}-{mark}"


def label(text: str) -> str:
    """``text`` where it can be a label's value, else something that stands for it."""
    return text if _LABEL.fullmatch(text) else hashlib.sha256(text.encode()).hexdigest()[:32]


def image_of(config: KubernetesConfig, order: LaunchOrder) -> str:
    """The container image: the compute's, the provider's, or Python's own."""
    wanted = mapping(order.agent.spec, "image")
    base = wanted.get("base") or config.image
    if base:
        return str(base).removeprefix("docker:")
    minor = ".".join(str(wanted.get("python") or PYTHON).split(".")[:2])
    return f"python:{minor}-slim"


def pod(config: KubernetesConfig, owner: Owner, order: LaunchOrder) -> Item:
    """The pod of an order. Its program is in a secret of the same name, which is made after it."""
    name, offer = owner.name(order.tag), order.offer
    spec: Item = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": config.grace_seconds,
        "automountServiceAccountToken": config.service_account is not None,
        "enableServiceLinks": False,
        # The pause container is then the first process and buries what user programs leave behind.
        "shareProcessNamespace": True,
        "containers": [_container(config, order)],
        "volumes": _volumes(owner, order, name),
        "tolerations": _tolerations(config, offer),
    }
    user = config.run_as_user
    optional: Item = {
        "securityContext": {} if user is None else {**_as_user(user), "fsGroup": user},
        "nodeSelector": {**config.node_selector, **offer.specific.get("node_selector", {})},
        "serviceAccountName": config.service_account,
        "priorityClassName": config.priority_class,
        "runtimeClassName": config.runtime_class,
        "imagePullSecrets": [{"name": secret} for secret in config.image_pull_secrets],
    }
    spec.update({field: value for field, value in optional.items() if value})
    disk = {} if order.disk is None else {DISK: label(order.disk)}
    queue = {} if config.queue is None else {QUEUE: config.queue}
    metadata: Item = {
        "name": name,
        "labels": {**config.labels, **owner.labels(), TAG: label(order.tag), **disk, **queue},
        "annotations": {
            **config.annotations,
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
            TAG: order.tag,
            **({TUNNEL: str(relay.port_of(name))} if config.tunnel else {}),
        },
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _container(config: KubernetesConfig, order: LaunchOrder) -> Item:
    offer = order.offer
    requests: Item = {"cpu": str(offer.cpus), "memory": f"{round(offer.memory_gb * 1024)}Mi"}
    limits: Item = {}
    if config.limit_cpu:
        limits["cpu"] = requests["cpu"]
    if config.limit_memory:
        limits["memory"] = requests["memory"]
    if offer.accelerator_count:
        requests[config.gpu_resource] = limits[config.gpu_resource] = str(offer.accelerator_count)
    mounts: list[Item] = [
        {"name": "secret", "mountPath": SECRET_AT, "readOnly": True},
        {"name": "work", "mountPath": WORK_AT},
        {"name": "shm", "mountPath": SHARED_AT},
    ]
    variables = {"UV_PYTHON_DOWNLOADS": "automatic", **config.environment}
    environment = [{"name": name, "value": value} for name, value in variables.items()]
    if order.disk is not None:
        mounts.append({"name": "disk", "mountPath": DISK_AT})
        environment.append({"name": "SKY_AGENT_DISK", "value": DISK_AT})
    container: Item = {
        "name": CONTAINER,
        "image": image_of(config, order),
        "command": ["sh", f"{SECRET_AT}/{SCRIPT}"],
        "env": environment,
        "resources": {"requests": requests, **({"limits": limits} if limits else {})},
        "volumeMounts": mounts,
        # What the program said last is in the pod's status when it fails.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if config.run_as_user is not None:
        container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    if config.image_pull_policy is not None:
        container["imagePullPolicy"] = config.image_pull_policy
    return container


def _as_user(user: int) -> Item:
    return {"runAsUser": user, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def _volumes(owner: Owner, order: LaunchOrder, name: str) -> list[Item]:
    volumes: list[Item] = [
        {"name": "secret", "secret": {"secretName": name, "defaultMode": 0o444}},
        {"name": "work", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    if order.disk is not None:
        volumes.append({"name": "disk", "persistentVolumeClaim": {"claimName": owner.name(order.disk)}})
    return volumes


def _tolerations(config: KubernetesConfig, offer: Offer) -> list[Item]:
    told: list[Item] = [msgspec.to_builtins(one) for one in config.tolerations]
    if offer.accelerator_count:
        told.append({"key": config.gpu_resource, "operator": "Exists"})
    return told


def secret(owner: Owner, order: LaunchOrder, program: str, made: Item) -> Item:
    """The program of a pod, with the node's token in it; it goes when the pod goes."""
    content = base64.b64encode(program.encode()).decode()
    if len(program.encode()) > SECRET_BYTES_MAX - 4096:
        size = len(json.dumps(order.agent.spec))
        msg = f"a pod's secret holds at most 1 MiB, and the spec of node {order.tag} has {size} bytes"
        raise Refused(msg, "invalid_request", field="spec")
    name = str(made["metadata"]["name"])
    reference = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": made["metadata"]["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "labels": {**owner.labels(), TAG: label(order.tag)},
            "ownerReferences": [reference],
        },
        "type": "Opaque",
        "immutable": True,
        "data": {SCRIPT: content},
    }


def claim(config: KubernetesConfig, owner: Owner, disk: str, holder: str) -> Item:
    """The disk of that name, in the hands of the machine ``holder``."""
    spec: Item = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": f"{config.disk_gb}Gi"}},
    }
    if config.storage_class is not None:
        spec["storageClassName"] = config.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": owner.name(disk),
            "labels": {**owner.labels(), DISK: label(disk)},
            "annotations": {DISK: disk, HOLDER: holder},
        },
        "spec": spec,
    }
