"""Who an agent is: the node that it names, if it brings that node's token.

Decides: whether an agent may speak for its node. Never: asks who owns the other end of the socket; agents
run on other machines. Follows: a node that is over is refused for good (403), and its agent ends itself.
"""

from __future__ import annotations

import hmac
from typing import Any

from litestar.connection import ASGIConnection

from sky.api.unit import Services
from sky.domain.errors import Forbidden, Unauthorized
from sky.kit import codec
from sky.store.views import nodes
from sky.store.views.nodes import AgentRow

Connection = ASGIConnection[Any, Any, Any, Any]


def unit_of(connection: Connection) -> Services:
    """The parts of this daemon."""
    return connection.app.state["unit"]


async def agent_of(connection: Connection) -> tuple[str, AgentRow]:
    """The node that the agent speaks for. Raises Unauthorized or, when the node is over, Forbidden."""
    headers = dict(connection.scope["headers"])
    node_id = headers.get(b"x-sky-node", b"").decode("latin-1")
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    row = await unit_of(connection).db.read(lambda c: nodes.agent(c, node_id)) if node_id else None
    known = row.token_sha256 if row is not None else ""
    fits = hmac.compare_digest(codec.sha256_hex(token.strip()), known)
    if row is None or not fits or scheme.lower() != b"bearer":
        raise Unauthorized("the token is not that of the node in X-Sky-Node")
    if row.final:
        msg = f"node {node_id} is over; its agent is to end"
        raise Forbidden(msg, details={"node": node_id})
    return node_id, row
