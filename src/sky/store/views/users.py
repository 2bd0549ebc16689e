"""Users and their tokens, as they are shown.

Decides: how a row becomes a shape of ``wire/users``. Never: shows a token, but where it was just made.
Follows: a page's cursor is the place of its last row.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from sky.kit.clock import to_datetime
from sky.store.rows import users as rows
from sky.store.views.paging import cut, place_of
from sky.wire import users as wire

USERS, TOKENS = "users", "tokens"


def user(row: Mapping[str, Any]) -> wire.User:
    """A user."""
    return wire.User(name=row["name"], role=row["role"], created_at=to_datetime(row["created_us"]))


def page(connection: sa.Connection, *, cursor: str | None, limit: int) -> wire.UserPage:
    """Users, oldest first."""
    found = rows.page(connection, place_of(USERS, cursor) or 0, limit + 1)
    shown, following = cut(found, limit, USERS, lambda row: row["seq"])
    return wire.UserPage(items=tuple(user(row) for row in shown), next_cursor=following)


def token(row: Mapping[str, Any], secret: str | None = None) -> wire.Token:
    """A token; ``secret`` is the token itself, where it is shown."""
    return wire.Token(
        id=row["id"],
        name=row["name"],
        user=row["user_name"],
        hint=row["hint"],
        role=row["role"],
        created_at=to_datetime(row["created_us"]),
        expires_at=_moment(row["expires_us"]),
        rotated_at=_moment(row["rotated_us"]),
        revoked_at=_moment(row["revoked_us"]),
        last_used_at=_moment(row["used_us"]),
        token=secret,
    )


def tokens(connection: sa.Connection, user: str | None, *, cursor: str | None, limit: int) -> wire.TokenPage:
    """A user's tokens, or everybody's, oldest first."""
    found = rows.tokens(connection, user, place_of(TOKENS, cursor) or 0, limit + 1)
    shown, following = cut(found, limit, TOKENS, lambda row: row["seq"])
    return wire.TokenPage(items=tuple(token(row) for row in shown), next_cursor=following)


def _moment(at_us: int | None) -> datetime | None:
    return None if at_us is None else to_datetime(at_us)
