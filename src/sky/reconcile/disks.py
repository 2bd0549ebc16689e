"""Removes the disks that nothing wants any more, one at a time.

Decides: nothing; ``plan/compute`` does. Never: removes one that was not let go, for a machine may yet be
given it: a rank that is wanted again waits until its former disk is gone. Follows: a disk's row stays until
its provider has answered, so that a removal that nobody saw is asked for again; removing what is gone is
done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

import structlog

from sky.domain import compute as c
from sky.domain import node as n
from sky.kit import faults
from sky.kit.clock import SECOND_US, Clock
from sky.providers.base import AgainLater, Gone, Refused, keeper_of
from sky.reconcile.passes import Done, OuterLoop
from sky.reconcile.pool import ProviderPool
from sky.store.db import Database
from sky.store.rows import computes, disks, nodes
from sky.store.sql import Row
from sky.store.tx import Tx
from sky.verbs.attempts import error_value

_log = structlog.get_logger(__name__)
CALL_S_MAX = 120.0
AGAIN_US = 5 * SECOND_US


class Disks(OuterLoop):
    """One pass: read a disk with its compute, remove it at its provider, write that down."""

    name: ClassVar[str] = "disks"
    idle: ClassVar[str] = "there are no disks that outlive their machines"

    def __init__(self, db: Database, clock: Clock, pool: ProviderPool) -> None:
        self._db = db
        self._clock = clock
        self._pool = pool

    async def look(self, key_id: str) -> Done:
        row = await self._db.read(lambda connection: disks.find(connection, key_id))
        if row is None:
            return Done("there is no such disk any more")
        if not disks.view_of(row).going:
            return Done("its compute has not let it go", None, lambda tx: _ask(tx, row))
        try:
            keeper = keeper_of(await self._pool.get(row["provider_id"]))
            if keeper is not None:
                async with asyncio.timeout(CALL_S_MAX):
                    await keeper.remove_disk(key_id)
        except Gone:
            _log.info("disk.provider_gone", disk=key_id)
        except (AgainLater, Refused, TimeoutError) as error:
            return self._not_removed(row, str(error) or type(error).__name__)
        faults.point("disk removed, not written down")
        return Done("it is removed", None, lambda tx: _removed(tx, row))

    def _not_removed(self, disk: Row, why: str) -> Done:
        compute_id = disk["compute_id"]
        message = f"disk {disk['name']} could not be removed and may still cost: {why}"

        def write(tx: Tx) -> None:
            for node in nodes.unbound(tx.connection, compute_id, disk["rank"]):
                if _says(node) != message:
                    tx.apply(n.NodeNoted(node["id"], error_value("busy", message, retryable=True)))
            row = computes.find(tx.connection, compute_id)
            if row is not None and row["state"] == c.DELETING and _says(row) != message:
                error = error_value("release_pending", message, retryable=True)
                tx.apply(c.DeletionFailed(compute_id, error))

        return Done(message, self._clock.now_us() + AGAIN_US, write)


def _says(row: Row) -> Any:
    """What was last noted of a node or of a compute."""
    last: Mapping[str, Any] = row["last_error"] or {}
    return last.get("message")


def _ask(tx: Tx, row: Row) -> None:
    """A daemon of a release before has asked for its removal: whether it goes is its compute's to say."""
    tx.touch(f"computes/{row['compute_id']}")


def _removed(tx: Tx, row: Row) -> None:
    disks.remove(tx, row["name"])
    for node in nodes.unbound(tx.connection, row["compute_id"], row["rank"]):
        tx.touch(f"nodes/{node['id']}")
    tx.touch(f"computes/{row['compute_id']}")
