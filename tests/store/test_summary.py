"""What there is at a glance: days that add up to what machines cost, work that is counted, what failed."""

from __future__ import annotations

from typing import Any

from tests.store.support import compute_row
from tests.store.test_cluster_costs import DAY, HOUR, SECOND, cluster, machine, write

from sky.store.db import Database
from sky.store.schema import computes, nodes
from sky.store.schema_requests import cluster_jobs, clusters, requests
from sky.store.views import summary as views
from sky.wire.summary import Failure, Summary

NOON = 100 * DAY + 12 * HOUR
"""Of the eleventh of April 1970; its month is ten days old."""


async def told(db: Database, owner: str | None = None, days: int = 3, now: int = NOON) -> Summary:
    return await db.read(lambda c: views.summary(c, owner, days, now))


def job(key: str, number: int, **more: Any) -> dict[str, Any]:
    row = {"id": key, "cluster_id": "on", "number": number, "owner": "ann", "state": "FAILED", "version": 1}
    times = {"submitted_us": 1, "ended_us": NOON - HOUR}
    return {**row, "body": {}, "num_nodes": 1, "gpus": 0, **times, **more}


def request(key: str, **more: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"id": key, "name": "stop", "state": "FAILED", "version": 1, "owner": "ann"}
    error = {"type": "ClusterDoesNotExist", "message": "there is none"}
    times = {"created_us": 1, "finished_us": NOON - 2 * HOUR}
    return {**row, "body": {}, "error": error, "tries": 0, **times, **more}


async def test_days_add_up_to_what_machines_cost(db: Database) -> None:
    hour = {"price_micro": 3_600_000, "billing_unit": "hour"}
    await write(db, clusters, cluster("on", compute_id="cmp_on"))
    await write(db, computes, compute_row("cmp_on", owner="clusters/on"), compute_row("cmp_free"))
    await write(
        db,
        nodes,
        machine("nod_1", "cmp_on", NOON - 24 * HOUR, None),
        machine("nod_2", "cmp_free", NOON - 13 * HOUR, NOON - 11 * HOUR - 1800 * SECOND, **hour),
        machine("nod_3", "cmp_free", NOON - 20 * DAY, NOON - 15 * DAY),
        machine("nod_4", "cmp_free", NOON, None, rank=1),
    )
    everybody = await told(db)
    assert [(one.day, one.cost) for one in everybody.days] == [
        ("1970-04-09", 0.0),
        ("1970-04-10", 12 * 7.2 + 3.6),
        ("1970-04-11", 12 * 7.2 + 3.6),
    ]
    assert everybody.month == "1970-04-01"
    assert everybody.month_cost == sum(one.cost for one in everybody.days)
    assert (everybody.price_per_hour, everybody.nodes_total) == (14.4, 2)
    long = await told(db, days=30)
    assert round(sum(one.cost for one in long.days), 6) == round(24 * 7.2 + 7.2 + 5 * 24 * 7.2, 6)
    own = await told(db, "ann")
    assert (own.month_cost, own.nodes_total, own.everybody) == (24 * 7.2, 1, False)
    assert (await told(db, "bob")).month_cost == 0


async def test_what_failed_is_told_the_latest_first_to_whom_it_belongs(db: Database) -> None:
    await write(db, clusters, cluster("on"))
    await write(
        db,
        cluster_jobs,
        job("job_1", 1, name="train", exit_codes=[0, 3]),
        job("job_2", 2, state="SUCCEEDED"),
        job("job_3", 3, state="FAILED_SETUP", ended_us=NOON - 8 * DAY),
        job("job_4", 4, state="RUNNING", ended_us=None),
        job("job_5", 5, state="PENDING", ended_us=None),
        job("job_6", 6, owner="bob", error={"code": "x", "message": "bob's own"}, ended_us=NOON - 3 * DAY),
    )
    await write(db, requests, request("req_1"), request("req_2", state="SUCCEEDED", error=None))
    everybody = await told(db)
    assert [(one.kind, one.id, one.message) for one in everybody.failures] == [
        ("job", "1", "exit codes 0, 3"),
        ("request", "req_1", "there is none"),
        ("job", "6", "bob's own"),
    ]
    assert (everybody.failed_day, everybody.jobs_running, everybody.jobs_queued) == (2, 1, 1)
    bobs = await told(db, "bob")
    assert bobs.failures == (
        Failure(
            kind="job", id="6", name="job 6", at=(NOON - 3 * DAY) / SECOND, message="bob's own", cluster="on"
        ),
    )
    assert (bobs.failed_day, bobs.jobs_running) == (0, 0)
