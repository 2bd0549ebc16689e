"""Statements that are built once and then run by the driver itself.

Decides: how a statement of SQLAlchemy Core becomes text with places for values, and how values get in and
rows come out. Never: begins or ends a transaction; it runs in the one that its connection has open.
Follows: what runs at every call of the product costs about what the database takes, and not ten times that.
A failure is raised as SQLAlchemy raises it, so that whoever explains failures knows one kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

Row = Mapping[str, Any]
Values = Mapping[str, Any]
LIST_MAX = 16_384
"""Values of one list in a statement; a database takes no more than about twice that."""


@dataclass(frozen=True, slots=True)
class _Compiled:
    """Text for one database. ``names``: which value goes to which place (None: places are named).

    ``into`` and ``out_of`` convert values that the driver does not take or give as they are; None is left.
    ``take`` gets the values by their names, in the order of their places. ``list_at`` is where a list goes
    that takes up ``list_size`` places. ``needs``: the names of all values.
    """

    sql: str
    names: tuple[str, ...] | None
    take: Callable[[Values], Sequence[Any]]
    fixed: dict[str, Any]
    into: dict[str, Callable[[Any], Any]]
    places: tuple[tuple[int, Callable[[Any], Any]], ...]
    columns: tuple[str, ...]
    out_of: tuple[tuple[str, Callable[[Any], Any]], ...]
    list_at: int = 0
    list_size: int = 0
    needs: tuple[str, ...] = ()

    def values(self, given: Values) -> Any:
        """``given`` as the driver takes it."""
        full = {**self.fixed, **given} if self.fixed or self.names is None else given
        if self.names is None:
            return {name: self._into(name, full[name]) for name in self.needs}
        if not self.places:
            return self.take(full)
        values = list(self.take(full))
        for place, convert in self.places:
            if values[place] is not None:
                values[place] = convert(values[place])
        return values

    def _into(self, name: str, value: Any) -> Any:
        return self.into[name](value) if name in self.into and value is not None else value

    def with_list(self, given: Values, name: str, items: list[Any]) -> Any:
        """``given`` as the driver takes it, and the values of the list ``name``, filled up with its last."""
        full = [*items, *(items[-1:] * (self.list_size - len(items)))]
        if self.names is None:
            return self.values({**given, **{f"{name}_{index}": item for index, item in enumerate(full)}})
        others = self.values(given)
        return [*others[: self.list_at], *full, *others[self.list_at :]]

    def row(self, found: Sequence[Any]) -> Row:
        """A found row by the names of its columns."""
        row = dict(zip(self.columns, found, strict=True))
        for name, convert in self.out_of:
            if row[name] is not None:
                row[name] = convert(row[name])
        return row

    def rows(self, found: Sequence[Sequence[Any]]) -> list[Row]:
        """Found rows by the names of their columns."""
        if self.out_of:
            return [self.row(one) for one in found]
        columns = self.columns
        return [dict(zip(columns, one, strict=True)) for one in found]


class Prepared:
    """A statement for every database, compiled when a database first needs it.

    ``make`` gets the name of the dialect and how many values the list ``list_name`` has. A list is filled up
    with its own last value to a power of two, so that few texts serve lists of every length.
    """

    __slots__ = ("_compiled", "_list_name", "_make")

    def __init__(self, make: Callable[[str, int], Any], list_name: str = "") -> None:
        self._make = make
        self._list_name = list_name
        self._compiled: dict[tuple[str, int], _Compiled] = {}

    def all(self, connection: sa.Connection, values: Values) -> list[Row]:
        """Every row that it finds. An empty list of values finds none."""
        if self._list_name and not values[self._list_name]:
            return []
        compiled, cursor = self._execute(connection, values)
        return compiled.rows(cursor.fetchall())

    def rows(self, connection: sa.Connection, values: Values) -> list[Sequence[Any]]:
        """Every row that it finds, as the driver gives it, in the order of the columns."""
        return self._execute(connection, values)[1].fetchall()

    def first(self, connection: sa.Connection, values: Values) -> Row | None:
        """The first row that it finds."""
        compiled, cursor = self._execute(connection, values)
        found = cursor.fetchone()
        cursor.close()
        return None if found is None else compiled.row(found)

    def scalar(self, connection: sa.Connection, values: Values) -> Any:
        """The first value of the first row, or None."""
        row = self.first(connection, values)
        return None if row is None else next(iter(row.values()))

    def run(self, connection: sa.Connection, *values: Values) -> int:
        """Write, once for each of ``values``; returns how many rows that concerned."""
        if len(values) == 1:
            return self._execute(connection, values[0])[1].rowcount
        if not values:
            return 0
        compiled = self._for(connection, 0)
        cursor = _cursor(connection)
        given = [compiled.values(one) for one in values]
        try:
            cursor.executemany(compiled.sql, given)
        except _base_error(connection) as error:
            raise _told(connection, compiled.sql, error) from error
        return cursor.rowcount

    def _execute(self, connection: sa.Connection, values: Values) -> tuple[_Compiled, Any]:
        name = self._list_name
        if name:
            items: list[Any] = list(values[name])
            if not 0 < len(items) <= LIST_MAX:
                msg = f"{name} has {len(items)} values, of at least 1 and at most {LIST_MAX}"
                raise ValueError(msg)
            compiled = self._for(connection, 1 << (len(items) - 1).bit_length())
            given = compiled.with_list(values, name, items)
        else:
            compiled = self._for(connection, 0)
            given = compiled.values(values)
        cursor = _cursor(connection)
        try:
            cursor.execute(compiled.sql, given)
        except _base_error(connection) as error:
            raise _told(connection, compiled.sql, error) from error
        return compiled, cursor

    def _for(self, connection: sa.Connection, count: int) -> _Compiled:
        key = (connection.dialect.name, count)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = _compile(self._make(*key), connection.dialect, self._list_name)
            self._compiled[key] = compiled
        return compiled


def prepared(statement: Any) -> Prepared:
    """A statement that is the same on every database."""
    return Prepared(lambda _dialect, _count: statement)


def say(connection: sa.Connection, sql: str) -> None:
    """Run text that takes no values and finds no rows."""
    try:
        _cursor(connection).execute(sql)
    except _base_error(connection) as error:
        raise _told(connection, sql, error) from error


def places(name: str, count: int) -> list[sa.BindParameter[Any]]:
    """The places of the values of the list ``name``, for ``column.in_``."""
    return [sa.bindparam(f"{name}_{index}") for index in range(count)]


def inserted(table: sa.Table, names: Sequence[str]) -> Prepared:
    """An insert of those columns; a column with a constant default that is not among them gets that."""
    defaults = {
        column.name: column.default.arg
        for column in table.columns
        if column.name not in names
        and isinstance(column.default, sa.ColumnDefault)
        and column.default.is_scalar
    }
    values = {name: sa.bindparam(name, type_=table.c[name].type) for name in names}
    statement = sa.insert(table).values({**defaults, **values}).inline()
    return prepared(statement)


def _compile(statement: Any, dialect: sa.Dialect, list_name: str) -> _Compiled:
    compiled = statement.compile(dialect=dialect)
    if "POSTCOMPILE" in str(compiled):
        msg = f"a list must be spelled out (`places`, or literals): {compiled}"
        raise ValueError(msg)
    binds: Mapping[str, sa.BindParameter[Any]] = compiled.binds
    params: Mapping[str, Any] = compiled.params
    into: dict[str, Callable[[Any], Any]] = {}
    fixed: dict[str, Any] = {}
    used = compiled.positiontup if compiled.positional else params
    of_list = {name for name in used if list_name and re.fullmatch(rf"{list_name}_\d+", name)}
    for name in dict.fromkeys(used):
        bind = binds.get(name)
        if bind is None or not bind.required:
            fixed[name] = params[name]
        if bind is not None and name not in of_list:
            convert = bind.type.dialect_impl(dialect).bind_processor(dialect)
            if convert is not None:
                into[name] = cast("Callable[[Any], Any]", convert)
    columns = list(statement.exported_columns) if hasattr(statement, "exported_columns") else []
    out_of = [
        (str(column.key), convert)
        for column in columns
        if (convert := column.type.dialect_impl(dialect).result_processor(dialect, None)) is not None
    ]
    names, list_at = _order(tuple(compiled.positiontup), of_list) if compiled.positional else (None, 0)
    return _Compiled(
        sql=str(compiled),
        names=names,
        take=_taker(names or ()),
        fixed=fixed,
        into=into,
        places=tuple((place, into[name]) for place, name in enumerate(names or ()) if name in into),
        columns=tuple(str(column.key) for column in columns),
        out_of=tuple(out_of),
        list_at=list_at,
        list_size=len(of_list),
        needs=tuple(dict.fromkeys(used)),
    )


def _order(names: tuple[str, ...], of_list: set[str]) -> tuple[tuple[str, ...], int]:
    """The names without those of a list, and where the list is: in one piece, from its first to its last."""
    at = next((place for place, name in enumerate(names) if name in of_list), 0)
    listed = [name for name in names if name in of_list]
    numbers = [int(name.rpartition("_")[2]) for name in names[at : at + len(of_list)] if name in of_list]
    if len(listed) != len(of_list) or numbers != list(range(len(of_list))):
        msg = f"the values of a list must stand in one place, and in order: {names}"
        raise ValueError(msg)
    return (*names[:at], *names[at + len(of_list) :]), at


def _taker(names: Sequence[str]) -> Callable[[Values], Sequence[Any]]:
    """Gets values by their names, in order."""
    if len(names) > 1:
        return cast("Callable[[Values], Sequence[Any]]", itemgetter(*names))
    return lambda values: tuple(values[name] for name in names)


def _cursor(connection: sa.Connection) -> Any:
    driver: Any = connection.connection.dbapi_connection
    return driver.cursor()


def _base_error(connection: sa.Connection) -> type[Exception]:
    return cast("type[Exception]", cast("Any", connection.dialect.loaded_dbapi).Error)


def _told(connection: sa.Connection, sql: str, error: Exception) -> BaseException:
    """The failure as SQLAlchemy would have raised it; values are left out of it."""
    kind = _base_error(connection)
    said = getattr(error, "diag", None)
    if said is not None and said.message_primary:  # PostgreSQL's detail has the values
        error.args = (said.message_primary,)
    return DBAPIError.instance(sql, None, error, kind, hide_parameters=True, dialect=connection.dialect)
