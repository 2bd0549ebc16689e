"""Finds what a request names, by id or by name, inside its own transaction.

Decides: which row a reference means, and how a missing one is refused. Never: writes.
Follows: every verb refuses a missing row with the same words.
"""

from __future__ import annotations

from sky.domain.compute import ACCEPTING
from sky.domain.errors import ComputeNotAccepting, NotFound, RevisionConflict
from sky.store.rows import computes, nodes, providers, tasks
from sky.store.sql import Row
from sky.store.tx import Tx

IfMatch = int | None
"""The revision that a client expects; None matches any."""


def compute(tx: Tx, ref: str) -> Row:
    """The compute with that id, or the live one with that name."""
    row = computes.find(tx.connection, ref)
    if row is None:
        msg = f"no compute has the id or name {ref!r}; list them with GET /v1/computes"
        raise NotFound(msg, details={"compute": ref})
    return row


def accepting_compute(tx: Tx, ref: str) -> Row:
    """The compute of that reference, if it still takes work and changes."""
    row = compute(tx, ref)
    if row["state"] not in ACCEPTING:
        msg = f"compute {ref} is {row['state']} and takes no more work; create another"
        raise ComputeNotAccepting(msg, details={"compute": row["id"], "state": row["state"]})
    return row


def node(tx: Tx, compute_id: str, node_id: str) -> Row:
    """A node of that compute."""
    row = nodes.find(tx.connection, compute_id, node_id)
    if row is None:
        msg = f"compute {compute_id} has no node {node_id!r}; see GET /v1/computes/{compute_id}/nodes"
        raise NotFound(msg, details={"node": node_id})
    return row


def task(tx: Tx, task_id: str) -> Row:
    """The task with that id."""
    row = tasks.find(tx.connection, task_id)
    if row is None:
        msg = f"no task has the id {task_id!r}; list them with GET /v1/tasks"
        raise NotFound(msg, details={"task": task_id})
    return row


def provider(tx: Tx, ref: str) -> Row:
    """The provider with that id or name."""
    row = providers.find(tx.connection, ref)
    if row is None:
        msg = f"no provider has the id or name {ref!r}; list them with GET /v1/providers"
        raise NotFound(msg, details={"provider": ref})
    return row


def expect(row: Row, if_match: IfMatch, what: str) -> None:
    """Refuse a change that was meant for another revision."""
    if if_match is not None and row["revision"] != if_match:
        msg = f"{what} is at revision {row['revision']}, not {if_match}; read it again and retry"
        raise RevisionConflict(msg, details={"if_match": str(if_match), "revision": row["revision"]})
