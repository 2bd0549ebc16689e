"""The tables of users (who may come in, in which role, and by which tokens), and which installation this is.

Decides: columns, keys and indexes. Never: what a role may do (``domain/user``). Conventions are those of
``schema``. Follows: of a token only its SHA-256 is kept, and how it begins, so that it can be told apart;
with this module every table is known.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from sky.store.schema import BIG
from sky.store.schema_requests import metadata


def _us(name: str, *, required: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=not required)


users = sa.Table(
    "users",
    metadata,
    sa.Column("seq", BIG, primary_key=True, autoincrement=True),
    sa.Column("name", sa.String(64), nullable=False, unique=True),
    sa.Column("role", sa.String(16), nullable=False),
    _us("created_us", required=True),
)

user_tokens = sa.Table(
    "user_tokens",
    metadata,
    sa.Column("seq", BIG, primary_key=True, autoincrement=True),
    sa.Column("id", sa.String(40), nullable=False, unique=True),
    sa.Column("user_name", sa.String(64), nullable=False, index=True),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("role", sa.String(16)),
    sa.Column("sha256", sa.String(64), nullable=False, unique=True),
    sa.Column("hint", sa.String(16), nullable=False),
    _us("created_us", required=True),
    _us("expires_us"),
    _us("rotated_us"),
    _us("revoked_us"),
    _us("used_us"),
)

installation = sa.Table(
    "installation",
    metadata,
    sa.Column("identity", sa.String(40), primary_key=True),
    sa.Column("origin", sa.String(16), nullable=False),
    sa.Column("database_mark", sa.String(200), nullable=False),
    sa.Column("whole", sa.Boolean, nullable=False),
    _us("made_us", required=True),
)
"""One row: the name that no copy of this database keeps. Not ``whole``: a copy into it has not ended."""
