"""What the loops last decided, as the faces show it.

Decides: how a note of a loop becomes an answer. Never: wakes a loop.
Follows: whoever asks why something is as it is reads the loops' own words.
"""

from __future__ import annotations

import sqlalchemy as sa

from sky.kit import ids
from sky.store import passes
from sky.store.views.errors import moment
from sky.wire import v1

DECISIONS_MAX = 500


def page(connection: sa.Connection, key: str | None) -> v1.DecisionPage:
    """The latest decisions: all of them, those about an id, or those of keys that begin with ``key``."""
    if key is None:
        rows = passes.rows(connection, limit=DECISIONS_MAX)
    elif ids.is_id(key):
        rows = passes.rows(connection, about=key, limit=DECISIONS_MAX)
    else:
        rows = passes.rows(connection, key_prefix=key, limit=DECISIONS_MAX)
    return v1.DecisionPage(items=tuple(map(_shown, rows)))


def _shown(row: passes.PassRow) -> v1.Decision:
    return v1.Decision(
        loop=row.key.partition("/")[0],
        key=row.key,
        decision=row.decision or "",
        decided_at=moment(row.decided_us),
        next_at=moment(row.due_us),
        failures=row.failures,
        error=row.error,
    )
