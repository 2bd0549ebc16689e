"""Computes: ask for one, change how many nodes it has, hold it, give it back.

Decides: nothing; one verb or one read per operation. Never: waits for a machine.
Follows: an answer is what is written; what becomes of it is told by the events.
"""

from __future__ import annotations

from typing import Annotated

from litestar.response.base import ASGIResponse
from msgspec import Meta

from sky.api.operation import (
    Ask,
    Header,
    Limit,
    Ordinal,
    accepted,
    made,
    nothing,
    operation,
    reply,
)
from sky.api.reading import Query
from sky.api.v1.cursors import ComputeCursor, GenerationCursor
from sky.domain.errors import (
    CapabilityMismatch,
    ComputeNotAccepting,
    ComputeNotResizable,
    IdempotencyConflict,
    LeaseHeld,
    NameTaken,
    NotFound,
    ReleasePending,
    RevisionConflict,
    SecretInDefinition,
    UnsupportedPlugin,
    UnsupportedProvider,
)
from sky.store.tx import Tx
from sky.store.views import computes as views
from sky.store.views.paging import DEFAULT_ITEMS
from sky.verbs import computes as verbs
from sky.wire import v1

TAG = "Computes"
ETAG = Header("ETag", "The revision of what was asked for, to be sent as If-Match with a change.")
LOCATION = Header("Location", "Where it is found.")


class ComputeFilter(Query, frozen=True):
    """Which computes are wanted."""

    cursor: ComputeCursor | None = None
    limit: Limit = DEFAULT_ITEMS
    state: (
        Annotated[v1.ComputeState, Meta(description="Only those in this state; deleted ones only so.")] | None
    ) = None
    owned: (
        Annotated[bool, Meta(description="Only those that somebody holds, or that nobody does.")] | None
    ) = None


class GenerationFilter(Query, frozen=True):
    """Which part of the list is wanted."""

    cursor: GenerationCursor | None = None
    limit: Limit | None = None


class LeaseRelease(Query, frozen=True):
    """Who lets go."""

    owner: Annotated[str, Meta(max_length=256, description="Let go only if this is who holds it.")] | None = (
        None
    )


def etag(compute: v1.Compute | v1.Node) -> str:
    """The revision as an entity tag."""
    return f'"{compute.revision}"'


@operation("GET", "/v1/computes", tag=TAG, answers=v1.ComputePage, errors=[NotFound])
async def list_computes(ask: Ask, query: ComputeFilter) -> ASGIResponse:
    """List computes, newest first.

    Deleted ones are left out unless they are asked for with ``state=deleted``.
    """
    now_us = ask.unit.clock.now_us()
    return reply(
        await ask.unit.db.read(
            lambda c: views.page(
                c, now_us, cursor=query.cursor, limit=query.limit, state=query.state, owned=query.owned
            )
        )
    )


@operation(
    "POST",
    "/v1/computes",
    tag=TAG,
    answers=v1.Compute,
    status=201,
    also=[200],
    keyed=True,
    sets=[ETAG, LOCATION],
    errors=[
        IdempotencyConflict,
        NameTaken,
        ReleasePending,
        UnsupportedProvider,
        UnsupportedPlugin,
        SecretInDefinition,
        CapabilityMismatch,
    ],
)
async def create_compute(ask: Ask, body: v1.ComputeCreate) -> ASGIResponse:
    """Ask for a compute.

    The answer comes at once, before anything is bought; follow ``GET /v1/events`` to see it become ready.
    """
    rules = ask.unit.rules
    compute, replayed = await ask.once(
        lambda tx: verbs.create(tx, body, rules),
        lambda tx, compute_id: views.get(tx.connection, compute_id, tx.now_us),
        body,
    )
    return made(compute, f"/v1/computes/{compute.id}", replayed, etag=etag(compute))


@operation("GET", "/v1/computes/{compute_id}", tag=TAG, answers=v1.Compute, sets=[ETAG], errors=[NotFound])
async def get_compute(ask: Ask, compute_id: str) -> ASGIResponse:
    """Show a compute: what was asked for, and what is there.

    Price and cost are sums over its nodes, made as they are read.
    """
    now_us = ask.unit.clock.now_us()
    compute = await ask.unit.db.read(lambda c: views.get(c, compute_id, now_us))
    return reply(compute, etag=etag(compute))


