"""What the loops last decided, as the faces show it.

Decides: how a note of a loop becomes an answer. Never: wakes a loop.
Follows: whoever asks why something is as it is reads the loops' own words; every loop has a line, so that
one that does nothing is told from one that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import sqlalchemy as sa

from sky.kit import ids
from sky.store import passes
from sky.store.views.errors import moment
from sky.wire import v1

DECISIONS_MAX = 500


def page(connection: sa.Connection, key: str | None, loops: Mapping[str, str]) -> v1.DecisionPage:
    """The latest decisions: all of them, those about an id, or those of keys that begin with ``key``.

    Among all of them is one at least of each of ``loops``: its latest, or why it has nothing to do.
    """
    if key is None:
        shown = [_shown(row) for row in passes.rows(connection, limit=DECISIONS_MAX)]
        return v1.DecisionPage(items=(*shown, *_others(connection, loops, {one.loop for one in shown})))
    if ids.is_id(key):
        rows = passes.rows(connection, about=key, limit=DECISIONS_MAX)
    else:
        rows = passes.rows(connection, key_prefix=key, limit=DECISIONS_MAX)
    return v1.DecisionPage(items=tuple(map(_shown, rows)))


def _others(connection: sa.Connection, loops: Mapping[str, str], told: set[str]) -> Iterator[v1.Decision]:
    for loop, idle in loops.items():
        if loop not in told:
            latest = passes.rows(connection, key_prefix=f"{loop}/", limit=1)
            yield _shown(latest[0]) if latest else v1.Decision(loop=loop, key=f"{loop}/", decision=idle)


def _shown(row: passes.PassRow) -> v1.Decision:
    return v1.Decision(
        loop=row.key.partition("/")[0],
        key=row.key,
        decision=row.decision or _UNDECIDED,
        decided_at=moment(row.decided_us),
        next_at=moment(row.due_us),
        failures=row.failures,
        error=row.error,
    )


_UNDECIDED = "it is to be looked at for the first time"
