"""Says that a shell on a machine is open, for as long as it is.

Decides: how often that is said again. Never: judges what is idle (``domain/cluster`` does).
Follows: a daemon that dies with shells open says nothing more, and they count as closed soon after.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from sky.store.db import Database
from sky.store.rows import clusters
from sky.verbs import cluster_power

AGAIN_S = cluster_power.SESSION_US / 3_000_000


@contextlib.asynccontextmanager
async def in_use(db: Database, compute_id: str) -> AsyncGenerator[None]:
    """A shell is open on a machine of that compute; one that is no cluster's is not minded."""
    if await db.read(lambda c: clusters.of_compute(c, compute_id)) is None:
        yield
        return
    await _say(db, compute_id, more=True)
    saying = asyncio.create_task(_keep_saying(db, compute_id))
    try:
        yield
    finally:
        saying.cancel()
        await asyncio.gather(saying, return_exceptions=True)
        await asyncio.shield(_say(db, compute_id, more=False))


async def _keep_saying(db: Database, compute_id: str) -> None:
    while True:
        await asyncio.sleep(AGAIN_S)
        await _say(db, compute_id, more=True)


async def _say(db: Database, compute_id: str, *, more: bool) -> None:
    await db.write(lambda tx: cluster_power.in_session(tx, compute_id, more=more))
