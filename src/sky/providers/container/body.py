"""A node as its container: the names and labels it is found by, what it may use, and what it runs.

Decides: everything that is said to an engine when a container is made, in docker's words and in podman's own
where docker's do not carry it. Never: asks an engine. Follows: the node's token is in a file inside of the
container and in nothing that the engine shows; of one tag there can be one container, since it has the tag's
name.
"""

from __future__ import annotations

import io
import re
import resource
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sky.providers.base import LaunchOrder
from sky.providers.bootstrap import script
from sky.providers.container.config import ContainerConfig

DEPLOYMENT, TAG, PROVIDER, DISK = "sky.deployment", "sky.tag", "sky.provider", "sky.disk"
LAUNCHED, GPUS, TYPE = "sky.launched_us", "sky.accelerators", "sky.instance_type"
HOME = "/sky/home"
DISK_PATH = "/sky/disk"
START, BOOT = "/sky/start", "/sky/boot"
NVIDIA = "nvidia.com/gpu"
GRACE_SECONDS = 8
GIB = 1024**3
CPU_PERIOD_US = 100_000
PIDS_MAX = 16_384
FILES_MAX = 65_536
LOG_MEGABYTES = 10
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")

# A container's first process takes in what others leave, and is deaf to signals that it does not ask for.
_START_TEXT = f"""\
sh {BOOT} &
agent=$!
trap 'kill -TERM "$agent" 2>/dev/null' TERM INT
while :; do
    wait "$agent"
    code=$?
    kill -0 "$agent" 2>/dev/null || exit "$code"
done
"""


@dataclass(frozen=True, slots=True)
class Box:
    """What a container is made of. ``gpus``: numbers of the accelerators that it has."""

    name: str
    image: str
    labels: Mapping[str, str]
    environment: Mapping[str, str]
    binds: tuple[str, ...]
    network: str
    cpus: int
    memory_bytes: int
    devices: tuple[str, ...] = ()
    limits: Mapping[str, int] | None = None


def is_name(text: str) -> bool:
    """Whether a tag or a disk can be a part of a container's name."""
    return _NAME.fullmatch(text) is not None


def name_of(deployment: str, text: str) -> str:
    """What the container of a tag, or the volume of a disk, is called."""
    return f"sky-{deployment[:16]}-{text}"


def filters(**labels: str) -> dict[str, list[str]]:
    """A listing of what has these labels, as an engine is asked for it."""
    return {"label": [f"sky.{name}={value}" for name, value in labels.items()]}


def box(
    order: LaunchOrder,
    config: ContainerConfig,
    image: str,
    labels: Mapping[str, str],
    gpus: tuple[int, ...],
    *,
    here: bool,
) -> Box:
    """The container of an order. ``here``: its engine is on this computer, whose limits bind it too."""
    deployment, offer = labels[DEPLOYMENT], order.offer
    binds, environment = list(config.mounts), dict(config.environment)
    own = {TAG: order.tag, TYPE: offer.instance_type}
    if order.disk is not None:
        own[DISK] = order.disk
        binds.append(f"{name_of(deployment, order.disk)}:{DISK_PATH}")
        environment["SKY_AGENT_DISK"] = DISK_PATH
    if gpus:
        own[GPUS] = ",".join(str(number) for number in gpus)
    asked = order.agent.spec.get("memory_gb")
    memory_gb = min(float(asked), offer.memory_gb) if asked else offer.memory_gb
    return Box(
        name=name_of(deployment, order.tag),
        image=image,
        labels={**labels, **own},
        environment=environment,
        binds=tuple(binds),
        network=config.network,
        cpus=offer.cpus,
        memory_bytes=round(memory_gb * GIB),
        devices=tuple(f"{config.accelerator_device}={number}" for number in gpus),
        limits={"nofile": _most(resource.RLIMIT_NOFILE), "nproc": _most(resource.RLIMIT_NPROC, PIDS_MAX)}
        if here
        else None,
    )


