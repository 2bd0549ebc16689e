"""Computes as they are asked for: create, resize, want otherwise, freeze a generation, hold, delete.

Decides: what an ask writes, and what of a changed spec waits for a generation: all but ``nodes``.
Never: buys or ends a machine; the loops do what the rows now say.
Follows: the answer can go out as soon as the transaction is committed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import msgspec

from sky.domain import compute as c
from sky.domain import node as n
from sky.domain.errors import ComputeNotResizable, LeaseHeld, NameTaken, ReleasePending
from sky.domain.provider import Rules
from sky.kit import codec, ids
from sky.store.rows import computes, nodes
from sky.store.sql import Row
from sky.store.tx import Tx
from sky.store.views.computes import no_generation
from sky.verbs import attempts, lookup
from sky.verbs.lookup import IfMatch
from sky.verbs.spec_rules import check_bounds, check_spec, invalid
from sky.wire import v1
from sky.wire.plugins import KINDS


def create(
    tx: Tx,
    body: v1.ComputeCreate,
    rules: Rules,
    *,
    owner: str | None = None,
    narrow: Sequence[Mapping[str, Any]] | None = None,
) -> str:
    """Ask for a compute; returns its id. ``owner`` is an opaque key of whatever asked from inside; ``narrow``
    is what it asks of each alternative beyond the spec, by the names of ``Alternative``."""
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
        "narrow": None if narrow is None else [dict(more) for more in narrow],
    }
    tx.add("computes", [row], event="compute.created")
    _freeze(tx, compute_id, 1, spec)
    return compute_id


def change(tx: Tx, ref: str, body: v1.ComputeSpecPatch, if_match: IfMatch, rules: Rules) -> str:
    """Ask for another number of nodes, and write down what else is wanted otherwise; returns its id."""
    row = lookup.accepting_compute(tx, ref)
    lookup.expect(row, if_match, f"compute {ref}")
    said: dict[str, Any] = codec.loads(codec.dumps(body))
    wanted = {name: value for name, value in said.items() if value is not None}
    if not wanted:
        raise invalid("nodes", None, "how many nodes are wanted, or another field of the spec")
    bounds = wanted.pop("nodes", row["spec"]["nodes"])
    if body.nodes is not None:
        _check_its_own(row, ref)
        check_bounds(body.nodes, "nodes")
        if bounds != row["spec"]["nodes"]:
            _check_resizable(tx, row)
        tx.apply(c.ComputeResized(row["id"], {**row["spec"], "nodes": bounds}))
        tx.apply(c.ComputeScaled(row["id"], body.nodes.desired, tx.now_us))
    if wanted:
        _drift(tx, row, bounds, wanted, rules)
    return row["id"]


def _check_its_own(row: Row, ref: str) -> None:
    """Whatever a compute was made for would undo another number of nodes."""
    if row["owner"] is not None:
        msg = (
            f"compute {ref} was made for {row['owner']}, which says how many nodes it has; a cluster is told "
            "otherwise by a launch with resize (`sky launch --resize`)"
        )
        raise ComputeNotResizable(msg, details={"compute": row["id"], "owner": row["owner"]})


def _check_resizable(tx: Tx, row: Row) -> None:
    """Ranks that wait for each other were told how many they are: another number would leave some waiting."""
    joined = [plugin["kind"] for plugin in row["spec"]["plugins"] if KINDS[plugin["kind"]].collective]
    if joined and computes.broadcasts(tx.connection, row["id"]):
        msg = (
            f"the nodes of compute {row['id']} are at work together (plugin {joined[0]!r}), in the number "
            "that began it; wait until it is over, or cancel it, and ask again"
        )
        raise ComputeNotResizable(msg, details={"compute": row["id"], "plugin": joined[0]})


def _drift(tx: Tx, row: Row, bounds: Any, wanted: dict[str, Any], rules: Rules) -> None:
    """Write down what is wanted and not applied: those fields, and what of them differs."""
    spec, pending = row["spec"], cast("dict[str, Any]", row["pending"] or {})
    full: dict[str, Any] = {**spec, "nodes": bounds, **pending, **wanted}
    check_spec(tx, msgspec.convert(full, v1.ComputeSpec), rules)
    pending = {name: full[name] for name in full if name != "nodes" and full[name] != spec[name]}
    drift = [path for name, value in pending.items() for path in _differing(name, spec[name], value)]
    tx.apply(c.ComputeDrifted(row["id"], pending or None, drift or None))


def _differing(name: str, has: Any, wants: Any) -> list[str]:
    if isinstance(has, dict) and isinstance(wants, dict):
        one, other = cast("dict[str, Any]", has), cast("dict[str, Any]", wants)
        return [f"{name}.{key}" for key in other if one.get(key) != other[key]]
    return [name]


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
    spec: dict[str, Any] = {**row["spec"], **(row["pending"] or {})}
    retained: list[str] = []
    if body.source is not None:
        found = computes.generation_spec(tx.connection, row["id"], body.source)
        if found is None:
            raise no_generation(ref, body.source, row["generation"])
        spec = dict(found)
        check_spec(tx, msgspec.convert(spec, v1.ComputeSpec), rules)
        retained = _made_as(tx, row, spec)
    _settle_work(tx, row["id"], retained, force=body.force)
    number = row["generation"] + 1
    tx.apply(c.GenerationCreated(row["id"], number, spec))
    tx.apply(*(n.NodeRetained(node, number) for node in retained))
    _freeze(tx, row["id"], number, spec)
    return number


def _made_as(tx: Tx, row: Row, spec: dict[str, Any]) -> list[str]:
    """The nodes that were made as ``spec`` says: going back to it, they can stay."""
    same: dict[int, bool] = {}
    wanted = nodes.wanted(tx.connection, row["id"])
    for number in {node["generation"] for node in wanted}:
        frozen = computes.generation_spec(tx.connection, row["id"], number) or {}
        same[number] = {**frozen, "nodes": None} == {**spec, "nodes": None}
    return [node["id"] for node in wanted if same[node["generation"]]]


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
    tx.apply(c.LeaseReleased(row["id"], tx.now_us))


def delete_node(tx: Tx, ref: str, node_id: str, *, force: bool = False) -> str:
    """Give one machine back; the compute gets another in its place while it wants that many.

    What it has at work it finishes first, unless ``force``: then nobody will know how that went.
    """
    compute = lookup.compute(tx, ref)
    row = lookup.node(tx, compute["id"], node_id)
    if row["state"] in n.WANTED and not force and nodes.is_at_work(tx.connection, node_id):
        if row["unwanted_us"] is None:
            tx.apply(n.NodeUnwanted(node_id, tx.now_us))
        if row["state"] == n.READY:
            tx.apply(n.NodeDraining(node_id))
    elif row["state"] in n.WANTED | {n.LOST}:
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
    attach = "" if taken["state"] == c.FAILED else "attach to it, "
    msg = (
        f"the name {name!r} is taken by {taken['id']}, which is {taken['state']}; {attach}delete it "
        f"(sky compute delete {name}), or choose another name"
    )
    raise NameTaken(msg, details={"name": name, "compute": taken["id"]})


def _freeze(tx: Tx, compute_id: str, number: int, spec: dict[str, Any]) -> None:
    computes.freeze(tx, compute_id, number, spec, codec.sha256_hex(codec.canonical(spec)))


def _settle_work(tx: Tx, compute_id: str, retained: Collection[str], *, force: bool) -> None:
    active = computes.at_nodes(tx.connection, compute_id, but=retained)
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
