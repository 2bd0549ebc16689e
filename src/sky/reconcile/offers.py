"""Keeps each provider's offers in the table, fetched when somebody needs them.

Decides: when a fetched list replaces the one before. Never: drops a list because the next fetch failed.
Follows: why a provider does not answer stands on its row, and in the reasons of whoever waits for it.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

import msgspec

from sky.domain.offer import Offer
from sky.kit.clock import SECOND_US, Clock
from sky.providers.base import AgainLater, Gone, Refused
from sky.reconcile.passes import Done, OuterLoop
from sky.reconcile.pool import ProviderPool
from sky.store.rows import providers, requests
from sky.store.tx import Tx
from sky.verbs.attempts import error_value

FETCH_S_MAX = 60.0
REFUSED_AGAIN_US = 60 * SECOND_US


class Offers(OuterLoop):
    """One pass: ask a provider for its offers, write them down."""

    name: ClassVar[str] = "offers"
    idle: ClassVar[str] = "there are no providers"

    def __init__(self, pool: ProviderPool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock

    async def look(self, key_id: str) -> Done:
        try:
            provider = await self._pool.get(key_id)
            async with asyncio.timeout(FETCH_S_MAX):
                found = await provider.offers()
        except Gone:
            return Done("the provider was removed")
        except Refused as error:
            return self._failed(key_id, error.message, error.code, REFUSED_AGAIN_US)
        except AgainLater as error:
            return self._failed(key_id, error.message, "busy", round(error.after_s * SECOND_US))
        except TimeoutError:
            return self._failed(key_id, f"no answer within {FETCH_S_MAX:g} s", "busy", REFUSED_AGAIN_US)
        ttl_us = provider.offers_ttl_seconds * SECOND_US

        def write(tx: Tx) -> None:
            providers.replace_offers(tx, key_id, [_row(tx, o, ttl_us) for o in found])
            _tell(tx, key_id)

        return Done(f"{len(found)} offers", None, write)

    def _failed(self, provider_id: str, message: str, code: str, after_us: int) -> Done:
        error = error_value("provider_refused", message, retryable=code == "busy", reason=code)

        def write(tx: Tx) -> None:
            providers.note_error(tx, provider_id, error)
            _tell(tx, provider_id)

        return Done(message, self._clock.now_us() + after_us, write)


def _tell(tx: Tx, provider_id: str) -> None:
    """Whoever waits for offers looks again."""
    tx.signal(f"offers/{provider_id}")
    for request_id in requests.pending(tx.connection):
        tx.touch(f"requests/{request_id}")


def _row(tx: Tx, offer: Offer, ttl_us: int) -> dict[str, object]:
    return {
        "id": offer.id,
        "provider_id": offer.provider_id,
        "body": msgspec.to_builtins(offer),
        "fetched_us": tx.now_us,
        "expires_us": tx.now_us + ttl_us,
    }
