"""What there is at a glance: machines and their cost by day, work under way, what failed lately.

Decides: what is summed, and among how much of the newest it is looked for what failed. Never: stores a sum.
Follows: the cost of a day is what the cost so far has grown by on it, so days add up to what machines cost;
whoever is not told of everybody is told of what belongs to their clusters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import sqlalchemy as sa

from sky.domain import cluster_job, job, request
from sky.domain.money import machine_cost_micro, to_usd
from sky.domain.node import READY
from sky.kit.clock import SECOND_US, to_datetime
from sky.store.schema import IS_ON_NODE, IS_WAITING, computes, executions, functions, nodes, tasks
from sky.store.schema_jobs import jobs
from sky.store.schema_requests import cluster_jobs, clusters, requests
from sky.store.sql import Row, many
from sky.wire import summary as wire

OWNER = "clusters/"
WEEK_US = 7 * 86_400 * SECOND_US
DAY_US = 86_400 * SECOND_US
NEWEST = 1_000
"""How many of the newest requests, jobs and tasks are looked at each."""
FAILURES_MAX = 50
TASKS_FAILED = ("failed", "timed_out", "indeterminate")
JOBS_FAILED = frozenset(cluster_job.DONE) - {cluster_job.SUCCEEDED, cluster_job.CANCELLED}

SOLD_FAILED = (job.FAILED, job.INTERRUPTED)


def summary(connection: sa.Connection, owner: str | None, days: int, now_us: int) -> wire.Summary:
    """What there is, of one user's clusters or (None) of everybody."""
    today_us = now_us - now_us % DAY_US
    month_us = today_us - (to_datetime(now_us).day - 1) * DAY_US
    starts = [today_us - back * DAY_US for back in range(days - 1, -1, -1)]
    there = machines(connection, owner, min(month_us, starts[0]))
    live = [row for row in there if row["terminated_us"] is None]
    failed = sorted(_failures(connection, owner, now_us - WEEK_US), key=lambda one: -one.at)
    queued, running = _jobs(connection, owner)
    return wire.Summary(
        everybody=owner is None,
        month=_day(month_us),
        price_per_hour=to_usd(sum(row["price_micro"] for row in live)),
        month_cost=to_usd(sum(_grown(row, month_us, now_us) for row in there)),
        days=tuple(
            wire.DayCost(day=_day(since), cost=to_usd(sum(_grown(row, since, until) for row in there)))
            for since, until in ((start, min(start + DAY_US, now_us)) for start in starts)
        ),
        nodes_ready=sum(row["state"] == READY for row in live),
        nodes_total=len(live),
        jobs_running=running,
        jobs_queued=queued,
        tasks_running=_count(connection, IS_ON_NODE) if owner is None else 0,
        tasks_queued=_count(connection, IS_WAITING) if owner is None else 0,
        failed_day=sum(one.at * SECOND_US >= now_us - DAY_US for one in failed),
        failures=tuple(failed[:FAILURES_MAX]),
    )


def _day(moment_us: int) -> str:
    return to_datetime(moment_us).date().isoformat()


def machines(connection: sa.Connection, owner: str | None, since_us: int) -> list[Row]:
    """Machines that were there after a moment."""
    query = sa.select(
        nodes.c.state, nodes.c.price_micro, nodes.c.billing_unit, nodes.c.launched_us, nodes.c.terminated_us
    ).where(
        nodes.c.launched_us.is_not(None),
        sa.or_(nodes.c.terminated_us.is_(None), nodes.c.terminated_us > since_us),
    )
    if owner is not None:
        own = sa.select(sa.literal(OWNER) + clusters.c.id).where(clusters.c.owner == owner)
        mine = sa.select(computes.c.id).where(computes.c.owner.in_(own))
        query = query.where(nodes.c.compute_id.in_(mine))
    return many(connection, query)


def _grown(row: Row, since_us: int, until_us: int) -> int:
    """By how much a machine's cost has grown between two moments, in micro-dollars."""
    end = row["terminated_us"] or until_us
    if end <= since_us or row["launched_us"] >= until_us or not row["price_micro"]:
        return 0

    def cost(moment_us: int) -> int:
        used_us = min(moment_us, end) - row["launched_us"]
        return machine_cost_micro(row["price_micro"], used_us, row["billing_unit"])

    return cost(until_us) - cost(since_us)


def _count(connection: sa.Connection, which: sa.ColumnElement[bool]) -> int:
    return connection.execute(sa.select(sa.func.count()).select_from(executions).where(which)).scalar_one()


