"""What would be removed now, by kind: how many, and how many bytes of content.

Decides: from which moment on something of a kind may go. Never: removes it (the loop ``collect`` does).
Follows: who asks is told what the loop would find, found in the same way.
"""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from sky.domain.keeping import UNNAMED_US_MIN, Keeping
from sky.store.rows import garbage, requests
from sky.store.rows.garbage import Found
from sky.wire import admin

Look = Callable[[sa.Connection, int], list[Found]]
FILES = "files"
LOOKS: dict[str, Look] = {
    "clusters": garbage.clusters_over,
    "computes": garbage.computes_over,
    "calls": garbage.calls_over,
    "deliveries": garbage.deliveries_over,
    "functions": garbage.functions_unnamed,
    "content": garbage.content_unnamed,
}
KINDS = (*LOOKS, FILES)


def before_us(keeping: Keeping, kind: str, now_us: int) -> int | None:
    """What of a kind is from before this moment may go; None: nothing may."""
    kept_us = {
        "clusters": keeping.ended_us,
        "computes": keeping.ended_us,
        "calls": keeping.calls_us,
        "deliveries": keeping.deliveries_us,
        "functions": max(keeping.unnamed_us, UNNAMED_US_MIN),
        "content": max(keeping.unnamed_us, UNNAMED_US_MIN),
    }[kind]
    return None if kept_us is None else now_us - kept_us


def found(connection: sa.Connection, keeping: Keeping, now_us: int) -> list[admin.Garbage]:
    """What would go of each kind that is in the database."""
    told: list[admin.Garbage] = []
    for kind, look in LOOKS.items():
        until_us = before_us(keeping, kind, now_us)
        there = [] if until_us is None else look(connection, until_us)
        told.append(admin.Garbage(kind=kind, count=len(there), bytes=sum(one.size_bytes for one in there)))
    old = connection.execute(requests.ended_before(now_us - keeping.requests_us, garbage.FOUND_MAX)).all()
    return [*told, admin.Garbage(kind="requests", count=len(old), bytes=0)]
