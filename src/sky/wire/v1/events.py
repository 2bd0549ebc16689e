"""What the event stream says: eight payloads, told apart by their ``type``.

Decides: their fields. Never: the name of a frame, which is finer than the type.
Follows: a payload can be decoded on its own, once written down or exported.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from sky.wire.v1.base import Answer, ComputeState, NodeState, TaskEventState, TaskState


class ComputeEvent(Answer, frozen=True, tag="compute.state", tag_field="type"):
    """A compute moved, or something was noted about it."""

    compute: str
    state: ComputeState
    error: str | None = None
    generation: int | None = None
    owner: str | None = None
    count: int | None = None


class ComputeAbandoned(Answer, frozen=True, tag="compute.abandoned", tag_field="type"):
    """Nobody holds this compute any more, and it asked to be deleted when that happens."""

    compute: str


class CostEvent(Answer, frozen=True, tag="compute.cost", tag_field="type"):
    """What a compute has cost so far in USD. Published, not recorded."""

    compute: str
    cost: float
    nodes: int
    at: datetime


class NodeEvent(Answer, frozen=True, tag="node.state", tag_field="type"):
    """A node moved."""

    compute: str
    node: str
    state: NodeState
    error: str | None = None
    rank: int | None = None


class ConsoleEvent(Answer, frozen=True, tag="node.console", tag_field="type"):
    """Output of a node: whole lines, in the order they were written there, without the last one's end."""

    compute: str
    node: str
    content: str
    task: str | None = None
    stream: Literal["stdout", "stderr"] = "stdout"
    rank: int | None = None


class PhaseEvent(Answer, frozen=True, tag="node.phase", tag_field="type"):
    """A step of making a node ready began or ended."""

    compute: str
    node: str
    phase: str
    event: Literal["started", "completed", "failed"]
    at: datetime
    error: str | None = None


class MetricEvent(Answer, frozen=True, tag="node.metrics", tag_field="type"):
    """A gauge of a node. Published, not recorded."""

    compute: str
    node: str
    name: str
    value: float


class TaskEvent(Answer, frozen=True, tag="task.state", tag_field="type"):
    """A task moved: ``now`` is its state, and ``state`` how that looks from afar.

    From afar a task is under way (``started``), has succeeded, has not (``failed``: cancelled and timed out
    too), or nobody can know (``indeterminate``). Readers of the published interface know these four alone.
    """

    compute: str
    task: str
    state: TaskEventState
    now: TaskState
    error: str | None = None


Event = (
    ComputeEvent
    | ComputeAbandoned
    | CostEvent
    | NodeEvent
    | ConsoleEvent
    | PhaseEvent
    | MetricEvent
    | TaskEvent
)
"""What ``data:`` of a message of ``GET /v1/events`` is, told apart by ``type``."""
