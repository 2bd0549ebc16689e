"""Requests by their ids: what they are, their result, what they say, their end.

Decides: how long a look waits. Never: does what a request asks for. Follows: what a request's id begins
with is enough where no other one begins so; a reader that comes back goes on behind the last line it has.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any

import msgspec
from litestar.response.base import ASGIResponse
from msgspec import Meta

from sky.api.operation import Ask, operation, reply
from sky.api.reading import Query
from sky.api.requests.show import record
from sky.api.requests.versions import only_admins_for_all, user_of
from sky.api.stream import Streamed
from sky.api.unit import RECHECK_S, WAIT_SECONDS_MAX
from sky.domain.errors import InvalidRequest, NotFound
from sky.domain.request import DONE
from sky.kit import codec
from sky.store.rows import requests as rows
from sky.store.sql import Row
from sky.store.tx import Tx
from sky.verbs import requests as verbs
from sky.wire import requests as wire

TAG = "Requests"
LIST_MAX = 500
LINES = "application/x-ndjson"
RequestId = Annotated[wire.RequestPrefix, Meta(description="A request's id, or how it begins.")]


class GetQuery(Query, frozen=True):
    """Which request, and how long to wait for its end."""

    request_id: RequestId
    wait: Annotated[float, Meta(ge=0, le=WAIT_SECONDS_MAX, description="Seconds.")] = WAIT_SECONDS_MAX


@operation("GET", "/api/get", tag=TAG, answers=wire.RequestRecord, errors=[NotFound])
async def get_request(ask: Ask, query: GetQuery) -> ASGIResponse:
    """Wait for a request's end, and tell its result or its error.

    After `wait` seconds it is told as it is, to be asked for again.
    """
    unit = ask.unit
    row = await _found(ask, query.request_id)
    deadline_s = unit.clock.monotonic_s() + query.wait
    with unit.signals.listen(f"request/{row['id']}") as bell:
        while True:
            row = await _found(ask, row["id"])
            left_s = deadline_s - unit.clock.monotonic_s()
            if row["state"] in DONE or left_s <= 0:
                return reply(record(row))
            await bell.wait(min(left_s, RECHECK_S))


class StreamQuery(Query, frozen=True):
    """Which request's lines, and behind which one to begin."""

    request_id: RequestId
    after: Annotated[wire.Place, Meta(description="The last line that was seen.")] = 0
    follow: bool = True


@operation("GET", "/api/stream", tag=TAG, answers=wire.RequestRecord, errors=[NotFound])
async def stream_request(ask: Ask, query: StreamQuery) -> ASGIResponse:
    """Follow what a request says, line by line, to its end.

    JSON lines: `{"line": 1, "text": "..."}`, and `{"end": ...}` with the request behind the last one.
    """
    row = await _found(ask, query.request_id)
    return Streamed(_lines(ask, row, query.after, query.follow), media=LINES)


async def _lines(ask: Ask, row: Row, after: int, follow: bool) -> AsyncIterator[bytes]:
    unit = ask.unit
    with unit.signals.listen(f"request/{row['id']}") as bell:
        while True:
            row = await _found(ask, row["id"])
            said = await unit.db.read(lambda c, n=after, i=row["id"]: rows.lines(c, i, n, wire.LINES_MAX))
            for number, text in said:
                after = number
                yield codec.dumps({"line": number, "text": text}).encode() + b"\n"
            if said:
                continue
            if row["state"] in DONE or not follow:
                yield codec.dumps({"end": record(row)}).encode() + b"\n"
                return
            await bell.wait(RECHECK_S)


class ListQuery(Query, frozen=True):
    """Which requests are wanted."""

    request_ids: tuple[wire.RequestPrefix, ...] | None = None
    all_status: bool = False
    all_users: bool = False
    cluster_name: wire.Named | None = None
    limit: Annotated[int, Meta(ge=1, le=LIST_MAX)] = 100


