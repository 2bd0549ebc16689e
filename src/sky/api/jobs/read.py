"""Reading jobs: one, a page of them, what happened to one, what it printed.

Decides: where pages begin and end. Never: shows another owner's job. Follows: a poller that passes on the
last place it has seen misses nothing and reads nothing twice.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, get_args

import structlog
from litestar.response.base import ASGIResponse
from msgspec import UNSET

from sky.api.jobs import show
from sky.api.jobs.masked import masked
from sky.api.jobs.route import PREFIX, JobAsk, reply, route
from sky.api.jobs.submit import found
from sky.api.selling import KeyHolder
from sky.api.stream import Streamed, Whole
from sky.domain.job import TERMINAL
from sky.domain.job_errors import JobRefused
from sky.kit import codec
from sky.store.events import Filter
from sky.store.rows import jobs as rows
from sky.store.rows import ledger
from sky.store.views import jobs as views
from sky.wire import jobs as wire

TAG = "jobs"
TEXT = "text/plain; charset=utf-8"
STREAM = "text/event-stream"
STATUSES = get_args(wire.JobStatus)
PAGE_MAX = 100
FOLLOW_POLL_S = 1.0
HEARTBEAT_S = 15.0
CURSOR = "log-cursor"
AGAIN_S = 5
_log = structlog.get_logger(__name__)
_LINE_END = re.compile(r"\r\n|\r|\n")
"""What ends a line of an event stream: behind a bare one, what a command prints would be read as fields."""
_LAST_END = re.compile(r"(?:\r\n|\r|\n)\Z")


def _limit(default: int) -> dict[str, Any]:
    schema = {"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": default}
    return {"name": "limit", "description": "How many a page has at most.", "schema": schema}


@route(
    "GET",
    f"{PREFIX}/jobs",
    tag=TAG,
    answers=wire.JobList,
    codes=("invalid_status", "invalid_limit", "invalid_cursor", "invalid_parameter"),
    query=(
        {
            "name": "status",
            "description": "Only jobs with this status; may be given several times.",
            "style": "form",
            "explode": True,
            "schema": {"type": "array", "items": {"$ref": "#/components/schemas/JobStatus"}},
        },
        _limit(20),
        {"name": "after", "description": "`next` of the page before.", "schema": {"type": "string"}},
    ),
)
async def list_jobs(ask: JobAsk) -> ASGIResponse:
    """List your jobs, newest first"""
    holder = await ask.customer()
    ask.need_store("list of jobs")
    statuses = ask.query.get("status", [])
    for status in statuses:
        if status not in STATUSES:
            msg = f"there is no status {status[:40]!r}; there are {', '.join(STATUSES)}"
            raise JobRefused("invalid_status", msg, param="status")
    limit = ask.number("limit", 1, PAGE_MAX, 20, "invalid_limit")
    after = ask.one("after")
    owner = holder.customer.owner

    def read(connection: Any) -> tuple[int | None, views.JobPage | None]:
        before = None if after is None else views.place_of_job(connection, owner, after)
        if after is not None and before is None:
            return None, None
        return before, views.page(connection, owner, statuses, before, limit)

    _, page = await ask.unit.db.read(read)
    if page is None:
        raise JobRefused("invalid_cursor", "after is none of your jobs; use `next` of a page", param="after")
    now_us = ask.unit.clock.now_us()
    data = tuple(show.job(row, page.held.get(row["id"], 0), now_us) for row in page.rows)
    following = data[-1].id if page.more else UNSET
    return reply(wire.JobList(object="list", data=data, has_more=page.more, next=following))


@route("GET", f"{PREFIX}/jobs/{{id}}", tag=TAG, answers=wire.Job, codes=("job_not_found",))
async def get_job(ask: JobAsk) -> ASGIResponse:
    """Show a job, with what it costs so far"""
    holder = await ask.customer()
    ask.need_store("look-up of jobs")

    def read(connection: Any) -> wire.Job:
        row = found(connection, ask.path["id"], holder)
        return show.job(row, ledger.promised(connection, row["id"]), ask.unit.clock.now_us())

    return reply(await ask.unit.db.read(read))


@route(
    "GET",
    f"{PREFIX}/jobs/{{id}}/events",
    tag=TAG,
    answers=wire.EventList,
    codes=("job_not_found", "invalid_limit", "invalid_cursor", "invalid_parameter"),
    query=(
        {
            "name": "after",
            "description": "The last event that was seen; only later ones are listed.",
            "schema": {"type": "string", "pattern": wire.EVENT_ID},
        },
        _limit(50),
    ),
)
async def list_job_events(ask: JobAsk) -> ASGIResponse:
    """List what happened to a job, oldest first"""
    holder = await ask.customer()
    ask.need_store("log of events")
    limit = ask.number("limit", 1, PAGE_MAX, 50, "invalid_limit")
    after = ask.one("after")

    def read(connection: Any) -> tuple[list[Mapping[str, Any]], bool] | None:
        row = found(connection, ask.path["id"], holder)
        place = 0 if after is None else views.place_of_event(connection, row["id"], after)
        return None if place is None else views.events_after(connection, row["id"], place, limit)

    page = await ask.unit.db.read(read)
    if page is None:
        raise JobRefused("invalid_cursor", "after is no event of this job", param="after")
    data = tuple(show.event(row) for row in page[0])
    following = data[-1].id if data else UNSET
    return reply(wire.EventList(object="list", data=data, has_more=page[1], next=following))


@route(
    "GET",
    f"{PREFIX}/jobs/{{id}}/logs",
    tag=TAG,
    answers=TEXT,
    codes=("job_not_found", "logs_unavailable", "invalid_cursor", "invalid_parameter"),
    query=(
        {
            "name": "since",
            "description": "A place in the log: the `Log-Cursor` of an answer, or the id of a streamed line.",
            "schema": {"type": "string"},
        },
        {
            "name": "follow",
            "description": "Whether to stream further lines as they come, until the job is over.",
            "schema": {"type": "boolean", "default": False},
        },
    ),
)
async def get_job_logs(ask: JobAsk) -> ASGIResponse:
    """Read what a job printed

    Plain text, as much as there is; `Log-Cursor` is the place after it. With `follow=true` a stream of
    server-sent events whose ids are places, and which ends with the job.
    """
    holder = await ask.customer()
    ask.need_store("log of jobs")
    after = _place(ask.header(b"last-event-id") or ask.one("since"))
    follow = (ask.one("follow") or "false").lower()
    if follow not in ("true", "false"):
        raise JobRefused(
            "invalid_parameter", f"follow is true or false; it is {follow[:20]!r}", param="follow"
        )
    row = await ask.unit.db.read(lambda c: found(c, ask.path["id"], holder))
    if follow == "true":
        await _printed(ask, row["id"], rows.tasks_of(row), after)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return Streamed(_follow(ask, holder, row["id"], after), media=STREAM, headers=headers)
    text, cursor = await _all(ask, row, after)
    return Whole(text, media=TEXT, headers=[(CURSOR, str(cursor))])


def _place(text: str | None) -> int:
    if text is None or text == "":
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        msg = f"since is the Log-Cursor of an answer, a whole number; it is {text[:40]!r}"
        raise JobRefused("invalid_cursor", msg, param="since")
    return int(text)


async def _all(ask: JobAsk, row: Mapping[str, Any], after: int) -> tuple[bytes, int]:
    """What was printed after a place, up to the limit of one answer, and the place after it."""
    parts: list[str] = []
    size, tasks, token = 0, rows.tasks_of(row), ask.selling.token_of(row["id"])
    while size < ask.selling.settings.log_bytes_max:
        page = await _printed(ask, row["id"], tasks, after)
        if not page:
            break
        parts += [masked(text, token) for _, text in page]
        size += sum(len(text) for _, text in page)
        after = page[-1][0]
    return "".join(parts).encode(), after


async def _printed(ask: JobAsk, job_id: str, tasks: list[str], after: int) -> list[tuple[int, str]]:
    """Some of what was printed after a place. Raises JobRefused."""
    try:
        return await ask.unit.db.read(lambda c: views.output(c, tasks, after))
    except views.UnreadableLog as error:
        _log.error("job_log.unreadable", job=job_id, said=str(error))
        msg = f"what {job_id} printed after place {after} cannot be read now; try again, or tell your seller"
        raise JobRefused("logs_unavailable", msg, after_s=AGAIN_S) from error


async def _follow(ask: JobAsk, holder: KeyHolder, job_id: str, after: int) -> AsyncIterator[bytes]:
    """Lines as they come. Ends behind the last one of a job that is over, or when the key is no longer
    good."""
    unit, token = ask.unit, ask.selling.token_of(job_id)
    checked_s = unit.clock.monotonic_s()
    yield b"retry: 1000\n\n"
    while True:
        if unit.clock.monotonic_s() - checked_s >= HEARTBEAT_S:
            checked_s = unit.clock.monotonic_s()
            if not await _still_good(ask):
                return
            yield b": still here\n\n"
        row = await unit.db.read(lambda c: rows.find(c, job_id, holder.customer.owner))
        if row is None:
            return
        tasks = rows.tasks_of(row)
        try:
            page = await _printed(ask, job_id, tasks, after)
        except JobRefused as refused:
            told = codec.dumps({"code": refused.code, "message": refused.message}).encode()
            yield b"event: error\ndata: %s\n\n" % told
            return
        if page:
            after = page[-1][0]
            yield b"".join(_frame(seq, masked(text, token)) for seq, text in page)
        elif row["state"] in TERMINAL:
            told = codec.dumps({"status": row["state"]}).encode()
            yield b"event: end\nid: %d\ndata: %s\n\n" % (after, told)
            return
        elif not await _news(ask, row):
            return


async def _news(ask: JobAsk, row: Mapping[str, Any]) -> bool:
    """Wait a moment for something to be printed; False when this process ends."""
    if row["compute_id"] is None:
        with ask.unit.signals.listen(f"job/{row['id']}") as knock:
            await knock.wait(FOLLOW_POLL_S)
        return True
    subscription = ask.unit.hub.subscribe(Filter(compute_id=row["compute_id"]))
    try:
        await subscription.next(FOLLOW_POLL_S)
        return not subscription.over
    finally:
        ask.unit.hub.unsubscribe(subscription)


async def _still_good(ask: JobAsk) -> bool:
    """Whether the key still opens what it opened."""
    try:
        await ask.selling.accounts.holder(ask.token)
    except JobRefused:
        return False
    return True


def _frame(seq: int, text: str) -> bytes:
    lines = _LINE_END.split(_LAST_END.sub("", text))
    data = "".join(f"data: {line}\n" for line in lines)
    return f"id: {seq}\n{data}\n".encode()


ROUTES = (list_jobs, get_job, list_job_events, get_job_logs)
