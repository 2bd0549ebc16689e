"""What the jobs of a cluster print, as it is printed.

Decides: the form of a line: ``(name, rank=1) text`` where a job has several nodes. Never: keeps a line.
Follows: a reader that comes back goes on behind the last place it has; the stream ends with the job.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from itertools import groupby
from typing import Annotated, Any

from litestar.response.base import ASGIResponse
from msgspec import Meta

from sky.api.operation import Ask, operation
from sky.api.reading import Query
from sky.api.requests.follow import LINES
from sky.api.requests.versions import user_of
from sky.api.stream import Streamed
from sky.domain.cluster_job import DONE
from sky.domain.errors import Forbidden, NotFound
from sky.kit import codec
from sky.kit.nearby import hint
from sky.store.events import Filter
from sky.store.rows import clusters
from sky.store.sql import Row
from sky.store.views import jobs as views
from sky.wire import requests as wire

TAG = "Requests"
POLL_S = 1.0
NAMES_MAX = 1_000
MISMATCH = "ClusterOwnerIdentityMismatchError"


class LogsQuery(Query, frozen=True):
    """Behind which place to begin."""

    after: Annotated[wire.Place, Meta(description="The last place that was seen.")] = 0


@operation("POST", "/logs", tag=TAG, answers=wire.RequestRecord, errors=[Forbidden, NotFound])
async def tail_logs(ask: Ask, query: LogsQuery, body: wire.LogsBody) -> ASGIResponse:
    """Follow what a job of a cluster prints, to its end.

    JSON lines: `{"place": 7, "text": "..."}`, and `{"end": "SUCCEEDED", "exit_codes": [0]}` behind the last
    one.
    """
    user = user_of(ask)
    cluster, job = await ask.unit.db.read(lambda c: _job(c, body, user))
    return Streamed(_lines(ask, cluster, job["number"], body, query.after), media=LINES)


def _job(connection: Any, body: wire.LogsBody, user: str) -> tuple[Row, Row]:
    cluster = cluster_of(connection, body.cluster_name, user, all_users=body.all_users)
    if body.job_id is None:
        newest = clusters.jobs(connection, cluster["id"], 1)
        job = newest[0] if newest else None
    else:
        job = clusters.job(connection, cluster["id"], body.job_id)
    if job is None:
        raise no_job(cluster, body.job_id)
    return cluster, job


def cluster_of(connection: Any, name: str, user: str, *, all_users: bool) -> Row:
    """The live cluster whose jobs a user reads. Raises NotFound, Forbidden; their ``type`` is the name that
    they have in the SDK."""
    cluster = clusters.named(connection, name)
    if cluster is None:
        known = clusters.names_in_use(connection, NAMES_MAX)
        msg = f"there is no cluster {name!r}; {hint(name, known)}"
        raise NotFound(msg, details={"type": "ClusterDoesNotExist", "cluster": name})
    if cluster["owner"] != user and not all_users:
        msg = (
            f"cluster {name!r} belongs to {cluster['owner']}, not to {user}; with --all-users anybody may "
            "look at it"
        )
        details = {"type": MISMATCH, "cluster": name, "owner": cluster["owner"], "user": user}
        raise Forbidden(msg, details=details)
    return cluster


def no_job(cluster: Row, number: int | None) -> NotFound:
    """That a cluster has no such job."""
    shown = "no job" if number is None else f"no job {number}"
    msg = f"cluster {cluster['name']!r} has {shown}; `sky queue {cluster['name']}` lists them"
    details = {"type": "JobNotFoundError", "cluster": cluster["name"], "job_id": number}
    return NotFound(msg, details=details)


async def _lines(
    ask: Ask, cluster: Row, number: int, body: wire.LogsBody, after: int
) -> AsyncIterator[bytes]:
    unit = ask.unit
    kept: deque[tuple[int, str]] | None = deque(maxlen=body.tail) if body.tail else None
    while True:
        job = await unit.db.read(lambda c: clusters.job(c, cluster["id"], number))
        if job is None:
            return
        page = await unit.db.read(lambda c, n=after, found=job: views.prefixed_output(c, prefixes(found), n))
        for place, text in page:
            after = place
            if kept is None:
                yield _line(place, text)
            else:
                kept.extend((place, line) for line in text.split("\n"))
        if page:
            continue
        for place, lines in groupby(kept or (), lambda one: one[0]):
            # What has one place is sent at once, so that who comes back behind it has all of it.
            yield _line(place, "\n".join(line for _, line in lines))
        kept = None
        if job["state"] in DONE or not body.follow:
            told = {"end": job["state"], "exit_codes": job["exit_codes"], "place": after}
            yield codec.dumps(told).encode() + b"\n"
            return
        if not await _news(ask, cluster):
            return


def _line(place: int, text: str) -> bytes:
    return codec.dumps({"place": place, "text": text}).encode() + b"\n"


def prefixes(job: Row) -> dict[str, str]:
    """What stands before each line of each of a job's tasks."""
    begun: dict[str, list[str]] = job["setup_tasks"] or {}
    name, several = job["name"] or "task", job["num_nodes"] > 1
    found: dict[str, str] = {}
    for what, tasks in (("setup", begun.get("setup", [])), (name, job["run_tasks"] or [])):
        for rank, task_id in enumerate(tasks):
            found[task_id] = f"({what}, rank={rank}) " if several else f"({what}) "
    return found


async def _news(ask: Ask, cluster: Row) -> bool:
    subscription = ask.unit.hub.subscribe(Filter(compute_id=cluster["compute_id"]))
    try:
        await subscription.next(POLL_S)
        return not subscription.over
    finally:
        ask.unit.hub.unsubscribe(subscription)


ROUTES = (tail_logs,)
