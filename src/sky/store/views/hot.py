"""Reads that are asked for thousands of times a second.

Decides: how a statement that never changes reaches an embedded database without being prepared anew each
time, which costs ten times what SQLite itself takes for it. Never: writes, or is used for anything rare.
Follows: on any other database the same statement goes the usual way, with the same answer; so columns of
JSON are selected as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite


class HotRead:
    """A statement without variable parts but its parameters."""

    def __init__(self, statement: Any) -> None:
        compiled: Any = statement.compile(dialect=sqlite.dialect())
        self._statement = statement
        self._columns = tuple(column.name for column in statement.selected_columns)
        self._sql = str(compiled)
        self._names = tuple(compiled.positiontup or ())

    def rows(self, connection: sa.Connection, **given: Any) -> Sequence[Sequence[Any]]:
        """The rows, each as values in the order of the columns."""
        if connection.dialect.name != "sqlite":
            return connection.execute(self._statement, given).all()
        driver: Any = connection.connection.driver_connection
        return driver.execute(self._sql, [given[name] for name in self._names]).fetchall()

    def named(self, connection: sa.Connection, **given: Any) -> list[dict[str, Any]]:
        """The rows, each as values by the names of the columns."""
        return [dict(zip(self._columns, row, strict=True)) for row in self.rows(connection, **given)]
