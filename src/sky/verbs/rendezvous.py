"""Where a client and a node meet for one interactive session.

Decides: the row by which a node's agent finds the daemon that serves the client. Never: carries bytes.
Follows: the agent may be connected to another daemon; the row names the one to dial.
"""

from __future__ import annotations

from sky.kit import ids
from sky.store.rows import rendezvous
from sky.store.tx import Tx

KEPT_US = 60_000_000
"""After this long, a meeting that did not happen is forgotten."""


def begin(tx: Tx, node_id: str, url: str) -> str:
    """Wait for a node's agent at ``url``; returns the id of the meeting."""
    rendezvous.forget_before(tx, tx.now_us - KEPT_US)
    rendezvous_id = ids.new("rendezvous")
    rendezvous.add(tx, rendezvous_id, node_id, url)
    tx.signal(f"mail/{node_id}")
    return rendezvous_id


def take(tx: Tx, rendezvous_id: str, node_id: str) -> bool:
    """The agent of ``node_id`` has come; False when nobody waits for it there."""
    return rendezvous.remove(tx, rendezvous_id, node_id)


def close(tx: Tx, rendezvous_id: str) -> None:
    """Nobody waits there any more."""
    rendezvous.remove(tx, rendezvous_id)
