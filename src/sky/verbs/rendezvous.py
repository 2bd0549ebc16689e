"""Where a client and a node meet for one interactive session.

Decides: the row by which a node's agent finds the daemon that serves the client. Never: carries bytes.
Follows: the agent may be connected to another daemon; the row names the one to dial.
"""

from __future__ import annotations

import sqlalchemy as sa

from sky.kit import ids
from sky.store.schema import rendezvous
from sky.store.tx import Tx

KEPT_US = 60_000_000
"""After this long, a meeting that did not happen is forgotten."""


def open(tx: Tx, node_id: str, url: str) -> str:
    """Wait for a node's agent at ``url``; returns the id of the meeting."""
    tx.connection.execute(sa.delete(rendezvous).where(rendezvous.c.created_us < tx.now_us - KEPT_US))
    rendezvous_id = ids.new("rendezvous")
    row = {"id": rendezvous_id, "node_id": node_id, "url": url, "taken": False, "created_us": tx.now_us}
    tx.connection.execute(sa.insert(rendezvous), row)
    tx.signal(f"mail/{node_id}")
    return rendezvous_id


def take(tx: Tx, rendezvous_id: str, node_id: str) -> bool:
    """The agent of ``node_id`` has come; False when nobody waits for it there."""
    result = tx.connection.execute(
        sa.delete(rendezvous).where(rendezvous.c.id == rendezvous_id, rendezvous.c.node_id == node_id)
    )
    return result.rowcount == 1


def close(tx: Tx, rendezvous_id: str) -> None:
    """Nobody waits there any more."""
    tx.connection.execute(sa.delete(rendezvous).where(rendezvous.c.id == rendezvous_id))
