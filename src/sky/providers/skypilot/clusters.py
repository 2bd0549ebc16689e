"""Clusters as machines: how a tag becomes a name, and what a state of SkyPilot's means here.

Decides: names, and that a cluster which is stopped is gone, whatever its disk holds. Never: calls the server.
Follows: the name tells whose cluster it is, so that nothing has to be remembered; a cluster with a disk is
named after that, and says in its task which node has it now.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import yaml

from sky.kit.clock import SECOND_US
from sky.providers.base import Machine, MachineState
from sky.providers.skypilot.failure import clean
from sky.providers.skypilot.handle import Handle, read
from sky.providers.skypilot.shape import Item, mapping, number, text

NODE = "SKYFLEET_NODE"
"""The variable of a task that says which node its cluster is."""
STOPPED = "STOPPED"
_DISK: Final = "disk-"


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one deployment's clusters."""

    deployment: str

    @property
    def prefix(self) -> str:
        return f"sf{hashlib.sha256(self.deployment.encode()).hexdigest()[:8]}-"

    @property
    def all(self) -> str:
        return f"{self.prefix}*"

    @property
    def all_disks(self) -> str:
        return f"{self.prefix}{_DISK}*"

    @property
    def user(self) -> str:
        """Who asks, in the eight digits that SkyPilot knows users by."""
        return hashlib.sha256(f"user {self.deployment}".encode()).hexdigest()[:8]

    def node(self, tag: str) -> str:
        return f"{self.prefix}{tag}"

    def disk(self, disk: str) -> str:
        return f"{self.prefix}{_DISK}{disk}"

    def tag_of(self, name: str) -> str | None:
        """Whose cluster a name is; None where the name does not say, or is not ours."""
        rest = name.removeprefix(self.prefix)
        return None if rest == name or rest.startswith(_DISK) else rest

    def disk_of(self, name: str) -> str | None:
        """The disk of a cluster that has one."""
        rest = name.removeprefix(self.prefix)
        return rest.removeprefix(_DISK) if rest != name and rest.startswith(_DISK) else None


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster as the server knows it. ``known``: what only its handle says."""

    name: str
    tag: str
    disk: str | None
    status: str
    was_up: bool
    item: Item
    known: Handle

    @property
    def stopped(self) -> bool:
        return self.status == STOPPED


def clusters_of(items: Iterable[Item], names: Names) -> list[Cluster]:
    """Ours among what the server has listed. Takes some milliseconds for each."""
    found: list[Cluster] = []
    for item in items:
        name = text(item.get("name")) or ""
        disk = names.disk_of(name)
        tag = names.tag_of(name) if disk is None else node_of(item.get("last_creation_yaml"))
        if tag is not None:
            known = Cluster(
                name=name,
                tag=tag,
                disk=disk,
                status=str(item.get("status")),
                was_up=item.get("cluster_ever_up") is True,
                item=item,
                known=read(item.get("handle")),
            )
            found.append(known)
    return found


def node_of(task: object) -> str:
    """The node that a task is for; empty where it does not say."""
    try:
        told: object = yaml.safe_load(task) if isinstance(task, str) else None
    except yaml.YAMLError:
        return ""
    return text(mapping(mapping(told).get("envs")).get(NODE)) or ""


def machine_of(cluster: Cluster, endpoint: str, *, launching: bool) -> Machine:
    """A cluster as this product sees it. ``launching``: a launch of it has not ended yet."""
    item, known = cluster.item, cluster.known
    state = _state(cluster, launching=launching)
    launched_s = number(item.get("launched_at"))
    market = {True: "spot", False: "on_demand", None: None}[known.spot]
    facts: dict[str, Any] = {
        "cluster": cluster.name,
        "server": endpoint,
        "cloud": item.get("cloud"),
        "region": item.get("region"),
        "zone": known.zone,
        "instance_type": known.instance_type,
        "resources": item.get("resources_str"),
        "market": market,
        "outside_address": known.outside,
        "state": cluster.status,
    }
    return Machine(
        id=cluster.name,
        tag=cluster.tag,
        state=state,
        address=(known.inside or cluster.name) if state == "running" else None,
        launched_us=None if not launched_s else round(launched_s * SECOND_US),
        reason=_reason(cluster, state),
        binding={name: value for name, value in facts.items() if value is not None},
    )


def _state(cluster: Cluster, *, launching: bool) -> MachineState:
    if cluster.stopped:
        return "gone"
    if cluster.status == "UP" or (cluster.was_up and not launching):
        return "running"
    return "pending"


def _reason(cluster: Cluster, state: MachineState) -> str | None:
    if state == "gone":
        return "its cluster is stopped"
    if cluster.status == "UP":
        return None
    said = cluster.item.get("init_status_reason") or cluster.item.get("last_event")
    return f"SkyPilot has it as {cluster.status}" + (f": {clean(said, 300)}" if said else "")
