"""Functions, as rows. Decides: nothing. Never: opens one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from sky.store.prepared import Prepared, prepared
from sky.store.schema import functions
from sky.store.sql import insert_ignore
from sky.store.tx import Tx


def known(connection: sa.Connection, sha256: str) -> bool:
    """Whether that function is registered."""
    return _KNOWN.first(connection, {"b_sha": sha256}) is not None


def add(tx: Tx, row: Mapping[str, Any]) -> bool:
    """Register; False when it was registered before."""
    return _ADD.run(tx.connection, row) == 1


_KNOWN = prepared(sa.select(functions.c.sha256).where(functions.c.sha256 == sa.bindparam("b_sha")))
_COLUMNS = ("sha256", "codec", "name", "size_bytes", "created_us")
_ADD = Prepared(lambda dialect, _: insert_ignore(dialect, functions, _COLUMNS))
