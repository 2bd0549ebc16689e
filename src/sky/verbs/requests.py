"""Requests as they are submitted and cancelled.

Decides: what a submission writes. Never: does what is asked (the loop of requests does, usually in the same
transaction). Follows: a request that was acknowledged is a row, and answers under its id; one that only reads
is told from a snapshot before it is written down, and is written with its end.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sky.domain import request as r
from sky.domain.request_errors import RequestFailure
from sky.kit import ids
from sky.store import passes
from sky.store.rows import clusters, requests
from sky.store.sql import Row
from sky.store.tx import Tx
from sky.verbs import clusters as cluster_verbs
from sky.verbs import storages
from sky.verbs.request_reads import Told
from sky.wire import requests as wire

ENDING = frozenset({"stop", "down", "cancel"})
"""Requests that are taken even where there is no room for others."""


def submit(tx: Tx, name: str, body: wire.Body, user: str, *, admin: bool = True) -> str:
    """Write a request down; returns its id. ``admin``: all that is stored may be used. Raises NotFound."""
    if not admin:
        storages.ensure_brought(tx, user, body)
    row = _row(name, body, user, r.PENDING, tx.now_us)
    tx.spared = name in ENDING
    tx.add("requests", [row])
    passes.begun(tx, f"requests/{row['id']}")  # so that its loop can take it up in this very transaction
    return row["id"]


def record(tx: Tx, name: str, body: wire.Body, user: str, told: Told) -> dict[str, Any]:
    """Write down a request that only read, with its end; returns its row. No loop has to look at it."""
    row = ended(name, body, user, told, tx.now_us)
    tx.add("requests", [row])
    if told.failure is not None:
        requests.say(tx, row["id"], f"failed: {told.failure.message}")
    return row


def ended(name: str, body: wire.Body, user: str, told: Told, now_us: int) -> dict[str, Any]:
    """The row of a request that only read."""
    failed = told.failure
    return {
        **_row(name, body, user, r.SUCCEEDED if failed is None else r.FAILED, now_us),
        "started_us": None,
        "finished_us": now_us,
        "result": told.result,
        "error": None if failed is None else failed.record(),
    }


def _row(name: str, body: wire.Body, user: str, state: str, now_us: int) -> dict[str, Any]:
    return {
        "id": ids.new("request").removeprefix(ids.PREFIXES["request"]),
        "name": name,
        "state": state,
        "version": 1,
        "owner": user,
        "cluster_name": getattr(body, "cluster_name", None),
        "body": msgspec.to_builtins(body),
        "tries": 0,  # nobody reads it; daemons of the schema before 0006 name it
        "created_us": now_us,
    }


def cancel(tx: Tx, row: Row) -> bool:
    """Cancel a request: what it began ends too, and leaves no machine half-bought. False when it was over."""
    if row["state"] in r.DONE:
        return False
    error = RequestFailure("RequestCancelled", f"request {row['id']} was cancelled").record()
    tx.apply(r.RequestCancelled(row["id"], error, tx.now_us))
    requests.say(tx, row["id"], "cancelled")
    _undo(tx, row)
    return True


def _undo(tx: Tx, row: Row) -> None:
    """Take back what a cancelled launch, exec or start has begun: its job, and the machines of a cluster that
    it made or started, and that nobody else uses. A stop or a down that was begun goes on."""
    if row["cluster_id"] is None or row["name"] not in ("launch", "exec", "start"):
        return
    cluster = clusters.find(tx.connection, row["cluster_id"])
    if cluster is None or cluster["removed_us"] is not None:
        return
    if row["job_number"] is not None:
        job = clusters.job(tx.connection, cluster["id"], row["job_number"])
        if job is not None and job["ended_us"] is None:
            cluster_verbs.cancel_job(tx, job)
    others: list[Any] = [one for one in requests.open_of(tx.connection, cluster["id"]) if one != row["id"]]
    newest = clusters.newest_open(tx.connection, cluster["id"])
    if row["name"] != "exec" and not others and newest is None:
        cluster_verbs.undo_launch(tx, row, cluster)
