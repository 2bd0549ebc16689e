"""Pages of paid jobs, of their events and of what they printed.

Decides: which rows a page has, and where the next one begins. Never: shows another owner's.
Follows: a cursor names a row of the owner's own; jobs come newest first, events and lines oldest first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.exc import DBAPIError

from sky.kit import codec
from sky.store.prepared import Prepared, places, prepared
from sky.store.schema import events
from sky.store.schema_jobs import job_events, jobs, ledger
from sky.store.sql import Row, many, total

LOG_PAGE = 500
FIRST = 2**62
"""A place before every other: jobs come newest first."""


class JobPage(Struct, frozen=True):
    """Some jobs with what was ever held for each, and whether there are more."""

    rows: list[Row]
    held: dict[str, int]
    more: bool


def place_of_job(connection: sa.Connection, owner: str, job_id: str) -> int | None:
    """Where an owner's job is in the list; None when it is not the owner's."""
    query = sa.select(jobs.c.seq).where(jobs.c.id == job_id, jobs.c.owner == owner)
    return connection.execute(query).scalar()


def page(
    connection: sa.Connection, owner: str, states: Sequence[str], before_seq: int | None, limit: int
) -> JobPage:
    """An owner's jobs, newest first."""
    asked = {"b_owner": owner, "b_limit": limit + 1, "b_before": FIRST if before_seq is None else before_seq}
    if states:
        rows = _PAGE_OF.all(connection, {**asked, "states": sorted(set(states))})
    else:
        rows = _PAGE.all(connection, asked)
    shown = rows[:limit]
    return JobPage(shown, held(connection, [row["id"] for row in shown]), len(rows) > limit)


def held(connection: sa.Connection, ids: Sequence[str]) -> dict[str, int]:
    """All that was ever held for each of those jobs, in micro-dollars."""
    return {row["job_id"]: int(row["held"]) for row in _HELD.all(connection, {"ids": ids})}


def place_of_event(connection: sa.Connection, job_id: str, event_id: str) -> int | None:
    """Where an event is in its job's log; None when it is not that job's."""
    query = sa.select(job_events.c.seq).where(job_events.c.id == event_id, job_events.c.job_id == job_id)
    return connection.execute(query).scalar()


def events_after(
    connection: sa.Connection, job_id: str, after_seq: int, limit: int
) -> tuple[list[Row], bool]:
    """A job's events after a place, and whether there are more."""
    query = (
        sa.select(job_events)
        .where(job_events.c.job_id == job_id, job_events.c.seq > after_seq)
        .order_by(job_events.c.seq)
        .limit(limit + 1)
    )
    rows = many(connection, query)
    return rows[:limit], len(rows) > limit


def output(
    connection: sa.Connection, tasks: Sequence[str], after_seq: int, since_us: int = 0
) -> list[tuple[int, str]]:
    """What tasks printed after a place: (place, text), text with its line end. Raises UnreadableLog."""
    if not tasks:
        return []
    query = (
        sa.select(events.c.seq, events.c.payload)
        .where(
            events.c.task_id.in_(list(tasks)),
            events.c.name == "node.console",
            events.c.seq > after_seq,
            events.c.at_us >= since_us,
        )
        .order_by(events.c.seq)
        .limit(LOG_PAGE)
    )
    try:
        return [(row["seq"], _text(row["payload"])) for row in many(connection, query)]
    except (DBAPIError, ValueError, LookupError, TypeError) as error:
        raise UnreadableLog(f"lines after {after_seq} of {', '.join(tasks)}: {error}") from error


class UnreadableLog(Exception):
    """Lines that were printed cannot be read; the message says which."""


def prefixed_output(
    connection: sa.Connection, ranks: Mapping[str, str], after_seq: int
) -> list[tuple[int, str]]:
    """What tasks printed after a place: (place, line or lines), each line behind the prefix of its task."""
    if not ranks:
        return []
    query = (
        sa.select(events.c.seq, events.c.task_id, events.c.payload)
        .where(events.c.task_id.in_(list(ranks)), events.c.name == "node.console", events.c.seq > after_seq)
        .order_by(events.c.seq)
        .limit(LOG_PAGE)
    )
    found: list[tuple[int, str]] = []
    for row in many(connection, query):
        prefix = ranks[row["task_id"]]
        lines = _text(row["payload"]).splitlines()
        found.append((row["seq"], "\n".join(prefix + line for line in lines)))
    return found


def _text(payload: str) -> str:
    said: dict[str, Any] = codec.loads(payload)
    return f"{said['content']}\n"


_SHOWN = [column for column in jobs.columns if column.name not in ("machines", "stop_error")]
_NEWEST = (
    sa.select(*_SHOWN)
    .where(jobs.c.owner == sa.bindparam("b_owner"), jobs.c.seq < sa.bindparam("b_before"))
    .order_by(jobs.c.seq.desc())
    .limit(sa.bindparam("b_limit"))
)
_PAGE = prepared(_NEWEST)
_PAGE_OF = Prepared(lambda _, count: _NEWEST.where(jobs.c.state.in_(places("states", count))), "states")
_HELD = Prepared(
    lambda _, count: (
        sa.select(ledger.c.job_id, total(ledger.c.amount_micro).label("held"))
        .where(
            ledger.c.job_id.in_(places("ids", count)),
            ledger.c.account.endswith("/held"),
            ledger.c.amount_micro > 0,
        )
        .group_by(ledger.c.job_id)
    ),
    "ids",
)