@operation(
    "PATCH",
    "/v1/computes/{compute_id}",
    tag=TAG,
    answers=v1.Compute,
    guarded=True,
    sets=[ETAG],
    errors=[
        NotFound,
        RevisionConflict,
        ComputeNotAccepting,
        ComputeNotResizable,
        UnsupportedProvider,
        UnsupportedPlugin,
        SecretInDefinition,
        CapabilityMismatch,
    ],
)
async def change_compute(ask: Ask, compute_id: str, body: v1.ComputeSpecPatch) -> ASGIResponse:
    """Change how many nodes a compute has, and what else of it is wanted.

    ``nodes`` changes in place. Anything else is written down, shown in ``spec`` and in ``status.drift``, and
    applied when a generation is created.
    """
    rules = ask.unit.rules

    def write(tx: Tx) -> v1.Compute:
        found = verbs.change(tx, compute_id, body, ask.revision, rules)
        return views.get(tx.connection, found, tx.now_us)

    compute = await ask.unit.db.write(write)
    return reply(compute, etag=etag(compute))


@operation(
    "DELETE",
    "/v1/computes/{compute_id}",
    tag=TAG,
    answers=v1.Compute,
    status=202,
    keyed=True,
    guarded=True,
    sets=[ETAG],
    errors=[NotFound, IdempotencyConflict, RevisionConflict],
)
async def delete_compute(ask: Ask, compute_id: str) -> ASGIResponse:
    """Ask for a compute's end.

    Its machines are given back; it is ``deleted`` once the provider says that all of them are gone.
    """
    compute, replayed = await ask.once(
        lambda tx: verbs.delete(tx, compute_id, ask.revision),
        lambda tx, found: views.get(tx.connection, found, tx.now_us),
        ask.revision,
    )
    return accepted(compute, replayed, etag=etag(compute))


# ── generations ─────────────────────────────────────────────────────────────────────────────────


@operation(
    "GET", "/v1/computes/{compute_id}/generations", tag=TAG, answers=v1.GenerationPage, errors=[NotFound]
)
async def list_generations(ask: Ask, compute_id: str, query: GenerationFilter) -> ASGIResponse:
    """List the definitions a compute has had, newest first."""
    return reply(
        await ask.unit.db.read(
            lambda c: views.generation_page(c, compute_id, cursor=query.cursor, limit=query.limit)
        )
    )


@operation(
    "POST",
    "/v1/computes/{compute_id}/generations",
    tag=TAG,
    answers=v1.Generation,
    status=202,
    keyed=True,
    guarded=True,
    sets=[LOCATION],
    errors=[
        NotFound,
        IdempotencyConflict,
        RevisionConflict,
        ReleasePending,
        ComputeNotAccepting,
        CapabilityMismatch,
    ],
)
async def create_generation(ask: Ask, compute_id: str, body: v1.GenerationCreate) -> ASGIResponse:
    """Freeze a definition, what is drift included, and replace the nodes by ones made to it.

    ``source`` names an earlier generation to go back to; nodes that are still as it says stay. One node is
    replaced first, and the others once it is ready. Active work refuses it, unless ``force`` is set: then
    what is not over becomes indeterminate.
    """
    rules = ask.unit.rules
    generation, replayed = await ask.once(
        lambda tx: verbs.create_generation(tx, compute_id, body, ask.revision, rules),
        lambda tx, number: views.generation(tx.connection, compute_id, number),
        [body, ask.revision],
    )
    where = f"/v1/computes/{compute_id}/generations/{generation.number}"
    return accepted(generation, replayed, location=where)


@operation(
    "GET", "/v1/computes/{compute_id}/generations/{number}", tag=TAG, answers=v1.Generation, errors=[NotFound]
)
async def get_generation(ask: Ask, compute_id: str, number: Ordinal) -> ASGIResponse:
    """Show one definition of a compute."""
    return reply(await ask.unit.db.read(lambda c: views.generation(c, compute_id, number)))


# ── lease ───────────────────────────────────────────────────────────────────────────────────────


@operation(
    "PUT",
    "/v1/computes/{compute_id}/lease",
    tag=TAG,
    answers=v1.Lease,
    errors=[NotFound, LeaseHeld, ComputeNotAccepting],
)
async def claim_lease(ask: Ask, compute_id: str, body: v1.LeaseClaim) -> ASGIResponse:
    """Hold a compute, or go on holding it.

    One holder at a time. With ``delete_on_exit``, a compute is deleted when its lease lapses, and when nobody
    has claimed it a minute after it was created or let go of.
    """

    def write(tx: Tx) -> v1.Lease:
        return views.lease(tx.connection, verbs.claim_lease(tx, compute_id, body))

    return reply(await ask.unit.db.write(write))


@operation("DELETE", "/v1/computes/{compute_id}/lease", tag=TAG, status=204, errors=[NotFound, LeaseHeld])
async def release_lease(ask: Ask, compute_id: str, query: LeaseRelease) -> ASGIResponse:
    """Let go of a compute. Nothing happens when nobody holds it."""
    await ask.unit.db.write(lambda tx: verbs.release_lease(tx, compute_id, query.owner))
    return nothing()


ROUTES = (
    list_computes,
    create_compute,
    get_compute,
    change_compute,
    delete_compute,
    list_generations,
    create_generation,
    get_generation,
    claim_lease,
    release_lease,
)
