"""Orders to a console that may not have arrived, as rows; gone once it is known what became of them.

Decides: nothing. Never: holds what a hold is worth; the ledger does.
Follows: a job has one such order at a time: its first hold, or its next extension.
"""

from __future__ import annotations

import sqlalchemy as sa

from sky.domain.hold import HoldView, Noted
from sky.domain.job import TERMINAL, meter_of
from sky.store.prepared import inserted, prepared
from sky.store.rows import ledger
from sky.store.schema_jobs import console_orders as orders
from sky.store.schema_jobs import jobs
from sky.store.sql import Row, one
from sky.store.tx import Tx


def add(tx: Tx, job_id: str, ordinal: int, owner: str, amount_micro: int) -> None:
    """Note an order that is about to be given."""
    row = {
        "job_id": job_id,
        "ordinal": ordinal,
        "owner": owner,
        "amount_micro": amount_micro,
        "leaving": False,
        "noted_us": tx.now_us,
    }
    _ADD.run(tx.connection, row)


def find(connection: sa.Connection, job_id: str) -> Row | None:
    """The order that is noted for a job."""
    return one(connection, _FIND, {"b_id": job_id})


def leave(tx: Tx, job_id: str) -> bool:
    """Note that the order is not to stand; whether there is one."""
    changed = tx.connection.execute(sa.update(orders).where(orders.c.job_id == job_id).values(leaving=True))
    return changed.rowcount > 0


def remove(tx: Tx, job_id: str) -> None:
    """Forget the order."""
    tx.connection.execute(sa.delete(orders).where(orders.c.job_id == job_id))


def take(tx: Tx, job_id: str) -> bool:
    """Forget the order if it may stand; whether it may."""
    standing = sa.delete(orders).where(orders.c.job_id == job_id, orders.c.leaving.is_(False))
    return tx.connection.execute(standing).rowcount > 0


def view(connection: sa.Connection, job_id: str, now_us: int) -> HoldView:
    """What a plan reads of a job's hold."""
    job = one(connection, _JOB, {"b_id": job_id})
    noted = find(connection, job_id)
    over = job is not None and job["state"] in TERMINAL
    charge = None
    if job is not None and over:
        meter = meter_of(job, job["ended_us"])
        charge = meter.cost_micro(now_us, ledger.promised(connection, job_id))
    return HoldView(
        job_id=job_id,
        job_state=None if job is None else job["state"],
        settled=job is not None and job["settled_us"] is not None,
        charge_micro=charge,
        finished_us=None if job is None else job["finished_us"],
        noted=None
        if noted is None
        else Noted(noted["ordinal"], noted["amount_micro"], noted["noted_us"], noted["leaving"]),
    )


_FIND = prepared(sa.select(orders).where(orders.c.job_id == sa.bindparam("b_id")))
_ADD = inserted(orders, [column.name for column in orders.columns])
_JOB = prepared(
    sa.select(
        jobs.c.state,
        jobs.c.price_micro,
        jobs.c.gpu_count,
        jobs.c.started_us,
        jobs.c.ended_us,
        jobs.c.used_us,
        jobs.c.finished_us,
        jobs.c.settled_us,
    ).where(jobs.c.id == sa.bindparam("b_id"))
)
