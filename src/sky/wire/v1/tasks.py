"""Calls and their outcomes, as they are asked for and shown.

Decides: every field, default and limit of them, and the frames of a generator's items.
Never: opens a payload. Follows: a payload is bytes, inline as base64 where JSON carries it, or named by hash.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from sky.wire.error import Error
from sky.wire.v1.base import (
    BATCH_TASKS_MAX,
    NODES_MAX,
    Answer,
    Dispatch,
    ExecutionState,
    Request,
    Sha256,
    ShortText,
    TaskState,
)
from sky.wire.v1.computes import RetryPolicy


class TaskCreate(Request, frozen=True):
    """One call to make. Its arguments travel inline (base64 in JSON) or as a stored blob: one of both."""

    compute: ShortText
    function: Sha256
    dispatch: Dispatch = "one"
    args_sha256: Sha256 | None = None
    args_inline: bytes | None = None
    rank: Annotated[int, Meta(ge=0, le=NODES_MAX)] | None = None
    retry: RetryPolicy | None = None
    timeout_seconds: Annotated[int, Meta(ge=1, le=31_536_000)] | None = None
    correlation_id: Annotated[str, Meta(min_length=1, max_length=256)] | None = None


class BatchCall(Request, frozen=True):
    """The arguments of one call of a batch, inline or stored."""

    args_sha256: Sha256 | None = None
    args_inline: bytes | None = None


class TaskBatchCreate(Request, frozen=True):
    """Many calls of one function, admitted together or not at all. Each is a task of its own."""

    compute: ShortText
    function: Sha256
    calls: Annotated[tuple[BatchCall, ...], Meta(min_length=1, max_length=BATCH_TASKS_MAX)]
    correlation_id: Annotated[str, Meta(min_length=1, max_length=256)]
    retry: RetryPolicy | None = None
    timeout_seconds: Annotated[int, Meta(ge=1, le=31_536_000)] | None = None


class TaskBatch(Answer, frozen=True):
    """The tasks of a batch, in the order of their calls."""

    tasks: tuple[str, ...]


class Execution(Answer, frozen=True):
    """One physical attempt of a task, on one node."""

    id: str
    ordinal: int
    rank: int
    state: ExecutionState
    node_id: str | None = None
    retry_of: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    result_sha256: str | None = None
    error: Error | None = None


class ExecutionPage(Answer, frozen=True):
    """A task's executions, in the order they were made."""

    items: tuple[Execution, ...]
    next_cursor: str | None = None


class ExecutionCreate(Request, frozen=True):
    """A person's retry of a task: of all its ranks, or of some."""

    acknowledge_duplication: bool = False
    ranks: tuple[Annotated[int, Meta(ge=0, le=NODES_MAX)], ...] | None = None


class Task(Answer, frozen=True):
    """One call, wanted once, with exactly one outcome."""

    id: str
    compute_id: str
    generation: int
    function: str
    args_sha256: str
    dispatch: Dispatch
    state: TaskState
    retry: RetryPolicy
    executions: tuple[Execution, ...]
    submitted_at: datetime
    result_sha256: str | None = None
    correlation_id: str | None = None
    deadline_at: datetime | None = None
    finished_at: datetime | None = None


class TaskPage(Answer, frozen=True):
    """Some tasks, newest first."""

    items: tuple[Task, ...]
    next_cursor: str | None = None


class TaskOutcome(Answer, frozen=True):
    """How one task of a correlation ended. A small result is inline; a large one is named by its hash.

    ``console_lines`` is how many lines of output its executions wrote, so that a reader of the event
    stream knows when it has seen all of them.
    """

    task: str
    state: TaskState
    seq: int
    result: bytes | None = None
    result_sha256: str | None = None
    error: Error | None = None
    node_id: str | None = None
    seconds: float = 0.0
    console_lines: int = 0


class TaskOutcomePage(Answer, frozen=True):
    """The outcomes after a cursor, in the order they came; ``next_cursor`` is where to go on from."""

    items: tuple[TaskOutcome, ...]
    next_cursor: int
    open: int


class Chunk(Answer, frozen=True, tag="chunk", tag_field="status"):
    """One item of a generator: a payload in the codec of its function."""

    value: bytes


class Failed(Answer, frozen=True, tag="failed", tag_field="status"):
    """The generator raised. The last frame of its stream; ``payload`` is the pickled error, if any."""

    error: str
    traceback: str = ""
    payload: bytes | None = None


Frame = Chunk | Failed
"""One frame of ``GET /v1/tasks/{id}/stream``: msgpack behind its length in four big-endian bytes."""
