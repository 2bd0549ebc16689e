"""Meetings of a client and a node, as rows.

Decides: nothing. Never: carries bytes.
Follows: a node is told of a meeting once; one that nobody came to is forgotten.
"""

from __future__ import annotations

import sqlalchemy as sa

from sky.store.prepared import prepared
from sky.store.schema import rendezvous
from sky.store.tx import Tx


def add(tx: Tx, rendezvous_id: str, node_id: str, url: str) -> None:
    """A client waits for the node at ``url``."""
    row = {"id": rendezvous_id, "node_id": node_id, "url": url, "taken": False, "created_us": tx.now_us}
    tx.connection.execute(sa.insert(rendezvous), row)


def open_for(tx: Tx, node_id: str) -> list[tuple[str, str]]:
    """(id, url) of the meetings a node has not been told of; from now on it has."""
    found = [(row["id"], row["url"]) for row in _OPEN.all(tx.connection, {"b_node": node_id})]
    if found:
        told = [rendezvous_id for rendezvous_id, _ in found]
        tx.connection.execute(sa.update(rendezvous).where(rendezvous.c.id.in_(told)).values(taken=True))
    return found


def remove(tx: Tx, rendezvous_id: str, node_id: str | None = None) -> bool:
    """Forget a meeting (of that node); False when there was none."""
    statement = sa.delete(rendezvous).where(rendezvous.c.id == rendezvous_id)
    if node_id is not None:
        statement = statement.where(rendezvous.c.node_id == node_id)
    return tx.connection.execute(statement).rowcount == 1


def forget_before(tx: Tx, before_us: int) -> None:
    """Forget meetings that did not happen."""
    tx.connection.execute(sa.delete(rendezvous).where(rendezvous.c.created_us < before_us))


_OPEN = prepared(
    sa.select(rendezvous.c.id, rendezvous.c.url).where(
        rendezvous.c.node_id == sa.bindparam("b_node"), rendezvous.c.taken.is_(False)
    )
)
