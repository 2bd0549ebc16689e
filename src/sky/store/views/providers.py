"""Providers as the faces show them.

Decides: what is shown of one. Never: selects the column that holds credentials.
Follows: no read can leak what it did not read.
"""

from __future__ import annotations

import sqlalchemy as sa

from sky.kit import ids
from sky.kit.clock import to_datetime
from sky.store.schema import offers, providers
from sky.store.views.computes import missing
from sky.store.views.errors import error_of, moment
from sky.store.views.paging import WHOLE_LIST_MAX, cut, place_of
from sky.wire import v1

KIND = "providers"

_COUNT = (
    sa.select(sa.func.count())
    .where(offers.c.provider_id == providers.c.id)
    .correlate(providers)
    .scalar_subquery()
)
_COLUMNS = (
    *(c for c in providers.columns if c.name not in {"credentials", "version"}),
    _COUNT.label("offers_count"),
)


def resolve(connection: sa.Connection, ref: str) -> str:
    """The id of the provider that ``ref`` (an id or a name) names."""
    column = providers.c.id if ids.is_id(ref) else providers.c.name
    found = connection.execute(sa.select(providers.c.id).where(column == ref)).scalar()
    if found is None:
        raise missing("provider", ref)
    return found


def get(connection: sa.Connection, ref: str) -> v1.Provider:
    """One provider, by id or name."""
    column = providers.c.id if ids.is_id(ref) else providers.c.name
    row = connection.execute(sa.select(*_COLUMNS).where(column == ref)).mappings().first()
    if row is None:
        raise missing("provider", ref)
    return _shown(row)


def page(connection: sa.Connection, *, cursor: str | None, limit: int | None) -> v1.ProviderPage:
    """The providers, by age."""
    many = limit or WHOLE_LIST_MAX
    query = sa.select(*_COLUMNS).order_by(providers.c.seq).limit(many + 1)
    if (place := place_of(KIND, cursor)) is not None:
        query = query.where(providers.c.seq > place)
    rows = connection.execute(query).mappings().all()
    shown, following = cut(rows, many, KIND, lambda row: row["seq"])
    return v1.ProviderPage(items=tuple(map(_shown, shown)), next_cursor=following)


def _shown(row: sa.RowMapping) -> v1.Provider:
    return v1.Provider(
        id=row["id"],
        name=row["name"],
        kind=row["kind"],
        config=row["config"],
        offers_ttl_seconds=row["offers_ttl_seconds"],
        created_at=to_datetime(row["created_us"]),
        offers_count=row["offers_count"],
        offers_fetched_at=moment(row["offers_fetched_us"]),
        last_error=error_of(row["last_error"]),
    )
