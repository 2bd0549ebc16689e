"""Nodes: what a compute's machines are and cost, and giving one back.

Decides: nothing. Never: reaches a machine (``machines`` does).
Follows: a node that is given back is replaced while its compute wants that many.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar.response.base import ASGIResponse
from msgspec import Meta

from sky.api.operation import Ask, Limit, Ordinal, accepted, operation, reply
from sky.api.reading import Query
from sky.api.v1.computes import ETAG, etag
from sky.api.v1.cursors import NodeCursor
from sky.domain.errors import IdempotencyConflict, NotFound
from sky.store.views import nodes as views
from sky.verbs import computes as verbs
from sky.wire import v1

TAG = "Nodes"


class NodeDeletion(Query, frozen=True):
    """How it is to end."""

    force: Annotated[bool, Meta(description="Now, whatever it has at work: that becomes indeterminate.")] = (
        False
    )


class NodeFilter(Query, frozen=True):
    """Which nodes are wanted."""

    include_terminal: Annotated[bool, Meta(description="Also those that are over.")] = True
    generation: Ordinal | None = None
    cursor: NodeCursor | None = None
    limit: Limit | None = None


@operation("GET", "/v1/computes/{compute_id}/nodes", tag=TAG, answers=v1.NodePage, errors=[NotFound])
async def list_nodes(ask: Ask, compute_id: str, query: NodeFilter) -> ASGIResponse:
    """List a compute's nodes, by rank."""
    page = await ask.unit.db.read(
        lambda c: views.page(
            c,
            compute_id,
            include_terminal=query.include_terminal,
            generation=query.generation,
            cursor=query.cursor,
            limit=query.limit,
        )
    )
    return reply(msgspec.structs.replace(page, items=tuple(_with_gauges(ask, node) for node in page.items)))


def _with_gauges(ask: Ask, node: v1.Node) -> v1.Node:
    return ask.unit.gauges.on(node, ask.unit.clock.monotonic_s())


@operation(
    "GET",
    "/v1/computes/{compute_id}/nodes/{node_id}",
    tag=TAG,
    answers=v1.Node,
    sets=[ETAG],
    errors=[NotFound],
)
async def get_node(ask: Ask, compute_id: str, node_id: str) -> ASGIResponse:
    """Show one node."""
    node = await ask.unit.db.read(lambda c: views.get(c, compute_id, node_id))
    return reply(_with_gauges(ask, node), etag=etag(node))


@operation(
    "DELETE",
    "/v1/computes/{compute_id}/nodes/{node_id}",
    tag=TAG,
    answers=v1.Node,
    status=202,
    keyed=True,
    sets=[ETAG],
    errors=[NotFound, IdempotencyConflict],
)
async def delete_node(ask: Ask, compute_id: str, node_id: str, query: NodeDeletion) -> ASGIResponse:
    """Give one machine back. The compute gets another in its place while it wants that many.

    A node that has work takes no more, finishes it, and then goes.
    """
    node, replayed = await ask.once(
        lambda tx: verbs.delete_node(tx, compute_id, node_id, force=query.force),
        lambda tx, found: views.get(tx.connection, compute_id, found),
        query.force,
    )
    return accepted(node, replayed, etag=etag(node))


ROUTES = (list_nodes, get_node, delete_node)
