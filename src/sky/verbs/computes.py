"""Computes as they are asked for: create, resize, freeze a generation, hold, delete.

Decides: what an ask writes. Never: buys or ends a machine; the loops do what the rows now say.
Follows: the answer can go out as soon as the transaction is committed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sky.domain import compute as c
from sky.domain import node as n
from sky.domain.errors import LeaseHeld, NameTaken, NotFound, ReleasePending
from sky.domain.provider import Rules
from sky.kit import codec, ids
from sky.store.rows import computes
from sky.store.tx import Tx
from sky.verbs import attempts, lookup
from sky.verbs.lookup import IfMatch
from sky.verbs.spec_rules import check_bounds, check_spec, invalid
from sky.wire import v1


def create(tx: Tx, body: v1.ComputeCreate, rules: Rules, *, owner: str | None = None) -> str:
    """Ask for a compute; returns its id. ``owner`` is an opaque key of whatever asked from inside."""
    check_spec(tx, body.spec, rules)
    if body.name is not None:
        _check_name(tx, body.name)
    compute_id = ids.new("compute")
    spec = msgspec.to_builtins(body.spec)
    row = {
        "id": compute_id,
        "name": body.name,
        "state": c.REQUESTED,
        "version": 1,
        "revision": 1,
        "spec": spec,
        "generation": 1,
        "observed_generation": 0,
        "target_nodes": body.spec.nodes.desired,
        "owner": owner,
        "created_us": tx.now_us,
    }
    tx.add("computes", [row], event="compute.created")
    _freeze(tx, compute_id, 1, spec)
    return compute_id


def resize(tx: Tx, ref: str, body: v1.ComputeSpecPatch, if_match: IfMatch) -> str:
    """Ask for another number of nodes; returns the compute's id."""
    row = lookup.accepting_compute(tx, ref)
    lookup.expect(row, if_match, f"compute {ref}")
    check_bounds(body.nodes, "nodes")
    spec = {**row["spec"], "nodes": msgspec.to_builtins(body.nodes)}
    tx.apply(c.ComputeResized(row["id"], spec))
    tx.apply(c.ComputeScaled(row["id"], body.nodes.desired, tx.now_us))
    return row["id"]


def delete(tx: Tx, ref: str, if_match: IfMatch) -> str:
    """Ask for a compute's end; returns its id. Asked again, it changes nothing."""
    row = lookup.compute(tx, ref)
    if row["state"] in (c.DELETING, c.DELETED):
        return row["id"]
    lookup.expect(row, if_match, f"compute {ref}")
    tx.apply(c.ComputeDeleting(row["id"], tx.now_us))
    return row["id"]


def create_generation(tx: Tx, ref: str, body: v1.GenerationCreate, if_match: IfMatch, rules: Rules) -> int:
    """Freeze a definition: the present one, or that of an earlier generation; returns its number."""
    row = lookup.accepting_compute(tx, ref)
    lookup.expect(row, if_match, f"compute {ref}")
    spec: dict[str, Any] = row["spec"]
    if body.source is not None:
        found = computes.generation_spec(tx.connection, row["id"], body.source)
        if found is None:
            msg = f"compute {ref} has no generation {body.source}; it has 1 to {row['generation']}"
            raise NotFound(msg, details={"generation": body.source})
        spec = dict(found)
        check_spec(tx, msgspec.convert(spec, v1.ComputeSpec), rules)
    _settle_work(tx, row["id"], force=body.force)
    number = row["generation"] + 1
    tx.apply(c.GenerationCreated(row["id"], number, spec))
    _freeze(tx, row["id"], number, spec)
    return number


def claim_lease(tx: Tx, ref: str, body: v1.LeaseClaim) -> str:
    """Hold a compute, or go on holding it; returns its id. Compare and set: one holder at a time."""
    row = lookup.accepting_compute(tx, ref)
    holder, expires = row["lease_owner"], row["lease_expires_us"]
    lapsed = expires is None or expires <= tx.now_us
    until = tx.now_us + body.ttl_seconds * 1_000_000
    if holder is not None and holder != body.owner and not lapsed:
        msg = f"compute {ref} is held by {holder!r}; try again when its lease has lapsed or was released"
        raise LeaseHeld(msg, details={"owner": holder})
    if holder == body.owner:
        tx.apply(c.LeaseRenewed(row["id"], until))
    elif holder is None:
        tx.apply(c.LeaseClaimed(row["id"], body.owner, until))
    else:
        tx.apply(c.ComputeAdopted(row["id"], body.owner, until))
    return row["id"]


def release_lease(tx: Tx, ref: str, owner: str | None = None) -> None:
    """Let go of a compute. With an ``owner``, only if it is the holder."""
    row = lookup.compute(tx, ref)
    if row["lease_owner"] is None or row["state"] == c.DELETED:
        return
    if owner is not None and row["lease_owner"] != owner:
        msg = f"compute {ref} is held by {row['lease_owner']!r}, not by {owner!r}"
        raise LeaseHeld(msg, details={"owner": row["lease_owner"]})
    tx.apply(c.LeaseReleased(row["id"]))


def delete_node(tx: Tx, ref: str, node_id: str) -> str:
    """Give one machine back; the compute gets another in its place while it wants that many."""
    compute = lookup.compute(tx, ref)
    row = lookup.node(tx, compute["id"], node_id)
    if row["state"] in n.WANTED | {n.LOST}:
        tx.apply(n.NodeDeleting(node_id, tx.now_us))
    return node_id


def _check_name(tx: Tx, name: str) -> None:
    if ids.is_id(name):
        raise invalid("name", name, "a name that does not look like an id")
    taken = computes.live_named(tx.connection, name)
    if taken is None:
        return
    if taken["state"] == c.DELETING:
        msg = (
            f"the compute that had the name {name!r} ({taken['id']}) still gives its machines back; try again"
        )
        raise ReleasePending(msg, details={"name": name, "compute": taken["id"]})
    msg = f"the name {name!r} is taken by {taken['id']}; attach to it, delete it, or choose another name"
    raise NameTaken(msg, details={"name": name, "compute": taken["id"]})


def _freeze(tx: Tx, compute_id: str, number: int, spec: dict[str, Any]) -> None:
    computes.freeze(tx, compute_id, number, spec, codec.sha256_hex(codec.canonical(spec)))


def _settle_work(tx: Tx, compute_id: str, *, force: bool) -> None:
    active = computes.at_nodes(tx.connection, compute_id)
    if not active:
        return
    if not force:
        msg = (
            f"{len(active)} executions are at nodes of compute {compute_id}, which are to be replaced; "
            "wait for them, cancel them, or send force: true (they become indeterminate)"
        )
        raise ReleasePending(msg, details={"executions": len(active)})
    message = "a new generation was forced while it was at a node"
    attempts.end_indeterminate(tx, active, message)
