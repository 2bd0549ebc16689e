"""Statements that SQLite and PostgreSQL spell alike but SQLAlchemy builds per dialect.

Decides: how "insert, or else" is said. Never: knows a table of ours.
Follows: the same call gives the same effect on both databases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from sky.store.prepared import Prepared, Row

Snapshot = sa.Connection
"""What is committed, as a query finds it: a reader's, or that of the transaction it is in."""


class Number(sa.Integer):
    """A small whole number that people ask for by any: a larger one than it can be is not found.

    PostgreSQL would refuse to compare what it was told is small, and is not.
    """

    def coerce_compared_value(self, op: Any, value: Any) -> Any:
        """What it is compared with may be large."""
        del op, value
        return sa.BigInteger()


def insert_ignore(dialect: str, table: sa.Table, names: Sequence[str]) -> Any:
    """Insert those columns; where the key is there already, change nothing."""
    return _insert(dialect, table, names).on_conflict_do_nothing()


def upsert(
    dialect: str,
    table: sa.Table,
    key: Sequence[str],
    names: Sequence[str],
    changes: Callable[[Any], Mapping[str, Any]] | None = None,
    where: Callable[[Any], Any] | None = None,
) -> Any:
    """Insert those columns; where the key is there already, set what ``changes`` makes of the new values.

    Without ``changes``, every column that is not of the key becomes as it would have been inserted. A row of
    which ``where`` does not hold stays as it is.
    """
    statement = _insert(dialect, table, names)
    if changes is None:
        given = {name: statement.excluded[name] for name in names if name not in key}
    else:
        given = dict(changes(statement.excluded))
    which = None if where is None else where(statement.excluded)
    return statement.on_conflict_do_update(index_elements=list(key), set_=given, where=which)


def _insert(dialect: str, table: sa.Table, names: Sequence[str]) -> Any:
    statement = postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
    return statement.values({name: sa.bindparam(name, type_=table.c[name].type) for name in names}).inline()


class ByBytes(FunctionElement[str]):
    """Text, to be sorted as its bytes are, which is what SQLite does: another database may have been made to
    sort as people of some country do, and a page of names would be another there."""

    inherit_cache = True
    type = sa.String()


@compiles(ByBytes)
def _as_it_is(element: ByBytes, compiler: Any, **given: Any) -> str:
    return str(compiler.process(element.clause_expr, **given))


@compiles(ByBytes, "postgresql")
def _collated(element: ByBytes, compiler: Any, **given: Any) -> str:
    return f'{compiler.process(element.clause_expr, **given)} COLLATE "C"'


def total(amounts: sa.ColumnElement[int]) -> sa.Cast[int]:
    """The sum of whole numbers as a whole number: PostgreSQL has one of large ones in another type."""
    return sa.cast(sa.func.sum(amounts), sa.BigInteger)


def literals(values: Iterable[str]) -> list[sa.ColumnElement[str]]:
    """Fixed values for ``column.in_``, spelled out: a partial index is used only where they can be seen."""
    return [sa.literal_column(f"'{value}'") for value in sorted(values)]


def one(connection: sa.Connection, statement: Any, values: Mapping[str, Any] | None = None) -> Row | None:
    """The first row as a mapping by column, or None."""
    if isinstance(statement, Prepared):
        return statement.first(connection, values or {})
    found = connection.execute(statement, values or {}).mappings().first()
    return None if found is None else {str(name): found[name] for name in found}


def many(connection: sa.Connection, statement: Any, values: Mapping[str, Any] | None = None) -> list[Row]:
    """Every row as a mapping by column."""
    if isinstance(statement, Prepared):
        return statement.all(connection, values or {})
    return [
        {str(name): row[name] for name in row}
        for row in connection.execute(statement, values or {}).mappings()
    ]
