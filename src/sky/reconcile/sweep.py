"""Ends machines that no row owns, removes such disks, and has those looked after that are not there.

Decides: that a machine is a stray (no live row has its tag, or its row has its machine elsewhere), and that
a disk is (no row has its name). Never: ends what a live row owns.
Follows: a machine bought by a process that died before anybody could know is still found and given back.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

import structlog

from sky.domain import compute as c
from sky.domain import node as n
from sky.kit.clock import SECOND_US, Clock
from sky.providers.base import AgainLater, Gone, Machine, Provider, Refused, keeper_of
from sky.reconcile.passes import Done, OuterLoop
from sky.reconcile.pool import ProviderPool
from sky.store.db import Database
from sky.store.rows import computes, disks, nodes
from sky.store.sql import Row
from sky.store.tx import Tx

_log = structlog.get_logger(__name__)
DISKLESS_EVERY_US = 3_600 * SECOND_US
SWEEP_EVERY_US = 60 * SECOND_US
CALL_S_MAX = 120.0


class Sweep(OuterLoop):
    """One pass: list a provider's machines, end one that no row owns: the one that was tried least."""

    name: ClassVar[str] = "sweep"
    idle: ClassVar[str] = "there are no providers"

    def __init__(self, db: Database, clock: Clock, pool: ProviderPool) -> None:
        self._db = db
        self._clock = clock
        self._pool = pool
        self._tries: dict[str, dict[str, int]] = {}
        self._turn = 0
        self._looked_us: dict[str, int] = {}
        self._held: dict[str, int] = {}

    async def look(self, key_id: str) -> Done:
        next_us = self._clock.now_us() + SWEEP_EVERY_US
        try:
            provider = await self._pool.get(key_id)
            async with asyncio.timeout(CALL_S_MAX):
                machines = await provider.machines()
        except Gone:
            self._tries.pop(key_id, None)
            return Done("the provider was removed")
        except (AgainLater, Refused, TimeoutError) as error:
            return Done(f"its machines could not be listed: {error}", next_us)
        there = [m for m in machines if m.state != "gone"]
        tags = [m.tag for m in there]
        owned = await self._db.read(lambda connection: nodes.owners(connection, tags))
        await self._look_after_missing(key_id, provider, {m.tag for m in there})
        strays = [m.tag for m in there if _is_stray(m, owned.get(m.tag), key_id)]
        if not strays:
            self._tries.pop(key_id, None)
            return await self._disks(key_id, provider, Done(f"{len(tags)} machines, each owned", next_us))
        before = self._tries.get(key_id, {})
        tries = self._tries[key_id] = {tag: before.get(tag, 0) for tag in strays}
        stray = min(strays, key=lambda tag: tries[tag])  # one that cannot be ended does not shield the others
        tries[stray] += 1
        _log.warning("stray.terminated", tag=stray, provider=key_id)
        try:
            async with asyncio.timeout(CALL_S_MAX):
                await provider.terminate(stray, None)
        except (AgainLater, Refused, Gone, TimeoutError) as error:
            untried_us = self._clock.now_us() + SECOND_US
            again_us = next_us if min(tries.values()) else untried_us
            return Done(f"stray {stray} could not be ended: {error}", again_us)
        compute_id = owned[stray]["compute_id"] if stray in owned else None

        def write(tx: Tx) -> None:
            if compute_id is None:
                return
            if computes.state_of(tx.connection, compute_id) in c.LIVE:
                tx.apply(c.StraysTerminated(compute_id))

        more_us = self._clock.now_us() + SECOND_US
        return Done(f"ended {stray}, which no node owns", more_us, write)

    async def _disks(self, provider_id: str, provider: Provider, done: Done) -> Done:
        """Where every machine has its owner: remove a disk that no compute has, wherever that was made.

        Providers over one account list each other's disks, so a disk is nobody's only if no row has its name.
        """
        keeper = keeper_of(provider)
        if keeper is None or not await self._disks_due(provider_id):
            return done
        try:
            async with asyncio.timeout(CALL_S_MAX):
                there = await keeper.disks()
            owned = await self._db.read(lambda connection: disks.known(connection, there))
            strays = sorted(set(there) - owned)
            if not strays:
                return done
            stray = strays[self._turn % len(strays)]
            self._turn += 1
            _log.warning("stray.disk_removed", disk=stray, provider=provider_id)
            async with asyncio.timeout(CALL_S_MAX):
                await keeper.remove_disk(stray)
        except (AgainLater, Refused, Gone, TimeoutError) as error:
            return Done(f"{done.why}; its disks could not be looked after: {error}", done.due_us)
        return Done(f"removed disk {stray}, which nothing owns", self._clock.now_us() + SECOND_US)

    async def _disks_due(self, provider_id: str) -> bool:
        """Whether to list a provider's disks: where it should have none, once an hour will do."""
        now_us = self._clock.now_us()
        if now_us - self._looked_us.get(provider_id, -DISKLESS_EVERY_US) < DISKLESS_EVERY_US:
            held = await self._db.read(lambda connection: disks.count_of(connection, provider_id))
            had, self._held[provider_id] = self._held.get(provider_id, 0), held
            if not held and not had:
                return False
        self._looked_us[provider_id] = now_us
        return True

    async def _look_after_missing(self, provider_id: str, provider: Provider, there: set[str]) -> None:
        """Nodes whose machine should be listed by now, and is not, are looked at one by one."""
        settled_us = self._clock.now_us() - round(provider.capabilities.settle_seconds * SECOND_US)
        bought = await self._db.read(lambda c: nodes.bought_of(c, provider_id, settled_us))
        missing = [node for node in bought if node not in there]
        if missing:
            await self._db.write(lambda tx: [tx.touch(f"nodes/{node}") for node in missing], later=True)


def _is_stray(machine: Machine, node: Row | None, provider_id: str) -> bool:
    """Whether a machine is not its node's: there is none, it is over, or it has its machine elsewhere.

    Providers over one account list each other's machines: only the one that bought it may say the last.
    """
    if node is None or node["state"] in n.FINAL:
        return True
    return machine.provider_id == provider_id and node["provider_id"] not in (None, provider_id)
