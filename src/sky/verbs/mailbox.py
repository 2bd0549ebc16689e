"""What a node's agent is to be told: work, cancels, credit, meetings.

Decides: what is handed out now, and that handing out is written down first. Never: assigns.
Follows: from the commit on, an execution may have begun; what was handed out and is not known to the agent
is handed out again, which its journal makes harmless.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from sky.domain import node as n
from sky.domain import task as t
from sky.store import blobs
from sky.store.rows import computes, nodes, rendezvous, tasks
from sky.store.specs import bounds_of
from sky.store.tx import Tx
from sky.wire import agent
from sky.wire.plugins import COLLECTIVE

HANDED_OUT_MAX = 1_000
PEERS_MAX = 256
"""Nodes of a compute up to which each call is told where the others are; where ranks meet, it always is."""
WORK_ARGUMENT_BYTES_MAX = 16 * 1024 * 1024
"""Of arguments in one message. What is beyond is named by its hash, and fetched: a message that is larger
than an agent takes would be refused, and come again, for ever."""
CONTENTS_READ_AT_ONCE = 64


class Mail(Struct, frozen=True):
    """Everything a node has not been told yet."""

    work: tuple[agent.WorkItem, ...] = ()
    cancel: tuple[str, ...] = ()
    credit: tuple[agent.Credit, ...] = ()
    dial: tuple[agent.Dial, ...] = ()
    draining: bool = False
    stop: str | None = None


def mailbox(tx: Tx, node_id: str, known: frozenset[str]) -> Mail:
    """Read a node's mailbox and mark what is handed out. ``known``: executions its agent has already."""
    node = nodes.news(tx.connection, node_id)
    if node is None or node["state"] in n.ENDING | n.FINAL:
        return Mail(stop="this node is being given back")
    rows = tasks.on_node(tx, node_id, HANDED_OUT_MAX)
    new = [r for r in rows if r["state"] == t.ASSIGNED]
    lost = [r for r in rows if r["state"] in t.HANDED_OUT - {t.CANCEL_REQUESTED} and r["id"] not in known]
    tx.apply(*(t.ExecutionDispatched(r["id"]) for r in new))
    begun = dict.fromkeys(r["task_id"] for r in new if r["task_state"] == t.QUEUED)
    tx.apply(*(t.TaskStarted(x) for x in begun))
    return Mail(
        work=_items(tx, node, [*lost, *new]),
        cancel=tuple(r["id"] for r in rows if r["state"] == t.CANCEL_REQUESTED),
        credit=tuple(
            agent.Credit(execution=r["id"], consumed=r["consumed"])
            for r in rows
            if r["dispatch"] == "stream" and r["consumed"] and r["state"] in t.HANDED_OUT
        ),
        dial=tuple(agent.Dial(rendezvous=x, url=url) for x, url in rendezvous.open_for(tx, node_id)),
        draining=node["state"] == n.DRAINING,
    )


def total_of(tx: Tx, compute_id: str) -> int:
    """How many nodes the compute of a node has, for ranks to be counted against."""
    return _total(computes.scale_of(tx.connection, compute_id))


def _total(row: Mapping[str, Any] | None) -> int:
    if row is None:
        return 0
    bounds = bounds_of(row["spec"])
    return bounds.high if bounds.low == bounds.high else row["target_nodes"]


def _items(tx: Tx, node: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> tuple[agent.WorkItem, ...]:
    if not rows:
        return ()
    contents = _contents(tx, list(dict.fromkeys(r["args_sha256"] for r in rows)))
    scale = computes.scale_of(tx.connection, node["compute_id"])
    total = _total(scale)
    meeting = scale is not None and any(one["kind"] in COLLECTIVE for one in scale["spec"]["plugins"])
    told = meeting or total <= PEERS_MAX
    peers = nodes.addresses(tx.connection, node["compute_id"], total) if told else ()
    together = {r["task_id"] for r in rows if r["dispatch"] == "all"} if meeting else ()
    worlds = tasks.worlds(tx.connection, sorted(together)) if together else {}
    items: list[agent.WorkItem] = []
    room = WORK_ARGUMENT_BYTES_MAX
    for r in rows:
        inline = contents.get(r["args_sha256"])
        if inline is not None and len(inline) > room:
            inline = None
        room -= len(inline or b"")
        left = None if r["deadline_us"] is None else max(0.0, (r["deadline_us"] - tx.now_us) / 1_000_000)
        items.append(
            agent.WorkItem(
                execution=r["id"],
                task=r["task_id"],
                ordinal=r["ordinal"],
                function=r["function_sha256"],
                rank=node["rank"],
                total=total,
                args=inline,
                args_sha256=None if inline is not None else r["args_sha256"],
                stream=r["dispatch"] == "stream",
                timeout_s=left,
                peers=peers,
                world=worlds.get(r["task_id"], ()),
            )
        )
    return tuple(items)


def _contents(tx: Tx, hashes: Sequence[str]) -> dict[str, bytes]:
    """Small arguments by their hash, about as many as fit into one message."""
    found: dict[str, bytes] = {}
    for start in range(0, len(hashes), CONTENTS_READ_AT_ONCE):
        found.update(blobs.inline_of(tx.connection, hashes[start : start + CONTENTS_READ_AT_ONCE]))
        if sum(map(len, found.values())) > WORK_ARGUMENT_BYTES_MAX:
            break
    return found