def _jobs(connection: sa.Connection, owner: str | None) -> tuple[int, int]:
    """How many jobs of clusters wait, and how many are under way."""
    query = sa.select(cluster_jobs.c.state, sa.func.count().label("n")).where(
        cluster_jobs.c.ended_us.is_(None)
    )
    if owner is not None:
        query = query.where(cluster_jobs.c.owner == owner)
    found = {row["state"]: row["n"] for row in many(connection, query.group_by(cluster_jobs.c.state))}
    running = sum(found.get(state, 0) for state in (cluster_job.SETTING_UP, cluster_job.RUNNING))
    return sum(found.values()) - running, running


def _failures(connection: sa.Connection, owner: str | None, since_us: int) -> Iterator[wire.Failure]:
    yield from _failed_requests(connection, owner, since_us)
    yield from _failed_jobs(connection, owner, since_us)
    if owner is None:
        yield from _failed_tasks(connection, since_us)
        yield from _failed_sold(connection, since_us)


def _failed_requests(connection: sa.Connection, owner: str | None, since_us: int) -> Iterator[wire.Failure]:
    query = sa.select(
        requests.c.id, requests.c.name, requests.c.state, requests.c.error, requests.c.finished_us
    ).order_by(requests.c.seq.desc())
    if owner is not None:
        query = query.where(requests.c.owner == owner)
    for row in many(connection, query.limit(NEWEST)):
        if row["state"] == request.FAILED and row["finished_us"] >= since_us:
            yield wire.Failure(
                kind="request",
                id=row["id"],
                name=row["name"],
                at=row["finished_us"] / SECOND_US,
                message=_message(row["error"]),
            )


def _failed_jobs(connection: sa.Connection, owner: str | None, since_us: int) -> Iterator[wire.Failure]:
    query = (
        sa.select(cluster_jobs, clusters.c.name.label("cluster"))
        .join(clusters, clusters.c.id == cluster_jobs.c.cluster_id)
        .order_by(cluster_jobs.c.seq.desc())
    )
    if owner is not None:
        query = query.where(cluster_jobs.c.owner == owner)
    for row in many(connection, query.limit(NEWEST)):
        if row["state"] in JOBS_FAILED and row["ended_us"] >= since_us:
            codes = ", ".join(map(str, row["exit_codes"] or ()))
            yield wire.Failure(
                kind="job",
                id=str(row["number"]),
                name=row["name"] or f"job {row['number']}",
                at=row["ended_us"] / SECOND_US,
                message=_message(row["error"]) or (f"exit codes {codes}" if codes else None),
                cluster=row["cluster"],
            )


def _failed_tasks(connection: sa.Connection, since_us: int) -> Iterator[wire.Failure]:
    """Calls that failed; those of jobs and requests are told as such."""
    newest = (
        sa.select(tasks.c.id, tasks.c.function_sha256, tasks.c.state, tasks.c.finished_us, tasks.c.owner)
        .order_by(tasks.c.seq.desc())
        .limit(NEWEST)
        .subquery()
    )
    query = (
        sa.select(newest.c.id, newest.c.finished_us, functions.c.name, executions.c.error)
        .outerjoin(functions, functions.c.sha256 == newest.c.function_sha256)
        .outerjoin(executions, executions.c.task_id == newest.c.id)
        .where(newest.c.state.in_(TASKS_FAILED), newest.c.owner.is_(None), newest.c.finished_us >= since_us)
        .order_by(executions.c.ordinal)
    )
    found: dict[str, wire.Failure] = {}
    for row in many(connection, query):
        found[row["id"]] = wire.Failure(
            kind="task",
            id=row["id"],
            name=row["name"] or "task",
            at=row["finished_us"] / SECOND_US,
            message=_message(row["error"]),
        )
    yield from found.values()


def _failed_sold(connection: sa.Connection, since_us: int) -> Iterator[wire.Failure]:
    """Jobs that were bought and did not succeed, whosever fault that was."""
    query = sa.select(jobs.c.id, jobs.c.sku, jobs.c.state, jobs.c.error, jobs.c.finished_us)
    for row in many(connection, query.order_by(jobs.c.seq.desc()).limit(NEWEST)):
        if row["state"] in SOLD_FAILED and row["finished_us"] >= since_us:
            yield wire.Failure(
                kind="sold",
                id=row["id"],
                name=row["sku"],
                at=row["finished_us"] / SECOND_US,
                message=_message(row["error"]),
            )


def _message(error: Any) -> str | None:
    return cast("dict[str, Any]", error).get("message") if isinstance(error, dict) else None
