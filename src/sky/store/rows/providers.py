"""Providers and their offers, as rows.

Decides: nothing. Never: opens credentials. Follows: a changed row has a new version, so that whoever keeps an
object made from it knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from sky.domain.offer import Offer
from sky.store.prepared import prepared
from sky.store.schema import offers, providers
from sky.store.sql import Row, many, one
from sky.store.tx import Tx


def find(connection: sa.Connection, ref: str) -> Row | None:
    """The provider with that id or name."""
    return one(connection, _FIND, {"b_ref": ref})


def named(connection: sa.Connection, name: str) -> str | None:
    """The id of the provider that has that name."""
    return connection.execute(sa.select(providers.c.id).where(providers.c.name == name)).scalar()


def called(connection: sa.Connection, kind: str, name: str) -> str | None:
    """The id of the provider of that kind that has that name."""
    query = sa.select(providers.c.id).where(providers.c.name == name, providers.c.kind == kind)
    return connection.execute(query).scalar()


def names(connection: sa.Connection) -> list[str]:
    """Every provider's name."""
    return [row.name for row in connection.execute(sa.select(providers.c.name))]


def kinds(connection: sa.Connection) -> list[str]:
    """The kinds of which there is a provider, in the order they were added."""
    query = sa.select(providers.c.kind).group_by(providers.c.kind).order_by(sa.func.min(providers.c.seq))
    return [row.kind for row in connection.execute(query)]


def states(connection: sa.Connection) -> list[Row]:
    """Of each provider, in the order they were added: its names, its error, and when it told its offers."""
    query = sa.select(
        providers.c.id,
        providers.c.name,
        providers.c.kind,
        providers.c.last_error,
        providers.c.offers_fetched_us,
    )
    return many(connection, query.order_by(providers.c.seq))


def offers_of(connection: sa.Connection, provider_id: str | None = None) -> list[Offer]:
    """The stored offers of a provider, or of all (None)."""
    query = sa.select(offers.c.body)
    if provider_id is not None:
        query = query.where(offers.c.provider_id == provider_id)
    return [msgspec.convert(row["body"], Offer) for row in many(connection, query)]


def configs(connection: sa.Connection, ref: str) -> list[dict[str, Any]]:
    """The configuration of every provider that ``ref``, an id, a name or a kind, may mean in a spec."""
    query = sa.select(providers.c.config).where(
        sa.or_(providers.c.id == ref, providers.c.name == ref, providers.c.kind == ref)
    )
    return [row.config for row in connection.execute(query)]


def ids(connection: sa.Connection) -> list[str]:
    """Every provider's id."""
    return [row.id for row in connection.execute(sa.select(providers.c.id))]


def count_of_kind(connection: sa.Connection, kind: str, *, without: str = "") -> int:
    """How many providers of a kind there are, not counting one."""
    return _COUNT.scalar(connection, {"b_kind": kind, "b_without": without})


def add(tx: Tx, row: Mapping[str, Any]) -> None:
    """Write a new provider, and have its offers fetched and its machines looked through."""
    tx.connection.execute(sa.insert(providers), {**row, "version": 1, "created_us": tx.now_us})
    tx.touch(f"offers/{row['id']}")
    tx.touch(f"sweep/{row['id']}")


def change(tx: Tx, provider_id: str, values: Mapping[str, Any]) -> None:
    """Change a provider; its offers are fetched anew."""
    statement = sa.update(providers).where(providers.c.id == provider_id)
    tx.connection.execute(statement.values(**values, version=providers.c.version + 1, offers_fetched_us=None))
    tx.touch(f"offers/{provider_id}")


def remove(tx: Tx, provider_id: str) -> None:
    """Forget a provider and its offers."""
    tx.connection.execute(sa.delete(offers).where(offers.c.provider_id == provider_id))
    tx.connection.execute(sa.delete(providers).where(providers.c.id == provider_id))


def replace_offers(tx: Tx, provider_id: str, found: Sequence[Mapping[str, Any]]) -> None:
    """Put a fetched list of offers in the place of the one before."""
    tx.connection.execute(sa.delete(offers).where(offers.c.provider_id == provider_id))
    if found:
        tx.connection.execute(sa.insert(offers), [dict(row) for row in found])
    done = sa.update(providers).where(providers.c.id == provider_id)
    tx.connection.execute(done.values(offers_fetched_us=tx.now_us, last_error=None))


def note_error(tx: Tx, provider_id: str, error: Mapping[str, Any]) -> None:
    """Keep why the provider did not answer."""
    tx.connection.execute(
        sa.update(providers).where(providers.c.id == provider_id).values(last_error=dict(error))
    )


_COUNT = prepared(
    sa.select(sa.func.count().label("count")).where(
        providers.c.kind == sa.bindparam("b_kind"), providers.c.id != sa.bindparam("b_without")
    )
)
_REF = sa.bindparam("b_ref", type_=sa.String)
_FIND = prepared(sa.select(providers).where(sa.or_(providers.c.id == _REF, providers.c.name == _REF)))
