"""Disks that outlive machines, as rows.

Decides: a disk's name, from the compute and the rank that it is for. Never: judges whether one is wanted.
Follows: the row is there before a machine with that disk is bought, and until its provider says that the
disk is gone.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from sky.domain.offer import Offer
from sky.domain.snapshots import DiskView
from sky.store.prepared import inserted, prepared
from sky.store.schema import disks
from sky.store.sql import Row
from sky.store.tx import ConflictError, Tx

GOING = "-"
"""Stands in the place of the node of a disk that is being removed: from then on nobody is promised it."""


def name_of(compute_id: str, rank: int) -> str:
    """The name of the disk of a rank."""
    return f"{compute_id}-{rank}"


def of_rank(connection: sa.Connection, compute_id: str, rank: int) -> DiskView | None:
    """The disk of a rank, if there is one."""
    found = find(connection, name_of(compute_id, rank))
    return None if found is None else view_of(found)


def of_compute(connection: sa.Connection, compute_id: str) -> tuple[DiskView, ...]:
    """All disks of a compute, by rank."""
    return tuple(view_of(row) for row in _OF_COMPUTE.all(connection, {"b_compute": compute_id}))


def view_of(row: Row) -> DiskView:
    """A disk as plans read it."""
    return DiskView(
        name=row["name"],
        rank=row["rank"],
        provider_id=row["provider_id"],
        instance_type=row["instance_type"],
        region=row["region"],
        used=row["used"],
        going=row["node_id"] == GOING,
    )


def find(connection: sa.Connection, name: str) -> Row | None:
    """A disk as it is kept."""
    return _ONE.first(connection, {"b_name": name})


def known(connection: sa.Connection, names: Sequence[str]) -> set[str]:
    """Which of these names some compute has."""
    return set(connection.scalars(sa.select(disks.c.name).where(disks.c.name.in_(list(names)))))


def count_of(connection: sa.Connection, provider_id: str) -> int:
    """How many disks a provider has, or may have."""
    return _COUNT_OF.scalar(connection, {"b_provider": provider_id})


def hold(tx: Tx, compute_id: str, rank: int, node_id: str, offer: Offer) -> None:
    """A node will be given the disk of its rank: the one that is there, or a new one."""
    name = name_of(compute_id, rank)
    known = find(tx.connection, name)
    if known is not None and known["node_id"] == GOING:
        msg = f"disk {name} is being removed, and cannot be promised to {node_id}"
        raise ConflictError(msg)
    if known is not None and known["used"]:
        _HAND_OVER.run(tx.connection, {"b_name": name, "b_node": node_id})
        return
    _DROP.run(tx.connection, {"b_name": name})
    row = {
        "name": name,
        "compute_id": compute_id,
        "rank": rank,
        "provider_id": offer.provider_id,
        "instance_type": offer.instance_type,
        "region": offer.region,
        "node_id": node_id,
        "used": False,
        "created_us": tx.now_us,
    }
    _ADD.run(tx.connection, row)


def use(tx: Tx, name: str) -> None:
    """A machine has it: from now on there is something on it."""
    _USE.run(tx.connection, {"b_name": name})


def give_up(tx: Tx, name: str, node_id: str) -> None:
    """Nothing was bought with it: it never was, unless an earlier machine had it."""
    _GIVE_UP.run(tx.connection, {"b_name": name, "b_node": node_id})


def let_go(tx: Tx, name: str) -> None:
    """It will be removed, and is promised to nobody any more."""
    _HAND_OVER.run(tx.connection, {"b_name": name, "b_node": GOING})


def remove(tx: Tx, name: str) -> None:
    """It is gone."""
    _DROP.run(tx.connection, {"b_name": name})


_THAT_ONE = disks.c.name == sa.bindparam("b_name")
_COUNT_OF = prepared(
    sa.select(sa.func.count().label("many")).where(disks.c.provider_id == sa.bindparam("b_provider"))
)
_ONE = prepared(sa.select(disks).where(_THAT_ONE))
_OF_COMPUTE = prepared(
    sa.select(disks).where(disks.c.compute_id == sa.bindparam("b_compute")).order_by(disks.c.rank)
)
_ADD = inserted(disks, [column.name for column in disks.columns])
_HAND_OVER = prepared(sa.update(disks).where(_THAT_ONE).values(node_id=sa.bindparam("b_node")))
_USE = prepared(sa.update(disks).where(_THAT_ONE).values(used=True))
_DROP = prepared(sa.delete(disks).where(_THAT_ONE))
_GIVE_UP = prepared(
    sa.delete(disks).where(_THAT_ONE, disks.c.node_id == sa.bindparam("b_node"), disks.c.used.is_(False))
)
