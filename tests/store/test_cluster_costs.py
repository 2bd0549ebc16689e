"""What clusters have used of machines: summed from rows, over stops and starts, to now where it goes on."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from tests.store.support import compute_row, node_row

from sky.kit.clock import ManualClock
from sky.store.db import Database
from sky.store.schema import computes, nodes
from sky.store.schema_requests import clusters
from sky.store.tx import Tx
from sky.store.views import cluster_costs as views

SECOND, HOUR, DAY = 1_000_000, 3_600 * 1_000_000, 86_400 * 1_000_000
NOW = 100 * DAY
PRICE = 7_200_000
"""Of an hour, in micro-dollars: two of them a second."""


def cluster(key: str, **more: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": key,
        "name": key,
        "state": "UP",
        "version": 1,
        "owner": "ann",
        "compute_id": f"cmp_{key}",
        "num_nodes": 2,
        "resources": {"machines": [{"accelerator": "A100", "accelerator_count": 8, "use_spot": True}]},
        "specs": [],
        "autostop_minutes": -1,
        "autostop_down": False,
        "next_job": 1,
        "created_us": 1,
        "launched_us": NOW - HOUR,
        "busy_us": 1,
    }
    return {**row, **more}


def machine(key: str, compute: str, since: int, until: int | None, **more: Any) -> dict[str, Any]:
    times = {"launched_us": since, "terminated_us": until, "price_micro": PRICE, "billing_unit": "second"}
    state = "ready" if until is None else "deleted"
    return node_row(key, compute_id=compute, state=state, **{**times, **more})


async def write(db: Database, table: sa.Table, *rows: dict[str, Any]) -> None:
    def verb(tx: Tx) -> None:
        for row in rows:
            tx.connection.execute(sa.insert(table), row)

    await db.write(verb)


async def report(db: Database, days: int | None = None, owner: str | None = "ann") -> dict[str, Any]:
    found = await db.read(lambda c: views.report(c, owner, days, NOW))
    return {row["name"]: row for row in found}


@pytest.fixture
async def used(db: Database, clock: ManualClock) -> Database:
    """A cluster that was stopped and started, and one of each other kind."""
    del clock
    await write(
        db,
        clusters,
        cluster("on"),
        cluster("never"),
        cluster("bobs", owner="bob"),
        cluster("lately", state="DOWN", removed_us=NOW - 5 * DAY),
        cluster("long-ago", state="DOWN", removed_us=NOW - 40 * DAY),
    )
    await write(
        db,
        computes,
        *(
            compute_row(key, owner=f"clusters/{of}")
            for key, of in (("cmp_before", "on"), ("cmp_on", "on"), ("cmp_lately", "lately"))
        ),
        compute_row("cmp_other", owner="jobs/on"),
    )
    t = NOW - HOUR
    await write(
        db,
        nodes,
        machine("nod_1", "cmp_before", t, t + 100 * SECOND),
        machine("nod_2", "cmp_before", t + 10 * SECOND, t + 120 * SECOND, rank=1),
        machine("nod_3", "cmp_on", NOW - 30 * SECOND, None),
        machine("nod_4", "cmp_on", NOW - 20 * SECOND, None, rank=1),
        node_row("nod_5", compute_id="cmp_on", rank=2),
        machine("nod_6", "cmp_lately", NOW - 6 * DAY, NOW - 5 * DAY, price_micro=1_000_000),
        machine("nod_7", "cmp_other", t, None),
    )
    return db


async def test_a_cluster_that_was_stopped_and_started_costs_what_its_machines_did(used: Database) -> None:
    row = (await report(used))["on"]
    t = (NOW - HOUR) // SECOND
    assert row["usage_intervals"] == [[t, t + 120], [NOW // SECOND - 30, None]]
    assert row["duration"] == 120 + 30
    assert row["machine_seconds"] == 100 + 110 + 30 + 20
    assert row["total_cost"] == (100 + 110 + 30 + 20) * 0.002
    assert (row["status"], row["resources_str"]) == ("UP", "2x[A100:8, spot]")


async def test_days_and_owners_say_which_clusters(used: Database) -> None:
    assert set(await report(used)) == {"on", "never", "lately"}
    assert set(await report(used, days=2)) == {"on", "never"}
    assert set(await report(used, days=60)) == {"on", "never", "lately", "long-ago"}
    assert "bobs" in await report(used, owner=None)
    found = await report(used)
    assert (found["lately"]["total_cost"], found["lately"]["status"]) == (24.0, None)
    assert (found["never"]["total_cost"], found["never"]["usage_intervals"]) == (0, [])
