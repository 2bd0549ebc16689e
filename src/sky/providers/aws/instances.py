"""Instances of EC2 as machines: their tags, and what a state of theirs means here.

Decides: that a machine which is on its way out still runs, and that one which is stopped is gone, whatever
its disk holds. Never: calls AWS. Follows: why a machine has ended is told in words: a spot machine that was
taken back is ``preempted``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from sky.kit.clock import SECOND_US
from sky.providers.base import Machine, MachineState

DEPLOYMENT, NODE, DISK = "skyfleet-deployment", "skyfleet-node", "skyfleet-disk"
THERE: Final[tuple[str, ...]] = ("pending", "running", "stopping", "stopped")
"""States of an instance whose disk is there."""
_STATES: Final[dict[str, MachineState]] = {
    "pending": "pending",
    "running": "running",
    "shutting-down": "running",
    "stopping": "running",
    "stopped": "gone",
    "terminated": "gone",
}
_REASONS: Final = {
    "Server.SpotInstanceTermination": "preempted",
    "Server.SpotInstanceShutdown": "preempted",
    "Client.UserInitiatedShutdown": "ended",
    "Client.InstanceInitiatedShutdown": "the machine has shut itself down",
    "Server.InsufficientInstanceCapacity": "AWS had no capacity for it",
    "Client.VolumeLimitExceeded": "the account may have no more volumes",
    "Client.InvalidSnapshot.NotFound": "the snapshot of its image is not there",
}


def filters(**values: str | list[str]) -> list[dict[str, Any]]:
    """What DescribeInstances filters by; ``node``, ``disk`` and ``deployment`` are tags."""
    tags = {"node": f"tag:{NODE}", "disk": f"tag:{DISK}", "deployment": f"tag:{DEPLOYMENT}"}
    return [
        {
            "Name": tags.get(name, name.replace("_", "-")),
            "Values": [value] if isinstance(value, str) else value,
        }
        for name, value in values.items()
    ]


def tags_of(instance: dict[str, Any]) -> dict[str, str]:
    """The tags of an instance, by name."""
    tags: list[dict[str, str]] = instance.get("Tags") or []
    return {tag["Key"]: tag["Value"] for tag in tags}


def as_tags(values: dict[str, str]) -> list[dict[str, str]]:
    """Tags as AWS takes them."""
    return [{"Key": key, "Value": value} for key, value in values.items()]


def state_of(instance: dict[str, Any]) -> str:
    """EC2's own word for its state."""
    return str(instance["State"]["Name"])


def is_spot(instance: dict[str, Any]) -> bool:
    """Whether it was bought on the spot market."""
    return instance.get("InstanceLifecycle") == "spot"


def machine_of(instance: dict[str, Any], region: str, tag: str, provider_id: str | None = None) -> Machine:
    """An instance as this product sees it."""
    state = _STATES.get(state_of(instance), "pending")
    placed: dict[str, str] = instance.get("Placement") or {}
    launched: datetime | None = instance.get("LaunchTime")
    return Machine(
        id=instance["InstanceId"],
        tag=tag,
        state=state,
        address=instance.get("PrivateIpAddress") if state == "running" else None,
        launched_us=None if launched is None else round(launched.timestamp() * SECOND_US),
        reason=_reason(instance) if state == "gone" else None,
        binding={
            "instance": instance["InstanceId"],
            "instance_type": instance.get("InstanceType"),
            "region": region,
            "zone": placed.get("AvailabilityZone"),
            "state": state_of(instance),
            "market": "spot" if is_spot(instance) else "on_demand",
        },
        provider_id=provider_id,
    )


def _reason(instance: dict[str, Any]) -> str:
    why: dict[str, str] = instance.get("StateReason") or {}
    code, message = why.get("Code", ""), why.get("Message", "")
    return _REASONS.get(code) or message or code or "ended"
