"""Says that this daemon is there, to the others on its database and to agents, and sets its time by theirs.

Decides: how often. Never: looks after another daemon: what that one leaves is due, and found by ticks.
Follows: an agent that loses its daemon knows the others, and dials one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sky.domain.errors import SkyError
from sky.kit.version import VERSION
from sky.store.db import Database
from sky.store.rows import daemons
from sky.store.tx import Tx

EVERY_S = 2.0


class Presence:
    """One daemon's row. ``agree`` asks the database for the time; None: nobody else goes by it."""

    def __init__(
        self,
        db: Database,
        name: str,
        url: str,
        deployment: str,
        agree: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._db = db
        self._name = name
        self._url = url
        self._deployment = deployment
        self._agree = agree

    async def begin(self) -> set[str]:
        """Be there from now on; returns other deployments that use this database too."""
        now_us = self._db.clock.now_us()
        others = await self._db.read(lambda c: daemons.deployments(c, now_us, self._name))
        if not others - {self._deployment}:
            await self._say()
        return others - {self._deployment}

    async def run_forever(self) -> None:
        """Say it until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            if self._agree is not None:
                await self._agree()
            await self._say()

    async def end(self) -> None:
        """Be there no more."""
        try:
            await self._db.write(lambda tx: daemons.leave(tx, self._name))
        except SkyError:  # it is passed over soon without that
            return

    async def _say(self) -> None:
        await self._db.write(self._note)

    def _note(self, tx: Tx) -> None:
        tx.spared = True
        daemons.note(tx, self._name, self._url, VERSION, self._deployment)