@operation("GET", "/api/status", tag=TAG, answers=wire.RequestList, errors=[NotFound])
async def list_requests(ask: Ask, query: ListQuery) -> ASGIResponse:
    """List requests, newest first: those that are under way, or all."""
    user = user_of(ask)
    owner = None if query.all_users else user
    ids = query.request_ids or ()
    unwritten = [row for one in ids for row in ask.unit.unwritten.matching(one, owner)]
    found = unwritten + await ask.unit.db.read(
        lambda c: rows.page(
            c,
            owner=owner,
            all_status=query.all_status,
            cluster=query.cluster_name,
            limit=query.limit,
            ids=ids,
        )
    )
    for wanted in ids:
        if not any(row["id"].startswith(wanted) for row in found):
            raise _missing(wanted)
    shown = (record(row) for row in found)
    if not ask.caller.admin:  # others may be seen, and what they were answered is theirs
        shown = (one if one.user == user else msgspec.structs.replace(one, result=None) for one in shown)
    return reply(wire.RequestList(items=tuple(shown)))


@operation("POST", "/api/cancel", tag=TAG, answers=wire.Cancelled, errors=[NotFound])
async def cancel_requests(ask: Ask, body: wire.CancelRequests) -> ASGIResponse:
    """Cancel requests: what they have begun ends too."""
    user = user_of(ask)
    only_admins_for_all(ask, body.all_users)
    if body.request_ids is not None:
        named = [await _found(ask, one) for one in body.request_ids]
        return reply(wire.Cancelled(request_ids=await _cancelled(ask, lambda _: named)))
    owner = None if body.all_users else user
    ended: list[str] = []
    while some := await _cancelled(ask, lambda tx: rows.page(tx.connection, owner=owner, limit=LIST_MAX)):
        ended += some
    return reply(wire.Cancelled(request_ids=tuple(ended)))


async def _cancelled(ask: Ask, wanted: Callable[[Tx], Sequence[Row]]) -> tuple[str, ...]:
    """Cancel some requests, in one transaction; which of them were not over."""

    def verb(tx: Tx) -> tuple[str, ...]:
        fresh = [rows.find(tx.connection, row["id"]) for row in wanted(tx)]
        return tuple(row["id"] for row in fresh if row is not None and verbs.cancel(tx, row))

    return await ask.unit.db.write(verb)


@operation("GET", "/api/health", tag=TAG, answers=wire.Health)
async def get_health(ask: Ask) -> ASGIResponse:
    """Say that the server is there, what it speaks, and who asks: null for whoever brings no token."""
    caller, known = ask.somebody, ask.unit.settings
    name = None if caller is None else user_of(ask)
    return reply(
        wire.Health(
            status="healthy",
            api_version=str(known.api_version),
            min_compatible_api_version=str(known.api_version_min),
            version=known.release,
            commit="",
            user=None if caller is None or name is None else {"id": name, "name": name, "role": caller.role},
            basic_auth_enabled=known.behind_proxy,
        )
    )


async def _found(ask: Ask, request_id: str) -> Row:
    """The request, where it is the caller's own or the caller an admin; to others it is not there."""
    owner = None if ask.caller.admin else user_of(ask)
    unwritten = ask.unit.unwritten.matching(request_id, owner)

    def read(connection: Any) -> list[Row]:
        exact = rows.find(connection, request_id)
        if exact is not None and owner in (None, exact["owner"]):
            return [exact]
        return unwritten + rows.matching(connection, request_id, owner)

    found = await ask.unit.db.read(read)
    if not found:
        raise _missing(request_id)
    if len(found) > 1:
        expected = "as much of the id as no other request begins with"
        msg = f"several requests begin with {request_id!r}; give {expected}"
        raise InvalidRequest(msg, details={"field": "request_id", "value": request_id, "expected": expected})
    return found[0]


def _missing(request_id: str) -> NotFound:
    msg = f"there is no request {request_id!r}; `sky api status -a` lists those that are kept"
    return NotFound(msg, details={"request": request_id})


ROUTES = (get_request, stream_request, list_requests, cancel_requests, get_health)
