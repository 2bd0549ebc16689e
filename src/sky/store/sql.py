"""Statements that SQLite and PostgreSQL spell alike but SQLAlchemy builds per dialect.

Decides: how "insert, or else" is said. Never: knows a table of ours.
Follows: the same call gives the same effect on both databases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite


def _insert(connection: sa.Connection, table: sa.Table) -> Any:
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)


def insert_ignore(connection: sa.Connection, table: sa.Table) -> Any:
    """Insert; where the key is there already, change nothing."""
    return _insert(connection, table).on_conflict_do_nothing()


def upsert(
    connection: sa.Connection,
    table: sa.Table,
    key: Sequence[str],
    changes: Mapping[str, Any] | None = None,
) -> Any:
    """Insert; where the key is there already, set ``changes`` (default: every other column, as inserted)."""
    statement = _insert(connection, table)
    if changes is None:
        changes = {c.name: statement.excluded[c.name] for c in table.columns if c.name not in key}
    return statement.on_conflict_do_update(index_elements=list(key), set_=dict(changes))


Row = Mapping[str, Any]


def one(connection: sa.Connection, statement: Any, values: Mapping[str, Any] | None = None) -> Row | None:
    """The first row as a mapping by column, or None."""
    found = connection.execute(statement, values or {}).mappings().first()
    return None if found is None else {str(name): found[name] for name in found}


def many(connection: sa.Connection, statement: Any, values: Mapping[str, Any] | None = None) -> list[Row]:
    """Every row as a mapping by column."""
    return [
        {str(name): row[name] for name in row}
        for row in connection.execute(statement, values or {}).mappings()
    ]
