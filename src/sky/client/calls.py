"""Every operation of ``/v1`` on computes, tasks, code, content and events, as values.

Decides: paths, parameters, headers, bodies, and which calls may be sent again after a lost connection.
Never: opens a connection or waits; the drivers in ``http`` and ``http_async`` do, with the same values.
Follows: commands and files on nodes, providers and offers are in ``calls_machines``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sky.client.request import (
    ANSWER_S,
    EXEC_S,
    IS_BLOB,
    IS_JSON,
    TRANSFER_S,
    Body,
    Call,
    Reply,
    as_content,
    as_existence,
    as_json,
    as_nothing,
    at,
    encoder,
    getting,
    if_match,
    keyed,
    query_of,
)
from sky.wire import v1


@dataclass(frozen=True, slots=True)
class TaskPayload:
    """A finished call's result: its packed value, where it ran, how many lines of output it wrote."""

    content: bytes
    console_lines: int
    node: str | None


# ── health, and what the loops decided ───────────────────────────────────────────────────────────────


def live() -> Call[v1.Liveness]:
    """Whether the process answers."""
    return getting("/v1/health/live", v1.Liveness)


def ready() -> Call[v1.Readiness]:
    """Whether the process can serve."""
    return getting("/v1/health/ready", v1.Readiness)


def dependencies() -> Call[dict[str, v1.DependencyState]]:
    """What the daemon depends on, and the state of each."""
    return Call("GET", "/v1/health/dependencies", as_json(dict[str, v1.DependencyState]))


def loops(key: str | None = None) -> Call[v1.DecisionPage]:
    """What the loops last decided, about one key (an id) or about everything."""
    return getting("/v1/loops", v1.DecisionPage, query_of(key=key))


def openapi() -> Call[bytes]:
    """The served OpenAPI document, as JSON bytes."""
    return Call("GET", "/v1/openapi.json", as_content)


def requests_openapi() -> Call[bytes]:
    """The served OpenAPI document of requests, as JSON bytes."""
    return Call("GET", "/api/openapi.json", as_content)


# ── computes ─────────────────────────────────────────────────────────────────────────────────────────


def list_computes(
    *,
    cursor: str | None = None,
    limit: int | None = None,
    state: v1.ComputeState | None = None,
    owned: bool | None = None,
) -> Call[v1.ComputePage]:
    """One page of computes, newest first."""
    return getting(
        "/v1/computes", v1.ComputePage, query_of(cursor=cursor, limit=limit, state=state, owned=owned)
    )


def create_compute(create: v1.ComputeCreate, key: str | None = None) -> Call[v1.Compute]:
    """Ask for a compute."""
    body = encoder.encode(create)
    return Call("POST", "/v1/computes", as_json(v1.Compute), (), keyed(key, IS_JSON), body)


def get_compute(compute: str) -> Call[v1.Compute]:
    """One compute, by id or name."""
    return getting(at("computes", compute), v1.Compute)


def resize_compute(compute: str, nodes: v1.NodeBounds, revision: int | None) -> Call[v1.Compute]:
    """Change how many nodes are wanted. ``revision`` None: whatever it is now."""
    body = encoder.encode(v1.ComputeSpecPatch(nodes=nodes))
    headers = (if_match(revision), IS_JSON)
    path = at("computes", compute)
    # Sent again after it took effect, it would be refused as stale although it is what made it stale.
    return Call("PATCH", path, as_json(v1.Compute), (), headers, body, repeatable=revision is None)


def delete_compute(compute: str, revision: int | None, key: str | None = None) -> Call[v1.Compute]:
    """Ask for a compute's end. ``revision`` None: whatever it is now."""
    headers = keyed(key, if_match(revision))
    return Call("DELETE", at("computes", compute), as_json(v1.Compute), (), headers)


def claim_lease(compute: str, owner: str, ttl_seconds: int) -> Call[v1.Lease]:
    """Hold a compute for ``ttl_seconds`` from now, or go on holding it."""
    body = encoder.encode(v1.LeaseClaim(owner=owner, ttl_seconds=ttl_seconds))
    return Call("PUT", at("computes", compute, "lease"), as_json(v1.Lease), (), (IS_JSON,), body)


