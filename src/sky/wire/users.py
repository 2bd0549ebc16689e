"""Users and their tokens, as admins and users send them and are answered.

Decides: every field and limit of these shapes. Never: shows a token again. Follows: a user's name is what
owns clusters and requests; of a token one sees how it begins, and once, when it is made, all of it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

from sky.wire.v1.base import Answer, Request

NAME_PATTERN = r"^[A-Za-z0-9._@+-]{1,64}$"
EXPIRES_SECONDS_MAX = 100 * 366 * 24 * 3600
UserName = Annotated[str, Meta(pattern=NAME_PATTERN)]
Role = Literal["viewer", "user", "admin"]
Expires = Annotated[int, Meta(ge=1, le=EXPIRES_SECONDS_MAX, description="Seconds from now.")]


class UserCreate(Request, frozen=True):
    """A user to make."""

    name: UserName
    role: Role = "user"


class UserPatch(Request, frozen=True):
    """What is to change of a user."""

    role: Role


class User(Answer, frozen=True):
    """A user. ``created_at`` null: the daemon's own user, of whom no row is kept yet."""

    name: str
    role: Role
    created_at: datetime | None = None


class UserPage(Answer, frozen=True):
    """Some users, oldest first."""

    items: tuple[User, ...]
    next_cursor: str | None = None


class TokenCreate(Request, frozen=True):
    """A token to make. ``user``: whose; null: the caller's own. ``role``: what it may do at most, where that
    is less than its user may. ``expires_in_seconds`` null: good until it is revoked, or as long
    as the token that makes it."""

    name: UserName
    user: UserName | None = None
    role: Role | None = None
    expires_in_seconds: Expires | None = None


class TokenRotate(Request, frozen=True):
    """How a token's successor is to be; null: as long as the old one was good for."""

    expires_in_seconds: Expires | None = None


class Token(Answer, frozen=True):
    """A token. ``token`` is the token itself: told when it is made or rotated, and never again."""

    id: str
    name: str
    user: str
    hint: str
    role: Role | None
    created_at: datetime
    expires_at: datetime | None
    rotated_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    token: str | None = None


class TokenPage(Answer, frozen=True):
    """Some tokens, oldest first."""

    items: tuple[Token, ...]
    next_cursor: str | None = None
