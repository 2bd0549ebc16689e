"""What the shapes of the control plane are made of: names of states, limits, and the two kinds of struct.

Decides: the limits that several shapes share. Never: a shape of its own.
Follows: requests refuse unknown fields; moments are UTC; prices are USD per hour; sizes name their unit.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

NODES_MAX = 10_000
INLINE_ARGUMENT_BYTES_MAX = 256 * 1024
BATCH_TASKS_MAX = 1_000
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
SHA256_PATTERN = r"^[0-9a-f]{64}$"

ComputeState = Literal[
    "requested", "provisioning", "recovering", "ready", "degraded", "deleting", "deleted", "failed"
]
NodeState = Literal[
    "requested",
    "provisioning",
    "connecting",
    "bootstrapping",
    "ready",
    "draining",
    "lost",
    "deleting",
    "deleted",
    "failed",
]
TaskState = Literal["queued", "running", "succeeded", "failed", "cancelled", "timed_out", "indeterminate"]
ExecutionState = Literal[
    "created",
    "assigned",
    "dispatching",
    "accepted",
    "started",
    "cancel_requested",
    "succeeded",
    "failed",
    "cancelled",
    "timed_out",
    "indeterminate",
]
TaskEventState = Literal["started", "succeeded", "failed", "indeterminate"]
Dispatch = Literal["one", "all", "stream"]
Allocation = Literal["spot", "on_demand", "spot_if_available", "cheapest"]
Selection = Literal["cheapest", "first"]
BillingUnit = Literal["second", "minute", "hour"]
Market = Literal["spot", "on_demand"]
Architecture = Literal["x86_64", "arm64"]
DependencyState = Literal["ok", "unreachable"]

Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
ShortText = Annotated[str, Meta(max_length=256)]
Text = Annotated[str, Meta(max_length=4096)]
Sha256 = Annotated[str, Meta(pattern=SHA256_PATTERN)]
Count = Annotated[int, Meta(ge=0, le=NODES_MAX)]
Seconds = Annotated[float, Meta(ge=0, le=31_536_000)]
WholeSeconds = Annotated[int, Meta(ge=0, le=31_536_000)]
Retries = Annotated[int, Meta(ge=0, le=100)]


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Anything a caller sends: a field we do not know is refused, never ignored."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Anything we answer with."""
