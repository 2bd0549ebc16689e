"""Accounts and their keys, as rows.

Decides: nothing. Never: keeps a key itself, only its SHA-256.
Follows: a key is looked up at each request, so that a revoked one is refused at the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from sky.store.prepared import prepared
from sky.store.schema_jobs import accounts, api_keys
from sky.store.sql import Row, many, one
from sky.store.tx import Tx


def find(connection: sa.Connection, ref: str) -> Row | None:
    """The account with that id or name."""
    return one(connection, _ACCOUNT, {"b_ref": ref})


def page(connection: sa.Connection, before_seq: int | None, limit: int) -> list[Row]:
    """Accounts, newest first."""
    query = sa.select(accounts).order_by(accounts.c.seq.desc()).limit(limit)
    if before_seq is not None:
        query = query.where(accounts.c.seq < before_seq)
    return many(connection, query)


def add_key(tx: Tx, row: Mapping[str, Any]) -> None:
    """Keep a new key."""
    tx.connection.execute(sa.insert(api_keys).values(**row))


def key_by_hash(connection: sa.Connection, sha256: str) -> Row | None:
    """The key with that hash, with its account; ``account_state`` None: that is gone."""
    return one(connection, _KEY, {"b_sha256": sha256})


def keys_of(connection: sa.Connection, account_id: str) -> list[Row]:
    """An account's keys, oldest first."""
    return many(
        connection, sa.select(api_keys).where(api_keys.c.account_id == account_id).order_by(api_keys.c.seq)
    )


def key(connection: sa.Connection, key_id: str) -> Row | None:
    """The key with that id."""
    return one(connection, sa.select(api_keys).where(api_keys.c.id == key_id))


def cap_key(tx: Tx, key_id: str, caps: Mapping[str, Any] | None) -> None:
    """From now on that key has these budgets."""
    tx.connection.execute(sa.update(api_keys).where(api_keys.c.id == key_id).values(caps=caps))


def revoke_key(tx: Tx, key_id: str) -> None:
    """From now on that key is refused; revoked again, it stays as it was."""
    tx.connection.execute(
        sa.update(api_keys)
        .where(api_keys.c.id == key_id, api_keys.c.revoked_us.is_(None))
        .values(revoked_us=tx.now_us)
    )


_ACCOUNT = prepared(
    sa.select(accounts)
    .where(sa.or_(accounts.c.id == sa.bindparam("b_ref"), accounts.c.name == sa.bindparam("b_ref")))
    .order_by(accounts.c.id != sa.bindparam("b_ref"))
    .limit(1)
)
_KEY = prepared(
    sa.select(
        api_keys.c.id,
        api_keys.c.sha256,
        api_keys.c.scopes,
        api_keys.c.caps,
        api_keys.c.expires_us,
        api_keys.c.revoked_us,
        api_keys.c.account_id,
        accounts.c.state.label("account_state"),
        accounts.c.enabled,
        accounts.c.limits,
        accounts.c.caps.label("account_caps"),
    )
    .select_from(api_keys.outerjoin(accounts, accounts.c.id == api_keys.c.account_id))
    .where(api_keys.c.sha256 == sa.bindparam("b_sha256"))
)
