"""What SkyPilot is told to launch: one machine, whose program is the agent of a node.

Decides: the resources, and that a machine whose agent has ended goes away by itself. Never: names a cloud
that the settings do not name. Follows: handed in twice for one machine, it is one agent; the node's token is
among the task's secrets, which SkyPilot shows to nobody but its owner.
"""

from __future__ import annotations

import base64
import shlex
from typing import Any

import yaml

from sky.providers.base import LaunchOrder
from sky.providers.bootstrap import FAILED, script
from sky.providers.skypilot.clusters import NODE
from sky.providers.skypilot.config import SkypilotConfig

PROGRAM = "SKYFLEET_PROGRAM"


def launch_body(order: LaunchOrder, config: SkypilotConfig, cluster: str, url: str) -> dict[str, Any]:
    """The body of the request that buys, or starts, the machine of ``order``."""
    program = script(order, f"$HOME/skyfleet/nodes/{order.tag}", url=url)
    task: dict[str, Any] = {
        "name": "skyfleet",
        "num_nodes": 1,
        "resources": _resources(order, config),
        "envs": {NODE: order.tag},
        "secrets": {PROGRAM: base64.b64encode(program.encode()).decode()},
        "run": _run(order),
    }
    text = yaml.safe_dump(task, sort_keys=False, width=10_000)
    return {"task": text, "cluster_name": cluster, "retry_until_up": False, "quiet_optimizer": True}


def _resources(order: LaunchOrder, config: SkypilotConfig) -> dict[str, Any]:
    told = order.offer.specific
    asked: dict[str, Any] = {
        "infra": config.infra,
        "accelerators": told.get("accelerators"),
        "cpus": told.get("cpus"),
        "memory": told.get("memory"),
        "use_spot": order.market == "spot",
        "disk_size": config.disk_gb,
        "image_id": config.image,
        "max_hourly_cost": config.max_hourly_usd,
        "labels": config.labels or None,
    }
    if config.idle_minutes:
        # With a disk to keep it is stopped; SkyPilot then takes only clouds that can.
        asked["autostop"] = {"idle_minutes": config.idle_minutes, "down": order.disk is None}
    return {name: value for name, value in asked.items() if value is not None}


def _run(order: LaunchOrder) -> str:
    disk = "" if order.disk is None else _DISK.format(name=shlex.quote(order.disk))
    return _RUN.format(tag=shlex.quote(order.tag), disk=disk, program=PROGRAM, failed=FAILED)


_DISK = """export SKY_AGENT_DISK="$HOME/skyfleet/disks/"{name}
mkdir -p "$SKY_AGENT_DISK" || exit 97
"""

# The agent has a lock of its own in that folder, called lock.
_RUN = """\
umask 077
at="$HOME/skyfleet/nodes/"{tag}
mkdir -p "$at" || exit {failed}
printf %s "${program}" | base64 -d >"$at/begin.new" && mv "$at/begin.new" "$at/begin" || exit {failed}
unset {program}
for old in "$HOME/skyfleet/nodes/"*; do
    [ "$old" = "$at" ] || rm -rf "$old"
done
{disk}if command -v flock >/dev/null 2>&1; then exec flock -n -E 0 "$at/begin.lock" sh "$at/begin"; fi
exec sh "$at/begin"
"""
