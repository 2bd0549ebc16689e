"""Users and their tokens, as rows.

Decides: nothing. Never: keeps a token itself, only its SHA-256.
Follows: a token is looked up with its user in one query, which costs a request one visit at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from sky.store.prepared import prepared
from sky.store.schema_requests import clusters
from sky.store.schema_users import user_tokens, users
from sky.store.sql import ByBytes, Row, many, one
from sky.store.tx import Tx

CHANGED = "users"
"""The key that is signalled whenever a user or a token is written."""


def find(connection: sa.Connection, name: str) -> Row | None:
    """The user of that name."""
    return one(connection, _USER, {"b_name": name})


def page(connection: sa.Connection, after_seq: int, limit: int) -> list[Row]:
    """Users, oldest first."""
    return many(
        connection, sa.select(users).where(users.c.seq > after_seq).order_by(users.c.seq).limit(limit)
    )


def add(tx: Tx, name: str, role: str) -> None:
    """Keep a new user."""
    tx.connection.execute(sa.insert(users).values(name=name, role=role, created_us=tx.now_us))
    tx.signal(CHANGED)


def set_role(tx: Tx, name: str, role: str) -> None:
    """From now on that user has this role."""
    tx.connection.execute(sa.update(users).where(users.c.name == name).values(role=role))
    tx.signal(CHANGED)


def remove(tx: Tx, name: str) -> None:
    """Forget a user, and refuse its tokens."""
    tx.connection.execute(sa.delete(user_tokens).where(user_tokens.c.user_name == name))
    tx.connection.execute(sa.delete(users).where(users.c.name == name))
    tx.signal(CHANGED)


def clusters_of(connection: sa.Connection, name: str, limit: int) -> list[str]:
    """Names of live clusters of that user."""
    query = (
        sa.select(clusters.c.name)
        .where(clusters.c.owner == name, clusters.c.removed_us.is_(None))
        .order_by(ByBytes(clusters.c.name))
        .limit(limit)
    )
    return [row["name"] for row in many(connection, query)]


def admins(connection: sa.Connection) -> list[str]:
    """Names of users who are admins: two at most, for the last one must be told from others."""
    query = sa.select(users.c.name).where(users.c.role == "admin").limit(2)
    return [row["name"] for row in many(connection, query)]


# ── tokens ──────────────────────────────────────────────────────────────────────────────────────


def by_hash(connection: sa.Connection, sha256: str) -> Row | None:
    """The token with that hash, with the role of its user."""
    return one(connection, _TOKEN, {"b_sha256": sha256})


def token(connection: sa.Connection, token_id: str) -> Row | None:
    """The token with that id."""
    return one(connection, sa.select(user_tokens).where(user_tokens.c.id == token_id))


def named(connection: sa.Connection, user: str, name: str) -> Row | None:
    """The token of a user that is in force under that name."""
    query = sa.select(user_tokens).where(
        user_tokens.c.user_name == user, user_tokens.c.name == name, user_tokens.c.revoked_us.is_(None)
    )
    return one(connection, query)


def tokens(connection: sa.Connection, user: str | None, after_seq: int, limit: int) -> list[Row]:
    """Tokens, oldest first: a user's, or everybody's."""
    query = (
        sa.select(user_tokens).where(user_tokens.c.seq > after_seq).order_by(user_tokens.c.seq).limit(limit)
    )
    if user is not None:
        query = query.where(user_tokens.c.user_name == user)
    return many(connection, query)


def add_token(tx: Tx, row: Mapping[str, Any]) -> None:
    """Keep a new token."""
    tx.connection.execute(sa.insert(user_tokens).values(**row))
    tx.signal(CHANGED)


def change_token(tx: Tx, token_id: str, **values: Any) -> None:
    """Give a token other values."""
    tx.connection.execute(sa.update(user_tokens).where(user_tokens.c.id == token_id).values(**values))
    tx.signal(CHANGED)


def used(tx: Tx, token_id: str) -> None:
    """Note when a token was used; nobody is told."""
    tx.connection.execute(
        sa.update(user_tokens).where(user_tokens.c.id == token_id).values(used_us=tx.now_us)
    )


_USER = prepared(sa.select(users).where(users.c.name == sa.bindparam("b_name")))
_TOKEN = prepared(
    sa.select(
        user_tokens.c.id,
        user_tokens.c.user_name,
        user_tokens.c.role,
        user_tokens.c.expires_us,
        user_tokens.c.revoked_us,
        user_tokens.c.used_us,
        users.c.role.label("user_role"),
    )
    .select_from(user_tokens.join(users, users.c.name == user_tokens.c.user_name))
    .where(user_tokens.c.sha256 == sa.bindparam("b_sha256"))
)
