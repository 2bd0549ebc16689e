"""Which storages are in use: read from every job under way, however many there are."""

from __future__ import annotations

import sqlalchemy as sa

from sky.store.db import Database
from sky.store.rows import storages
from sky.store.schema_requests import cluster_jobs
from sky.store.tx import Tx

MANY = 10_001
"""One more than is looked at in one go anywhere."""


async def test_the_newest_of_many_jobs_keeps_its_storage(db: Database) -> None:
    def write(tx: Tx) -> None:
        jobs = [
            {
                "id": f"job-{number}",
                "cluster_id": "busy",
                "number": number,
                "owner": "ann",
                "state": "PENDING",
                "version": 1,
                "body": {"storages": [{"name": "last"}] if number == MANY else None},
                "num_nodes": 1,
                "gpus": 0,
                "submitted_us": number,
            }
            for number in range(1, MANY + 1)
        ]
        ended = {"id": "over", "cluster_id": "idle", "number": 1, "ended_us": 2}
        jobs.append({**jobs[0], **ended, "body": {"storages": [{"name": "ended"}]}})
        other = {"id": "bobs", "cluster_id": "bobs", "number": 1, "owner": "bob"}
        jobs.append({**jobs[0], **other, "body": {"storages": [{"name": "his"}]}})
        for job in jobs[-2:]:
            tx.connection.execute(sa.insert(cluster_jobs), job)
        tx.connection.execute(sa.insert(cluster_jobs), jobs[:-2])

    await db.write(write)
    assert await db.read(lambda c: storages.used(c, "ann")) == {("ann", "last")}
    assert await db.read(lambda c: storages.used(c, None)) == {("ann", "last"), ("bob", "his")}
