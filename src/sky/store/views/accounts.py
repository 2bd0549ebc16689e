"""Accounts, their keys and their statements, as an operator is shown them.

Decides: how a row becomes a shape of ``wire/admin``. Never: shows a key. Follows: a balance is read from
the end of its account's chain of entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from sky.domain.errors import NotFound
from sky.domain.job import CAUSE
from sky.domain.money import usd_text
from sky.kit.clock import to_datetime
from sky.store.rows import accounts as rows
from sky.store.rows import ledger
from sky.store.schema_jobs import accounts, jobs
from sky.store.schema_jobs import ledger as lines
from sky.store.sql import Row, many
from sky.store.views.errors import moment
from sky.store.views.paging import cut, place_of
from sky.wire import admin

CURSOR = "accounts"
STATEMENT_CURSOR = "entries"
SOLD_CURSOR = "sold"
OWNER = "account:"
"""What comes before an account's id where it owns a job."""


def account(connection: sa.Connection, ref: str) -> admin.Account:
    """The account with that id or name. Raises NotFound."""
    return _account(connection, find(connection, ref))


def page(connection: sa.Connection, *, cursor: str | None, limit: int) -> admin.AccountPage:
    """Accounts, newest first."""
    found = rows.page(connection, place_of(CURSOR, cursor), limit + 1)
    shown, following = cut(found, limit, CURSOR, lambda row: row["seq"])
    return admin.AccountPage(items=tuple(_account(connection, row) for row in shown), next_cursor=following)


def keys(connection: sa.Connection, ref: str) -> admin.KeyPage:
    """An account's keys. Raises NotFound."""
    row = find(connection, ref)
    return admin.KeyPage(items=tuple(key(found) for found in rows.keys_of(connection, row["id"])))


def key(row: Mapping[str, Any], secret: str | None = None) -> admin.Key:
    """A key; ``secret`` is the key itself, where it is shown."""
    return admin.Key(
        id=row["id"],
        account=row["account_id"],
        name=row["name"],
        hint=row["hint"],
        scopes=tuple(row["scopes"]),
        created_at=to_datetime(row["created_us"]),
        expires_at=None if row["expires_us"] is None else to_datetime(row["expires_us"]),
        revoked_at=None if row["revoked_us"] is None else to_datetime(row["revoked_us"]),
        key=secret,
        budget=_budget(row["caps"]),
    )


def statement(connection: sa.Connection, ref: str, *, cursor: str | None, limit: int) -> admin.Statement:
    """The lines of an account's ledger, oldest first. Raises NotFound."""
    row = find(connection, ref)
    after = place_of(STATEMENT_CURSOR, cursor) or 0
    query = (
        sa.select(lines)
        .where(lines.c.account.in_([f"{row['id']}/available", f"{row['id']}/held"]), lines.c.seq > after)
        .order_by(lines.c.seq)
        .limit(limit + 1)
    )
    shown, following = cut(many(connection, query), limit, STATEMENT_CURSOR, lambda line: line["seq"])
    return admin.Statement(items=tuple(_entry(line) for line in shown), next_cursor=following)


def sold(
    connection: sa.Connection, account: str | None, job: str | None, *, cursor: str | None, limit: int
) -> admin.SoldJobPage:
    """Jobs of all who buy, or of one account, or one job; newest first. Raises NotFound."""
    named = sa.outerjoin(jobs, accounts, jobs.c.owner == sa.literal(OWNER) + accounts.c.id)
    query = sa.select(jobs, accounts.c.name.label("account")).select_from(named).order_by(jobs.c.seq.desc())
    if account is not None:
        query = query.where(jobs.c.owner == OWNER + find(connection, account)["id"])
    if job is not None:
        query = query.where(jobs.c.id == job)
    if (place := place_of(SOLD_CURSOR, cursor)) is not None:
        query = query.where(jobs.c.seq < place)
    shown, following = cut(
        many(connection, query.limit(limit + 1)), limit, SOLD_CURSOR, lambda row: row["seq"]
    )
    return admin.SoldJobPage(items=tuple(_sold(row) for row in shown), next_cursor=following)


def _sold(row: Row) -> admin.SoldJob:
    charged = row["settled_micro"]
    return admin.SoldJob(
        id=row["id"],
        owner=row["owner"],
        account=row["account"],
        sku=row["sku"],
        status=row["state"],
        price_usd_per_hour=usd_text(row["price_micro"]),
        charged_usd=None if charged is None else usd_text(charged),
        created_at=to_datetime(row["created_us"]),
        started_at=moment(row["started_us"]),
        finished_at=moment(row["finished_us"]),
        compute_id=row["compute_id"],
        error=None if row["error"] is None else _why(row["error"]),
        placement=None if row["placement"] is None else _placement(row["placement"]),
    )


def _why(error: Mapping[str, Any]) -> str:
    cause = error.get(CAUSE)
    return error["message"] + (f": {cause}" if cause else "")


def _placement(kept: Mapping[str, Any]) -> admin.SoldPlacement:
    micro = kept.get("price_micro")
    return admin.SoldPlacement(
        cloud=kept["cloud"],
        region=kept["region"],
        instance_type=kept["instance_type"],
        cost_usd_per_hour=None if micro is None else usd_text(micro),
        passed_over=tuple(kept.get("passed_over") or ()),
    )


def _entry(line: Row) -> admin.Entry:
    return admin.Entry(
        seq=line["seq"],
        at=to_datetime(line["at_us"]),
        kind=line["kind"],
        account=line["account"].partition("/")[2],
        amount_usd=usd_text(line["amount_micro"]),
        balance_usd=usd_text(line["balance_micro"]),
        reference=line["reference"],
        job=line["job_id"],
        note=line["note"],
    )


def find(connection: sa.Connection, ref: str) -> Row:
    """The account with that id or name, as a row. Raises NotFound."""
    row = rows.find(connection, ref)
    if row is None:
        msg = f"there is no account {ref!r}; `sky admin account list` shows those there are"
        raise NotFound(msg, details={"account": ref})
    return row


def _account(connection: sa.Connection, row: Row) -> admin.Account:
    available, held = ledger.balances(connection, row["id"])
    return admin.Account(
        id=row["id"],
        name=row["name"],
        state=row["state"],
        enabled=row["enabled"],
        available_usd=usd_text(available),
        held_usd=usd_text(held),
        limits=row["limits"] or {},
        created_at=to_datetime(row["created_us"]),
        budget=_budget(row["caps"]),
    )


def _budget(caps: Mapping[str, Any] | None) -> admin.Budget:
    """What is kept of a budget, as it is shown."""
    kept = [(caps or {}).get(name) for name in ("day_micro", "month_micro")]
    day, month = (None if micro is None else usd_text(micro) for micro in kept)
    return admin.Budget(day_usd=day, month_usd=month)
