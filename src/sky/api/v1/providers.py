"""Providers, the kinds there are of them, and what they offer.

Decides: how long a reader of offers waits for fresh ones. Never: talks to a provider; a loop does.
Follows: credentials go in and never come out.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from litestar.response.base import ASGIResponse
from msgspec import Meta

from sky.api.errors import short
from sky.api.operation import Ask, Header, Limit, TrialQuery, made, nothing, operation, reply
from sky.api.reading import Query
from sky.api.unit import Services
from sky.api.v1.cursors import OfferCursor, ProviderCursor
from sky.domain.errors import (
    IdempotencyConflict,
    NameTaken,
    NotFound,
    ProviderInUse,
    SecretInDefinition,
    UnsupportedProvider,
)
from sky.kit import codec
from sky.kit.clock import SECOND_US
from sky.store import passes
from sky.store.tx import Tx
from sky.store.views import offers as offer_views
from sky.store.views import providers as views
from sky.store.views.offers import Wanted
from sky.verbs import providers as verbs
from sky.wire import v1

TAG = "Providers"
LOCATION = Header("Location", "Where it is found.")
FRESH_US = 10 * SECOND_US
"""How long an answer waits for offers that are fetched for it."""
ONCE_MORE_US = SECOND_US
"""The same where they have been waited for already."""
LOOK_S = 0.05


class ProviderFilter(Query, frozen=True):
    """Which part of the list is wanted."""

    cursor: ProviderCursor | None = None
    limit: Limit | None = None


class OfferFilter(Query, frozen=True):
    """Which offers are wanted."""

    provider: Annotated[str, Meta(max_length=256, description="Id or name of a provider.")] | None = None
    kind: Annotated[str, Meta(max_length=256, description="A kind of provider.")] | None = None
    accelerator: Annotated[str, Meta(max_length=256, description="Name of an accelerator.")] | None = None
    min_count: Annotated[int, Meta(ge=0, le=10_000, description="At least so many accelerators.")] | None = (
        None
    )
    min_vram: (
        Annotated[float, Meta(ge=0, le=1e6, description="At least so much memory per accelerator, in GiB.")]
        | None
    ) = None
    max_price: Annotated[float, Meta(ge=0, le=1e9, description="At most so many USD per hour.")] | None = None
    refresh: Annotated[bool, Meta(description="Ask the providers first, and wait up to 10 s.")] = False
    cursor: OfferCursor | None = None
    limit: Limit | None = None


@operation("GET", "/v1/provider-kinds", tag=TAG, answers=tuple[v1.ProviderKind, ...])
async def list_provider_kinds(ask: Ask) -> ASGIResponse:
    """List the kinds of provider there are, and the credentials that each takes."""
    kinds = ask.unit.rules.kinds
    return reply(
        [
            v1.ProviderKind(
                kind=kinds[name].kind,
                credential_fields=kinds[name].credential_fields,
                offers_ttl_seconds=kinds[name].offers_ttl_seconds,
            )
            for name in sorted(kinds)
        ]
    )


@operation("GET", "/v1/providers", tag=TAG, answers=v1.ProviderPage)
async def list_providers(ask: Ask, query: ProviderFilter) -> ASGIResponse:
    """List the providers, in the order they were added."""
    return reply(await ask.unit.db.read(lambda c: views.page(c, cursor=query.cursor, limit=query.limit)))


@operation(
    "POST",
    "/v1/providers",
    tag=TAG,
    answers=v1.Provider,
    status=201,
    also=[200],
    keyed=True,
    sets=[LOCATION],
    errors=[IdempotencyConflict, NameTaken, UnsupportedProvider, SecretInDefinition],
)
async def create_provider(ask: Ask, body: v1.ProviderCreate) -> ASGIResponse:
    """Add a provider.

    Its credentials are kept encrypted, and no operation shows them.
    """
    rules = ask.unit.rules
    hidden = msgspec.structs.replace(
        body, credentials={k: codec.sha256_hex(v.encode()) for k, v in body.credentials.items()}
    )
    provider, replayed = await ask.once(
        lambda tx: verbs.create(tx, body, rules),
        lambda tx, provider_id: views.get(tx.connection, provider_id),
        hidden,
    )
    return made(provider, f"/v1/providers/{provider.id}", replayed)


@operation("GET", "/v1/providers/{provider_id}", tag=TAG, answers=v1.Provider, errors=[NotFound])
async def get_provider(ask: Ask, provider_id: str) -> ASGIResponse:
    """Show a provider."""
    return reply(await ask.unit.db.read(lambda c: views.get(c, provider_id)))


@operation(
    "PUT",
    "/v1/providers/{provider_id}",
    tag=TAG,
    answers=v1.Provider,
    errors=[NotFound, NameTaken, UnsupportedProvider, SecretInDefinition],
)
async def replace_provider(ask: Ask, provider_id: str, body: v1.ProviderCreate) -> ASGIResponse:
    """Change a provider in place. Without credentials, it keeps those it has."""
    rules = ask.unit.rules

    def write(tx: Tx) -> v1.Provider:
        return views.get(tx.connection, verbs.replace(tx, provider_id, body, rules))

    return reply(await ask.unit.db.write(write))


@operation("DELETE", "/v1/providers/{provider_id}", tag=TAG, status=204, errors=[NotFound, ProviderInUse])
async def delete_provider(ask: Ask, provider_id: str, query: TrialQuery) -> ASGIResponse:
    """Remove a provider that nothing needs any more."""
    await ask.write(lambda tx: verbs.delete(tx, provider_id), dry_run=query.dry_run)
    return nothing()


# ── offers ──────────────────────────────────────────────────────────────────────────────────────


@operation("GET", "/v1/offers", tag=TAG, answers=v1.OfferPage, errors=[NotFound, UnsupportedProvider])
async def list_offers(ask: Ask, query: OfferFilter) -> ASGIResponse:
    """List what could be bought now, the cheapest first.

    Offers that are too old are fetched anew before the answer, for up to ten seconds; ``refresh`` fetches
    them in any case.
    """
    unit = ask.unit
    if query.kind is not None and query.kind not in unit.rules.kinds:
        known = sorted(unit.rules.kinds)
        msg = f"no kind of provider is called {short(query.kind)!r}; there are {', '.join(known) or 'none'}"
        raise UnsupportedProvider(msg, details={"kind": short(query.kind), "known": known})
    provider_id = None
    if query.provider is not None:
        name = query.provider
        provider_id = await unit.db.read(lambda c: views.resolve(c, name))
    wanted = Wanted(
        provider_id=provider_id,
        kind=query.kind,
        accelerator=query.accelerator,
        min_count=query.min_count,
        min_vram=query.min_vram,
        max_price=query.max_price,
    )
    await _freshen(unit, wanted, force=query.refresh)
    return reply(
        await unit.db.read(lambda c: offer_views.page(c, wanted, cursor=query.cursor, limit=query.limit))
    )


async def _freshen(unit: Services, wanted: Wanted, *, force: bool) -> None:
    """Have the loops fetch what is too old, and wait until each has tried.

    One that is being asked already is not asked again, and waited for as long as is left of the time.
    """
    known = await unit.db.read(lambda c: offer_views.freshness(c, wanted, unit.clock.now_us()))
    ids = [f.provider_id for f in known if force or f.stale]
    if not ids:
        return

    def touch(tx: Tx) -> dict[str, int]:
        since: dict[str, int] = {}
        for provider_id in ids:
            note = passes.row(tx.connection, f"offers/{provider_id}")
            asked_us = None if note is None or force else note.due_us
            if asked_us is None or asked_us > tx.now_us:
                tx.touch(f"offers/{provider_id}")
                asked_us = tx.now_us
            since[provider_id] = asked_us
        return since

    since = await unit.db.write(touch)
    now_us = unit.clock.now_us()
    longest_us = max(max(since.values()) + FRESH_US - now_us, ONCE_MORE_US)
    until_s = unit.clock.monotonic_s() + longest_us / SECOND_US
    while since and unit.clock.monotonic_s() < until_s:
        await asyncio.sleep(LOOK_S)
        for provider_id, asked_us in list(since.items()):
            note = await unit.db.read(lambda c, key=f"offers/{provider_id}": passes.row(c, key))
            if note is not None and note.decided_us is not None and note.decided_us >= asked_us:
                del since[provider_id]


ROUTES = (
    list_provider_kinds,
    list_providers,
    create_provider,
    get_provider,
    replace_provider,
    delete_provider,
    list_offers,
)
