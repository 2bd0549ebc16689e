"""Tasks: ask for a call, follow it, read its result.

Decides: how long a reader may wait, and how an outcome that is no result is told.
Never: opens a payload. Follows: reading a result twice gives it twice.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated, Any

from litestar.response.base import ASGIResponse
from msgspec import Meta

from sky.api.operation import (
    BLOB,
    BYTES,
    Ask,
    Bytes,
    Header,
    Limit,
    Ordinal,
    accepted,
    made,
    nothing,
    operation,
    reply,
)
from sky.api.reading import Query
from sky.api.stream import Streamed, Whole
from sky.api.unit import RECHECK_S, WAIT_SECONDS_MAX
from sky.api.v1.blobs import media_for
from sky.api.v1.cursors import ExecutionCursor, TaskCursor
from sky.domain.errors import (
    CapabilityMismatch,
    ComputeNotAccepting,
    ComputeNotConnected,
    DuplicationNotAcknowledged,
    IdempotencyConflict,
    NotFound,
    PayloadTooLarge,
    SkyError,
    TaskFailed,
    TaskIndeterminate,
    TaskNotRetryable,
)
from sky.domain.task import INDETERMINATE, SUCCEEDED
from sky.store.views import computes as compute_views
from sky.store.views import outcomes, tasks
from sky.store.views.outcomes import Ended
from sky.store.views.paging import DEFAULT_ITEMS
from sky.verbs import tasks as verbs
from sky.wire import v1

TAG = "Tasks"
LOCATION = Header("Location", "Where it is found.")

Wait = Annotated[int, Meta(ge=0, le=WAIT_SECONDS_MAX, description="Seconds to wait for it, 0 to 60.")]
Correlation = Annotated[str, Meta(min_length=1, max_length=256, description="The mark of a group of tasks.")]


class TaskFilter(Query, frozen=True):
    """Which tasks are wanted."""

    cursor: TaskCursor | None = None
    limit: Limit = DEFAULT_ITEMS
    compute: Annotated[str, Meta(max_length=256, description="Id or name of their compute.")] | None = None
    state: Annotated[v1.TaskState, Meta(description="Only those in this state.")] | None = None
    correlation_id: Correlation | None = None


class OutcomeFilter(Query, frozen=True):
    """Whose outcomes are wanted, and from where on."""

    correlation_id: Correlation
    after: Annotated[int, Meta(ge=0, le=2**62, description="``next_cursor`` of the page before.")] = 0
    wait: Wait = 0
    limit: Annotated[int, Meta(ge=1, le=outcomes.OUTCOMES_MAX, description="At most this many.")] = 500


class ResultWait(Query, frozen=True):
    """How long to wait."""

    wait: Wait = 0


class ExecutionFilter(Query, frozen=True):
    """Which part of the list is wanted."""

    cursor: ExecutionCursor | None = None
    limit: Limit | None = None


SUBMISSION: list[type[SkyError]] = [
    NotFound,
    IdempotencyConflict,
    ComputeNotConnected,
    ComputeNotAccepting,
    CapabilityMismatch,
    PayloadTooLarge,
]


@operation("GET", "/v1/tasks", tag=TAG, answers=v1.TaskPage, errors=[NotFound])
async def list_tasks(ask: Ask, query: TaskFilter) -> ASGIResponse:
    """List tasks, newest first."""

    def read(c: Any) -> v1.TaskPage:
        compute_id = None if query.compute is None else compute_views.resolve(c, query.compute)
        return tasks.page(
            c,
            cursor=query.cursor,
            limit=query.limit,
            compute_id=compute_id,
            state=query.state,
            correlation_id=query.correlation_id,
        )

    return reply(await ask.unit.db.read(read))


@operation(
    "POST",
    "/v1/tasks",
    tag=TAG,
    answers=v1.Task,
    status=201,
    also=[200],
    keyed=True,
    sets=[LOCATION],
    errors=SUBMISSION,
)
async def create_task(ask: Ask, body: v1.TaskCreate) -> ASGIResponse:
    """Ask for one call of a function.

    Its arguments are named as a stored blob, or travel inline when they are small. A function or a blob
    that is not stored is named in the refusal, so that only what is missing has to be uploaded.
    """
    task, replayed = await ask.once(
        lambda tx: verbs.submit(tx, body), lambda tx, task_id: tasks.get(tx.connection, task_id), body
    )
    return made(task, f"/v1/tasks/{task.id}", replayed)


@operation(
    "POST",
    "/v1/tasks/batch",
    tag=TAG,
    answers=v1.TaskBatch,
    status=201,
    also=[200],
    keyed=True,
    errors=SUBMISSION,
)
async def create_batch(ask: Ask, body: v1.TaskBatchCreate) -> ASGIResponse:
    """Ask for many calls of one function: all are admitted, or none is."""
    batch, replayed = await ask.once(
        lambda tx: verbs.submit_batch(tx, body), lambda _, found: v1.TaskBatch(tasks=tuple(found)), body
    )
    return made(batch, "/v1/tasks", replayed)


@operation("GET", "/v1/tasks/outcomes", tag=TAG, answers=v1.TaskOutcomePage)
async def list_outcomes(ask: Ask, query: OutcomeFilter) -> ASGIResponse:
    """Read how the tasks of a group ended, in the order in which they did.

    Waits up to ``wait`` seconds for the first outcome after the cursor. ``open`` counts those to come.
    """
    unit = ask.unit
    until_s = unit.clock.monotonic_s() + query.wait
    with unit.signals.listen(f"corr/{query.correlation_id}") as bell:
        while True:
            page = await unit.db.read(
                lambda c: outcomes.page(c, query.correlation_id, query.after, query.limit)
            )
            left_s = until_s - unit.clock.monotonic_s()
            if page.items or left_s <= 0:
                return reply(page)
            await bell.wait(min(RECHECK_S, left_s))


@operation("GET", "/v1/tasks/{task_id}", tag=TAG, answers=v1.Task, errors=[NotFound])
async def get_task(ask: Ask, task_id: str) -> ASGIResponse:
    """Show a task with its executions."""
    return reply(await ask.unit.db.read(lambda c: tasks.get(c, task_id)))


@operation(
    "DELETE",
    "/v1/tasks/{task_id}",
    tag=TAG,
    answers=v1.Task,
    status=202,
    keyed=True,
    errors=[NotFound, IdempotencyConflict],
)
async def cancel_task(ask: Ask, task_id: str) -> ASGIResponse:
    """Ask for a call's end.

    Before it began this is certain. Afterwards its processes are stopped, and it is ``cancelled`` once the
    node confirms that. What is over already stays as it is.
    """
    task, replayed = await ask.once(
        lambda tx: verbs.cancel(tx, task_id, ask.unit.rules.cancel_confirm_us),
        lambda tx, found: tasks.get(tx.connection, found),
    )
    return accepted(task, replayed)


@operation("GET", "/v1/tasks/{task_id}/executions", tag=TAG, answers=v1.ExecutionPage, errors=[NotFound])
async def list_executions(ask: Ask, task_id: str, query: ExecutionFilter) -> ASGIResponse:
    """List a task's attempts, in the order they were made."""
    return reply(
        await ask.unit.db.read(
            lambda c: tasks.execution_page(c, task_id, cursor=query.cursor, limit=query.limit)
        )
    )