def docker(made: Box) -> dict[str, Any]:
    """The container as docker's interface is told of it."""
    limits = made.limits or {}
    body: dict[str, Any] = {
        "Image": made.image,
        "Entrypoint": ["/bin/sh"],
        "Cmd": [START],
        "User": "0:0",
        "WorkingDir": "/",
        "Env": [f"{name}={value}" for name, value in made.environment.items()],
        "Labels": dict(made.labels),
        "Healthcheck": {"Test": ["NONE"]},
        "StopTimeout": GRACE_SECONDS,
        "HostConfig": {
            "NetworkMode": made.network,
            "NanoCpus": made.cpus * 10**9,
            "Memory": made.memory_bytes,
            "MemorySwap": made.memory_bytes,
            "ShmSize": made.memory_bytes // 2,
            "PidsLimit": PIDS_MAX,
            "Ulimits": [{"Name": name, "Soft": most, "Hard": most} for name, most in limits.items()],
            "RestartPolicy": {"Name": "no"},
            "SecurityOpt": ["no-new-privileges"],
            "LogConfig": {"Type": "json-file", "Config": {"max-size": f"{LOG_MEGABYTES}m"}},
            "Binds": list(made.binds),
        },
    }
    if made.devices:
        body["HostConfig"]["DeviceRequests"] = [_request(made.devices)]
    return body


def _request(devices: tuple[str, ...]) -> dict[str, Any]:
    """Accelerators for docker, of which every release knows NVIDIA's, and those since 25 any other's too."""
    kinds, numbers = zip(*(device.split("=") for device in devices), strict=True)
    if kinds[0] == NVIDIA:
        return {"Driver": "nvidia", "DeviceIDs": list(numbers), "Capabilities": [["gpu"]]}
    return {"Driver": "cdi", "DeviceIDs": list(devices)}


def podman(made: Box) -> dict[str, Any]:
    """The container in podman's own words: told in docker's, older releases silently give no accelerator."""
    mounts: list[dict[str, Any]] = []
    volumes: list[dict[str, Any]] = []
    for bind in made.binds:
        source, target, *mode = bind.split(":")
        if source.startswith("/"):
            mounts.append(
                {
                    "Type": "bind",
                    "Source": source,
                    "Destination": target,
                    "Options": ["rbind", *(mode or ["rw"])],
                }
            )
        else:
            volumes.append({"Name": source, "Dest": target, "Options": mode})
    body: dict[str, Any] = {
        "name": made.name,
        "image": made.image,
        "entrypoint": ["/bin/sh"],
        "command": [START],
        "user": "0:0",
        "work_dir": "/",
        "env": dict(made.environment),
        "labels": dict(made.labels),
        "stop_timeout": GRACE_SECONDS,
        "shm_size": made.memory_bytes // 2,
        "resource_limits": {
            "memory": {"limit": made.memory_bytes, "swap": made.memory_bytes},
            "cpu": {"quota": made.cpus * CPU_PERIOD_US, "period": CPU_PERIOD_US},
            "pids": {"limit": PIDS_MAX},
        },
        "r_limits": [
            {"type": name, "soft": most, "hard": most} for name, most in (made.limits or {}).items()
        ],
        "restart_policy": "no",
        "no_new_privileges": True,
        "log_configuration": {"driver": "k8s-file", "size": LOG_MEGABYTES * 1024**2},
        "mounts": mounts,
        "volumes": volumes,
        "devices": [{"path": device} for device in made.devices],
        "netns": {"nsmode": "host"} if made.network == "host" else {"nsmode": "bridge"},
    }
    if made.network not in ("host", "bridge"):
        body["Networks"] = {made.network: {}}
    return body


def files(order: LaunchOrder, url: str) -> bytes:
    """An archive of what the container runs, for its root folder; it holds the node's token."""
    packed = io.BytesIO()
    texts = {START: _START_TEXT, BOOT: script(order, HOME, url=url)}
    with tarfile.open(fileobj=packed, mode="w") as archive:
        folder = tarfile.TarInfo(HOME.rpartition("/")[0].lstrip("/"))
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(folder)
        for path, text in texts.items():
            content = text.encode()
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def _most(kind: int, wanted: int = FILES_MAX) -> int:
    """A limit that this computer lets a container have."""
    _, hard = resource.getrlimit(kind)
    return wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
