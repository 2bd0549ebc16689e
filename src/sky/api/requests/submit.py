"""Submitting requests: one route for each name.

Decides: nothing; a request's body is its own shape, and what it leads to is the loop's. Never: waits for it.
Follows: what can be done at once is done in the transaction that writes it down, so its answer has the
result; what only reads is read before, so that nobody waits for that, and is answered also where there is no
room to write it down.
"""

from __future__ import annotations

from typing import Any

from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse

from sky.api.operation import Ask, operation, reply
from sky.api.reading import Query
from sky.api.requests.show import record
from sky.api.requests.versions import only_admins_for_all, user_of
from sky.domain.errors import Forbidden, IdempotencyConflict, NotFound, StorageFull
from sky.domain.user import ACTS
from sky.store.rows import requests as rows
from sky.store.sql import Row
from sky.store.tx import Tx
from sky.verbs import request_reads
from sky.verbs import requests as verbs
from sky.verbs.request_reads import Told
from sky.wire import requests as wire

TAG = "Requests"
WORDS = {
    "launch": "Have a task run on a cluster, which is made if there is none of that name",
    "exec": "Have a task run on a cluster that is up, without its setup",
    "status": "Show clusters",
    "start": "Start a stopped cluster",
    "stop": "Stop a cluster, and keep its disks",
    "down": "Take a cluster down",
    "autostop": "Say what happens to a cluster when it is idle",
    "queue": "Show the jobs of a cluster",
    "job_status": "Tell the states of jobs",
    "cancel": "Cancel jobs of a cluster",
    "check": "Look which clouds can be used",
    "enabled_clouds": "List the clouds that can be used",
    "cost_report": "Show what clusters have cost",
    "optimize": "Show which machines would do for tasks, and choose one",
    "validate": "Check whether tasks could be launched",
    "endpoints": "Tell where a cluster's open ports can be reached",
    "list_accelerators": "List accelerators with their machines and prices",
    "list_accelerator_counts": "List how many of each accelerator one machine can have",
    "storage_ls": "List storages",
    "storage_delete": "Delete a storage and what is in it",
}


class CloudsQuery(Query, frozen=True):
    """``expand``: with the places within each cloud."""

    expand: bool = False


@operation("GET", "/enabled_clouds", tag=TAG, answers=wire.Submitted, errors=[NotFound])
async def get_enabled_clouds(ask: Ask, query: CloudsQuery) -> ASGIResponse:
    """List the clouds that can be used.

    Answers with the id of a request: its result is at `/api/get`.
    """
    return await _submitted(ask, "enabled_clouds", wire.EnabledCloudsBody(expand=query.expand))


async def _submitted(ask: Ask, name: str, body: wire.Body) -> ASGIResponse:
    """Write a request down, once under its key, and tell it as it is then."""
    user = user_of(ask)
    only_admins_for_all(ask, name in ACTS and getattr(body, "all_users", False))
    admin = ask.caller.admin
    answer = await _answer(ask, name, user, body)
    written: dict[str, Row] = {}

    def make(tx: Tx) -> str:
        if answer is None:
            return verbs.submit(tx, name, body, user, admin=admin)
        row = verbs.record(tx, name, body, user, answer)
        written[row["id"]] = row
        return row["id"]

    try:
        request_id, replayed = await ask.once(make, lambda _tx, made: made, [user, body])
    except StorageFull:
        if answer is None:
            raise
        row = verbs.ended(name, body, user, answer, ask.unit.clock.now_us())
        ask.unit.unwritten.keep(row)
        written[row["id"]], request_id, replayed = row, row["id"], False
    row = written.get(request_id) or await ask.unit.db.read(lambda c: rows.find(c, request_id))
    if row is None:
        msg = f"request {request_id} was kept for its time and is gone; ask again with a new key"
        raise NotFound(msg, details={"request": request_id})
    told = wire.Submitted(request_id=request_id, record=record(row))
    more = {"idempotency_replayed": "true"} if replayed else {}
    return reply(told, 200, **{wire.REQUEST_HEADER: request_id}, **more)


async def _answer(ask: Ask, name: str, user: str, body: wire.Body) -> Told | None:
    """How a request ends that only reads, from what is committed now; None: another one."""
    if not request_reads.only_reads(name, body):
        return None
    unit = ask.unit
    unit.db.asked()
    return await unit.db.read(lambda c: request_reads.tell(c, name, user, body, unit.clock.now_us()))


def _route(name: str, shape: type[wire.Body]) -> HTTPRouteHandler:
    async def submit(ask: Ask, body: Any) -> ASGIResponse:
        return await _submitted(ask, name, body)

    submit.__name__ = name
    submit.__doc__ = f"{WORDS[name]}.\n\nAnswers with the id of a request: its result is at `/api/get`."
    submit.__annotations__ = {"ask": Ask, "body": shape, "return": ASGIResponse}
    made = operation(
        "POST",
        f"/{name}",
        tag=TAG,
        answers=wire.Submitted,
        keyed=True,
        errors=[Forbidden, IdempotencyConflict, NotFound],
    )
    return made(submit)


ROUTES = (*(_route(name, shape) for name, shape in wire.BODIES.items()), get_enabled_clouds)