@operation(
    "POST",
    "/v1/tasks/{task_id}/executions",
    tag=TAG,
    answers=v1.Task,
    status=202,
    keyed=True,
    errors=[
        NotFound,
        IdempotencyConflict,
        DuplicationNotAcknowledged,
        TaskNotRetryable,
        ComputeNotAccepting,
    ],
)
async def retry_task(ask: Ask, task_id: str, body: v1.ExecutionCreate) -> ASGIResponse:
    """Try a task again that did not succeed: all of its ranks, or some.

    One that may have run already is tried again only with ``acknowledge_duplication``.
    """
    task, replayed = await ask.once(
        lambda tx: verbs.retry(tx, task_id, body), lambda tx, found: tasks.get(tx.connection, found), body
    )
    return accepted(task, replayed)


@operation(
    "GET",
    "/v1/tasks/{task_id}/executions/{ordinal}",
    tag=TAG,
    answers=v1.Execution,
    errors=[NotFound],
)
async def get_execution(ask: Ask, task_id: str, ordinal: Ordinal) -> ASGIResponse:
    """Show one attempt of a task."""
    return reply(await ask.unit.db.read(lambda c: tasks.execution(c, task_id, ordinal)))


# ── results ─────────────────────────────────────────────────────────────────────────────────────


@operation(
    "GET",
    "/v1/tasks/{task_id}/result",
    tag=TAG,
    answers=Bytes((BLOB, BYTES), "What the function returned, as its codec packs it."),
    also=[204],
    sets=[
        Header("Sky-Console-Lines", "How many lines of output the task wrote."),
        Header("Sky-Node", "The node that it ran on."),
    ],
    errors=[NotFound, TaskFailed, TaskIndeterminate],
)
async def get_result(ask: Ask, task_id: str, query: ResultWait) -> ASGIResponse:
    """Read a task's result.

    Waits up to ``wait`` seconds for it; 204 means that there is none yet. Of a task on all ranks it is the
    result of rank 0; the others' are named by its executions. A task that did not succeed is told as an
    error whose details have the remote traceback and the packed exception.
    """
    ended = await _ending(ask, task_id, query.wait)
    if ended is None:
        return nothing()
    if ended.state != SUCCEEDED:
        raise await _failure(ask, ended)
    headers = {"sky-console-lines": str(ended.console_lines), "sky-node": ended.node_id or ""}
    media = media_for(ask)
    if ended.content is not None or ended.sha256 is None:
        return Whole(ended.content or b"", media=media, headers=headers.items())
    content = await ask.unit.blobs.get(ended.sha256)
    return Streamed(await ask.unit.blobs.begin(content), media=media, headers=headers, length=content.size)


async def _ending(ask: Ask, task_id: str, wait_s: float) -> Ended | None:
    unit = ask.unit
    until_s = unit.clock.monotonic_s() + wait_s
    with unit.signals.listen(f"task/{task_id}") as bell:
        while True:
            ended = await unit.db.read(lambda c: outcomes.ending(c, task_id))
            left_s = until_s - unit.clock.monotonic_s()
            if ended is not None or left_s <= 0:
                return ended
            await bell.wait(min(RECHECK_S, left_s))


async def _failure(ask: Ask, ended: Ended) -> SkyError:
    """The refusal that tells how a task ended that has no result."""
    error = ended.error
    stored = {} if error is None else (error.details or {})
    details: dict[str, Any] = {
        **stored,
        "task": ended.task_id,
        "state": ended.state,
        "code": None if error is None else error.code,
        "type": stored.get("type", ""),
        "traceback": stored.get("traceback", ""),
        "console_lines": ended.console_lines,
        "node": ended.node_id,
    }
    if ended.content is not None:
        details["payload"] = b64encode(ended.content).decode()
    message = f"task {ended.task_id} ended as {ended.state}" if error is None else error.message
    if ended.state == INDETERMINATE:
        return TaskIndeterminate(message, details=details)
    return TaskFailed(message, details=details)


ROUTES = (
    list_tasks,
    create_task,
    create_batch,
    list_outcomes,
    get_task,
    cancel_task,
    list_executions,
    retry_task,
    get_execution,
    get_result,
)
