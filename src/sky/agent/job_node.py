"""Where the steps of a paid job are done: its folder on the node, and the daemon that takes its files.

Decides: which folder stands for a folder of the job. Never: makes or removes one.
Follows: the tree under ``root`` is what the job sees of its mounts, so a mount inside of another lies inside
of it here too.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from sky.agent.frames import Setup
from sky.agent.settings import current_url
from sky.agent.surroundings import BOOT_VARIABLE
from sky.wire.steps import Order

JOB_VARIABLE = "UNIFY_COMPUTE_JOB_ID"
ROOT_VARIABLE = "UNIFY_COMPUTE_ROOT"
"""What stands before a mount where the command cannot be shown it in its own place; otherwise empty."""
OPENER_VARIABLE = "UNIFY_COMPUTE_ARTIFACTS_TOKEN"
URL_VARIABLE = "UNIFY_COMPUTE_ARTIFACTS_URL"
PREFIX = "/compute/v1"


class JobNode(msgspec.Struct, frozen=True):
    """The node of a step. ``boot`` marks everything that its agent started."""

    work: Path
    node: str
    boot: str
    url: str
    url_file: Path | None

    @classmethod
    def of(cls, setup: Setup) -> JobNode:
        """The node that a worker was set up on."""
        file = None if setup.url_file is None else Path(setup.url_file)
        return cls(Path(setup.work), setup.node, os.environ.get(BOOT_VARIABLE, ""), setup.url, file)

    def daemon_url(self) -> str:
        """The daemon's address as it is now."""
        return current_url(self.url, self.url_file)

    def folder(self, order: Order) -> Path:
        """The folder of a job."""
        return self.work / f"job-{order.job}"

    def root(self, order: Order) -> Path:
        """The tree that has the job's mounts."""
        return self.folder(order) / "root"

    def home(self, order: Order) -> Path:
        """Where a command that is a process of this node begins."""
        return self.folder(order) / "home"

    def mounted(self, order: Order, mount: str) -> Path:
        """What is at ``mount`` for the job."""
        return self.root(order) / mount.strip("/")


def mounts(order: Order) -> tuple[str, ...]:
    """The job's mounts, without those that lie inside of another, which have them already."""
    wanted = sorted({x.mount.rstrip("/") for x in order.inputs} | {x.rstrip("/") for x in order.outputs})
    return tuple(m for m in wanted if not any(m.startswith(f"{other}/") for other in wanted))


def variables(order: Order, node: JobNode) -> dict[str, str]:
    """The environment of a command: the customer's own, its job, and where it may put files if it has any to
    put."""
    told = {**order.env, JOB_VARIABLE: order.job, ROOT_VARIABLE: ""}
    if order.outputs:
        told[OPENER_VARIABLE] = order.upload_token
        told[URL_VARIABLE] = f"{node.daemon_url()}{PREFIX}/internal/jobs/{order.job}/artifacts"
    return told


def tell(text: str) -> None:
    """A line of the job's log."""
    sys.stdout.write(f"{text}\n")
