"""Removes the disks that nothing wants any more, one at a time.

Decides: that a disk goes once its compute does not want it and no node of its rank is left. Never: removes
one that a machine may still use, or may yet be given: that it goes is written down before its provider is
asked, and a rank that is wanted again waits until it is gone. Follows: its row stays until the provider has
answered, so that a disk whose removal nobody saw is asked for again; removing what is gone is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

import structlog

from sky.domain import compute as c
from sky.kit import faults
from sky.kit.clock import SECOND_US, Clock
from sky.providers.base import AgainLater, Gone, Refused, keeper_of
from sky.reconcile.passes import Done, OuterLoop
from sky.reconcile.pool import ProviderPool
from sky.store.db import Database
from sky.store.rows import computes, disks
from sky.store.rows.disks import DiskCase
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
        case = await self._db.read(lambda connection: disks.case(connection, key_id))
        if case is None:
            return Done("there is no such disk any more")
        if not case.going:
            return _kept(case) or Done("it is to be removed", None, lambda tx: _let_go(tx, key_id))
        try:
            keeper = keeper_of(await self._pool.get(case.row["provider_id"]))
            if keeper is not None:
                async with asyncio.timeout(CALL_S_MAX):
                    await keeper.remove_disk(key_id)
        except Gone:
            _log.info("disk.provider_gone", disk=key_id)
        except (AgainLater, Refused, TimeoutError) as error:
            return self._not_removed(case, str(error) or type(error).__name__)
        faults.point("disk removed, not written down")
        return Done("it is removed", None, lambda tx: _removed(tx, case))

    def _not_removed(self, case: DiskCase, why: str) -> Done:
        name, compute_id = case.row["name"], case.row["compute_id"]
        message = f"disk {name} could not be removed and may still cost: {why}"

        def write(tx: Tx) -> None:
            row = computes.find(tx.connection, compute_id)
            if row is None or row["state"] != c.DELETING:
                return
            last: Mapping[str, Any] = row["last_error"] or {}
            if last.get("message") != message:
                error = error_value("release_pending", message, retryable=True)
                tx.apply(c.DeletionFailed(compute_id, error))

        return Done(message, self._clock.now_us() + AGAIN_US, write)


def _kept(case: DiskCase) -> Done | None:
    if case.wanted:
        return Done("its compute wants it")
    return Done("a machine may still use it") if case.held else None


def _let_go(tx: Tx, name: str) -> None:
    """It goes, unless its rank is wanted again by now."""
    case = disks.case(tx.connection, name)
    if case is not None and _kept(case) is None:
        disks.let_go(tx, name)
    tx.touch(f"disks/{name}")


def _removed(tx: Tx, case: DiskCase) -> None:
    disks.remove(tx, case.row["name"])
    tx.touch(f"computes/{case.row['compute_id']}")