def release_lease(compute: str, owner: str | None = None) -> Call[None]:
    """Hold a compute no longer; with ``owner``, only if that is who holds it."""
    params = () if owner is None else (("owner", owner),)
    return Call("DELETE", at("computes", compute, "lease"), as_nothing, params=params)


def list_generations(compute: str) -> Call[v1.GenerationPage]:
    """The definitions a compute has had, newest first."""
    return getting(at("computes", compute, "generations"), v1.GenerationPage)


def get_generation(compute: str, number: int) -> Call[v1.Generation]:
    """One definition of a compute."""
    return getting(at("computes", compute, "generations", number), v1.Generation)


def create_generation(
    compute: str, create: v1.GenerationCreate, revision: int | None, key: str | None = None
) -> Call[v1.Generation]:
    """Make the spec as it stands, or an earlier one, the definition in force."""
    headers = keyed(key, if_match(revision), IS_JSON)
    path = at("computes", compute, "generations")
    return Call("POST", path, as_json(v1.Generation), (), headers, encoder.encode(create))


def list_nodes(
    compute: str, *, include_terminal: bool = False, generation: int | None = None
) -> Call[v1.NodePage]:
    """A compute's nodes, by rank."""
    query = query_of(include_terminal=include_terminal, generation=generation)
    return getting(at("computes", compute, "nodes"), v1.NodePage, query)


def get_node(compute: str, node: str) -> Call[v1.Node]:
    """One node."""
    return getting(at("computes", compute, "nodes", node), v1.Node)


def delete_node(compute: str, node: str, key: str | None = None) -> Call[v1.Node]:
    """Give one node back."""
    return Call("DELETE", at("computes", compute, "nodes", node), as_json(v1.Node), (), keyed(key))


# ── tasks ────────────────────────────────────────────────────────────────────────────────────────────


def list_tasks(
    *,
    cursor: str | None = None,
    limit: int | None = None,
    compute: str | None = None,
    state: v1.TaskState | None = None,
    correlation_id: str | None = None,
) -> Call[v1.TaskPage]:
    """One page of tasks, newest first."""
    query = query_of(cursor=cursor, limit=limit, compute=compute, state=state, correlation_id=correlation_id)
    return getting("/v1/tasks", v1.TaskPage, query)


def create_task(create: v1.TaskCreate, key: str | None = None) -> Call[v1.Task]:
    """Ask for one call."""
    body = encoder.encode(create)
    return Call("POST", "/v1/tasks", as_json(v1.Task), (), keyed(key, IS_JSON), body)


def create_batch(create: v1.TaskBatchCreate, key: str | None = None) -> Call[v1.TaskBatch]:
    """Ask for many calls of one function, all or none."""
    body = encoder.encode(create)
    return Call("POST", "/v1/tasks/batch", as_json(v1.TaskBatch), (), keyed(key, IS_JSON), body)


def outcomes(
    correlation_id: str, *, after: int, wait: int, limit: int | None = None
) -> Call[v1.TaskOutcomePage]:
    """How tasks of a correlation ended, after a cursor; waits up to ``wait`` seconds for the first."""
    query = query_of(correlation_id=correlation_id, after=after, wait=wait, limit=limit)
    decode = as_json(v1.TaskOutcomePage)
    return Call("GET", "/v1/tasks/outcomes", decode, query, timeout_s=wait + ANSWER_S)


def get_task(task: str) -> Call[v1.Task]:
    """One task, with its executions."""
    return getting(at("tasks", task), v1.Task)


def cancel_task(task: str, key: str | None = None) -> Call[v1.Task]:
    """Ask for a call's end."""
    return Call("DELETE", at("tasks", task), as_json(v1.Task), (), keyed(key))


def _task_payload(reply: Reply) -> TaskPayload | None:
    if reply.status == 204:
        return None
    lines = int(reply.headers.get("sky-console-lines", "0"))
    return TaskPayload(reply.content, lines, reply.headers.get("sky-node"))


