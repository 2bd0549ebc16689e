"""Which loops should look again after which fact, and who is knocked on in this process.

Decides: keys ``loop/id`` from facts; a key that begins with ``~`` is a knock (``kit/signals``) and is kept
nowhere. Never: carries a payload. Follows: losing a wake costs latency and nothing else, since what is due
is also noted in the transaction of the fact. The only place that reads an ``owner``.
"""

from __future__ import annotations

from collections.abc import Iterator

from sky.domain import compute as c
from sky.domain import job as j
from sky.domain import node as n
from sky.domain import request as r
from sky.domain import task as t
from sky.store.tx import Born, Moved

_QUIET = (c.LeaseRenewed,)
_FREES_WORK = (n.NodeReady, n.NodeDrainAborted, n.NodeReconnected, n.NodeConnected)
_NOTES = (n.NodeNoted, n.NodeDeletionFailed)
"""Said by the node's own pass, which knows when it wants to look again."""
_ENDS_WORK = (n.NodeLost, n.NodeDeleting, n.NodeBroken, n.NodeDeleted)
_ENDED = (
    t.ExecutionSucceeded,
    t.ExecutionFailed,
    t.ExecutionCancelled,
    t.ExecutionTimedOut,
    t.ExecutionIndeterminate,
)


def keys(about: Born | Moved) -> Iterator[str]:
    """Who is concerned by a birth or a fact."""
    if isinstance(about, Born):
        yield from _born(about)
    elif about.noun == "computes":
        yield from _compute(about)
    elif about.noun == "nodes":
        yield from _node(about)
    elif about.noun == "executions":
        yield from _execution(about)
    elif about.noun == "tasks":
        yield from _task(about)
    elif about.noun == "jobs":
        yield from _job(about)
    elif about.noun == "requests":
        yield from _request(about)
    elif about.noun == "clusters":
        yield from _cluster(about.row["id"])
    elif about.noun == "cluster_jobs":
        yield from _cluster(about.row["cluster_id"])


def _born(about: Born) -> Iterator[str]:
    row = about.row
    if about.noun == "cluster_jobs":
        yield f"clusters/{row['cluster_id']}"
    if about.noun in ("computes", "nodes", "jobs", "clusters"):
        yield f"{about.noun}/{row['id']}"
    if about.noun == "requests" and row["state"] not in r.DONE:
        yield f"requests/{row['id']}"
    if about.noun == "nodes":
        yield f"~compute/{row['compute_id']}"
    if about.noun == "executions":
        yield f"dispatch/{row['compute_id']}"
        if row["wanted_rank"] is not None:  # it may be a rank that is there no more
            yield f"attempts/{row['compute_id']}"


def _compute(about: Moved) -> Iterator[str]:
    row_id = about.row["id"]
    if not isinstance(about.fact, _QUIET):
        yield f"computes/{row_id}"
        yield f"~compute/{row_id}"
    if isinstance(about.fact, c.ComputeDeleting | c.ComputeFailed | c.ComputeResized):
        yield f"attempts/{row_id}"
    if about.row.get("owner"):
        yield about.row["owner"]


def _node(about: Moved) -> Iterator[str]:
    node_id, compute_id = about.row["id"], about.row["compute_id"]
    if isinstance(about.fact, _NOTES):
        yield f"computes/{compute_id}"
        yield f"~compute/{compute_id}"
        return
    yield f"nodes/{node_id}"
    yield f"computes/{compute_id}"
    yield f"~compute/{compute_id}"
    yield f"~mail/{node_id}"
    if isinstance(about.fact, n.NodeReady):
        yield "watch/nodes"
    if isinstance(about.fact, _FREES_WORK):
        yield f"dispatch/{compute_id}"
    if isinstance(about.fact, _ENDS_WORK):
        yield f"attempts/{compute_id}"


def _execution(about: Moved) -> Iterator[str]:
    if isinstance(about.fact, t.ExecutionAssigned | t.ExecutionCancelRequested):
        yield f"~mail/{about.row['node_id']}"
    if isinstance(about.fact, t.ExecutionCancelled):  # its machine may be waiting for that to be given back
        yield f"computes/{about.row['compute_id']}"
    if isinstance(about.fact, _ENDED):
        yield f"dispatch/{about.row['compute_id']}"


def _request(about: Moved) -> Iterator[str]:
    row_id = about.row["id"]
    yield f"~request/{row_id}"
    if about.row["state"] not in r.DONE:
        yield f"requests/{row_id}"


def _cluster(cluster_id: str) -> Iterator[str]:
    yield f"clusters/{cluster_id}"
    yield f"~cluster/{cluster_id}"


def _job(about: Moved) -> Iterator[str]:
    yield f"jobs/{about.row['id']}"
    yield f"~job/{about.row['id']}"
    if about.row["state"] in j.TERMINAL:
        yield f"retention/{about.row['id']}"


def _task(about: Moved) -> Iterator[str]:
    row = about.row
    if row["owner"] and row["state"] not in t.DONE:
        yield row["owner"]
    if row["state"] in t.DONE:
        yield f"~task/{row['id']}"
        yield f"~items/{row['id']}"
        if row["correlation_id"] is not None:
            yield f"~corr/{row['correlation_id']}"
        if row["owner"]:
            yield row["owner"]
