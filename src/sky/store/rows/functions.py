"""Functions, as rows. Decides: nothing. Never: opens one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from sky.store.schema import functions
from sky.store.sql import insert_ignore
from sky.store.tx import Tx


def known(connection: sa.Connection, sha256: str) -> bool:
    """Whether that function is registered."""
    return connection.execute(_KNOWN, {"b_sha": sha256}).first() is not None


def add(tx: Tx, row: Mapping[str, Any]) -> bool:
    """Register; False when it was registered before."""
    return tx.connection.execute(insert_ignore(tx.connection, functions), dict(row)).rowcount == 1


_KNOWN = sa.select(functions.c.sha256).where(functions.c.sha256 == sa.bindparam("b_sha"))