def get_result(task: str, wait: int = 0) -> Call[TaskPayload | None]:
    """A call's packed result; None when it has not ended within ``wait`` seconds."""
    path = at("tasks", task, "result")
    return Call("GET", path, _task_payload, query_of(wait=wait), timeout_s=wait + ANSWER_S)


def stream_task(task: str, after: int | None = None) -> Call[bytes]:
    """A generator's items from index ``after`` on: to be opened as a stream."""
    path = at("tasks", task, "stream")
    return Call("GET", path, as_content, query_of(after=after), timeout_s=EXEC_S)


def list_executions(task: str) -> Call[v1.ExecutionPage]:
    """A task's attempts, in order."""
    return getting(at("tasks", task, "executions"), v1.ExecutionPage)


def get_execution(task: str, ordinal: int) -> Call[v1.Execution]:
    """One attempt of a task."""
    return getting(at("tasks", task, "executions", ordinal), v1.Execution)


def retry_task(
    task: str,
    *,
    acknowledge_duplication: bool = False,
    ranks: Sequence[int] | None = None,
    key: str | None = None,
) -> Call[v1.Task]:
    """Try a task again, of all its ranks or of some."""
    create = v1.ExecutionCreate(
        acknowledge_duplication=acknowledge_duplication, ranks=None if ranks is None else tuple(ranks)
    )
    headers = keyed(key, IS_JSON)
    path = at("tasks", task, "executions")
    return Call("POST", path, as_json(v1.Task), (), headers, encoder.encode(create))


# ── code and content ─────────────────────────────────────────────────────────────────────────────────


def put_blob(sha256: str, content: Body) -> Call[None]:
    """Store content under its hash; nothing happens when it is there already."""
    return Call("PUT", at("blobs", sha256), as_nothing, (), (IS_BLOB,), content, timeout_s=TRANSFER_S)


def get_blob(sha256: str) -> Call[bytes]:
    """Stored content: open it as a stream when it may be large."""
    return Call("GET", at("blobs", sha256), as_content, timeout_s=TRANSFER_S)


def has_blob(sha256: str) -> Call[bool]:
    """Whether this content is stored. Raises NotFound when it is not."""
    return Call("HEAD", at("blobs", sha256), as_existence)


def put_function(sha256: str, content: Body, name: str | None = None) -> Call[v1.Function]:
    """Store a function's code under its hash; ``name`` is for people."""
    # A header carries no more than Latin-1, and a name is a courtesy: what does not fit is left out.
    shown = name if name and name.isascii() and name.isprintable() else None
    headers = (IS_BLOB, ("X-Skyward-Function-Name", shown[:256])) if shown else (IS_BLOB,)
    path = at("functions", sha256)
    return Call("PUT", path, as_json(v1.Function), (), headers, content, timeout_s=TRANSFER_S)


def get_function(sha256: str) -> Call[v1.Function]:
    """What is known about a function."""
    return getting(at("functions", sha256), v1.Function)


def list_functions(*, cursor: str | None = None, limit: int | None = None) -> Call[v1.FunctionPage]:
    """One page of functions, newest first."""
    return getting("/v1/functions", v1.FunctionPage, query_of(cursor=cursor, limit=limit))


# ── events ───────────────────────────────────────────────────────────────────────────────────────────


def events(
    *,
    compute: str | None = None,
    task: str | None = None,
    types: Sequence[str] = (),
    after: int | None = None,
    follow: bool | None = None,
    silence_s: float = 45.0,
) -> Call[bytes]:
    """The stream of events after a sequence number (None: from now on): to be opened as a stream.

    ``follow=False``: it ends behind what is recorded.
    ``silence_s`` without even a heartbeat means that the connection is dead.
    """
    headers = () if after is None else (("Last-Event-ID", str(after)),)
    query = (*query_of(compute=compute, task=task, follow=follow), *(("types", name) for name in types))
    headers = (*headers, ("Accept", "text/event-stream"))
    return Call("GET", "/v1/events", as_content, query, headers, timeout_s=silence_s)
