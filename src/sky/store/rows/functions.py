"""Functions, as rows. Decides: nothing. Never: opens one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from sky.domain.keeping import FRESH_US
from sky.store.prepared import Prepared, prepared
from sky.store.schema import functions
from sky.store.sql import insert_ignore
from sky.store.tx import Tx


def use(tx: Tx, sha256: str) -> bool:
    """Whether that function is registered. It is about to be named: that is noted, so that it is not removed
    meanwhile."""
    row = _AGE.first(tx.connection, {"b_sha": sha256})
    if row is not None and (row["used_us"] or row["created_us"]) < tx.now_us - FRESH_US:
        _USED.run(tx.connection, {"b_sha": sha256, "b_now": tx.now_us})
    return row is not None


def add(tx: Tx, row: Mapping[str, Any]) -> bool:
    """Register; False when it was registered before."""
    return _ADD.run(tx.connection, row) == 1 or not use(tx, row["sha256"])


_NAMED = functions.c.sha256 == sa.bindparam("b_sha")
_AGE = prepared(sa.select(functions.c.created_us, functions.c.used_us).where(_NAMED))
_USED = prepared(sa.update(functions).where(_NAMED).values(used_us=sa.bindparam("b_now")))
_COLUMNS = ("sha256", "codec", "name", "size_bytes", "created_us")
_ADD = Prepared(lambda dialect, _: insert_ignore(dialect, functions, _COLUMNS))
