"""Providers as objects, made from their rows.

Decides: how long an object is kept (until its row changes). Never: asks a provider anything.
Follows: credentials are opened here, right before use, and nowhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from sky.providers.base import Context, Gone, Provider
from sky.providers.registry import Registry
from sky.store.db import Database
from sky.store.rows import providers
from sky.store.sql import Row

Unseal = Callable[[bytes], Mapping[str, str]]


class ProviderPool(Protocol):
    """Where loops get a provider by the id of its row."""

    async def get(self, provider_id: str) -> Provider: ...

    async def of(self, provider_id: str, row: Row | None) -> Provider: ...


class RowPool:
    """Makes providers from rows with a registry of kinds."""

    def __init__(self, db: Database, registry: Registry, context: Context, unseal: Unseal) -> None:
        self._db = db
        self._registry = registry
        self._context = context
        self._unseal = unseal
        self._made: dict[str, tuple[int, Provider]] = {}

    async def get(self, provider_id: str) -> Provider:
        """That row's provider. Raises ``Gone`` when there is none, ``Refused`` when it cannot be made."""
        return await self.of(provider_id, await self._db.read(lambda c: providers.find(c, provider_id)))

    async def of(self, provider_id: str, row: Row | None) -> Provider:
        """The same for whoever has just read its row (None: there is none)."""
        if row is None:
            self._made.pop(provider_id, None)
            msg = f"there is no provider {provider_id} any more"
            raise Gone(msg)
        if not self._has(provider_id, row) and (load := self._registry.kind(row["kind"]).load) is not None:
            await asyncio.to_thread(load)
        return self._made[provider_id][1] if self._has(provider_id, row) else self._make(provider_id, row)

    def _has(self, provider_id: str, row: Row) -> bool:
        kept = self._made.get(provider_id)
        return kept is not None and kept[0] == row["version"]

    def _make(self, provider_id: str, row: Row) -> Provider:
        credentials: Mapping[str, str] = self._unseal(row["credentials"]) if row["credentials"] else {}
        provider = self._registry.build(
            row["kind"], row["id"], row["name"], row["config"], credentials, self._context
        )
        self._made[provider_id] = (row["version"], provider)
        return provider
