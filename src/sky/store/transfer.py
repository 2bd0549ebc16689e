"""Copies all that a database keeps into an empty one, of the same kind or another, and compares them.

Decides: what makes two databases the same: as many rows in every table, and every value of every row. Never:
changes the one that is copied from, which may be written meanwhile: all is read in one snapshot of it.
Follows: a copy that is not the same is an error, and nothing but what an ended copy left is overwritten; one
that was ended in the middle is known for what it is, by the daemon and by the next copy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from sky.domain.errors import StorageFull
from sky.kit import faults
from sky.store.engine import COPY_IDLE_MS, explain, give_time, make_engine
from sky.store.installation import copy_begins, is_half, named
from sky.store.migrate import HEAD, current, upgrade
from sky.store.schema import daemons
from sky.store.schema_users import installation, metadata

ROWS_AT_ONCE = 500
TABLES = tuple(table for table in metadata.sorted_tables if table not in (daemons, installation))
"""Which daemons are there is not kept for later, and a copy is an installation of its own."""
Progress = Callable[[str, int], None]


class TransferError(Exception):
    """A copy cannot be made, or is not the same; the message says why and what to do."""


def transfer(
    source: str,
    target: str,
    progress: Progress = lambda _table, _rows: None,
    *,
    identity: str | None = None,
) -> dict[str, int]:
    """Copy the database at ``source`` into the empty one at ``target``; returns the rows of each table.

    With ``identity``, the name of the installation that it becomes, nothing is served from the copy until
    ``installation.copy_ends``. What a copy that was ended has left there is removed first.
    Raises TransferError, UnusableDatabaseError.
    """
    with closing(_Ends(source, target)) as ends, _told(ends.target):
        have = None if _is_no_file(ends.source) else current(ends.source)
        if have is None:
            shown = ends.source.url.render_as_string(hide_password=True)
            raise TransferError(
                f"there is no database of ours to copy from at {shown}; has a daemon run there?"
            )
        if have != HEAD:
            raise TransferError(_of_another_release(have))
        with ends.source.connect() as reading, reading.begin():
            if is_half(reading):
                raise TransferError("a copy into that database was begun and did not end; end it first")
        upgrade(target)
        with ends.target.begin() as writing:
            if is_half(writing):
                _wipe(writing)
            _refuse_full(writing)
            if identity is not None:
                copy_begins(writing, identity)
        faults.point("copy begun")
        counts: dict[str, int] = {}
        marks: dict[str, str] = {}
        with ends.source.connect() as reading, reading.begin():
            for table in TABLES:
                with ends.target.begin() as writing:
                    counts[table.name], marks[table.name] = _copy(reading, writing, table)
                faults.point(f"copied {table.name}")
                progress(table.name, counts[table.name])
        with ends.target.begin() as writing:
            _set_sequences(writing)
        _compare(ends.target, counts, marks)
    return counts


def undo(target: str) -> None:
    """Empty a database that a copy was begun into and not ended. Raises TransferError."""
    engine = _patient(target, writer=True)
    try:
        with _told(engine), engine.begin() as writing:
            if is_half(writing):
                _wipe(writing)
    finally:
        engine.dispose()


def is_left_by(target: str, identity: str) -> bool:
    """Whether a database has nothing, or what a copy of that name has left that did not end."""
    engine = make_engine(target, writer=False)
    try:
        with _told(engine), engine.connect() as connection, connection.begin():
            found = named(connection)
            if found is not None:
                return found == (identity, False)
            there = set(sa.inspect(connection).get_table_names())
            return not any(_has_rows(connection, table) for table in TABLES if table.name in there)
    finally:
        engine.dispose()


def _is_no_file(engine: sa.Engine) -> bool:
    """Whether a SQLite is not there; asking it would make one, or fail as on a full disk."""
    return engine.dialect.name == "sqlite" and not Path(str(engine.url.database)).exists()


def _of_another_release(have: str) -> str:
    if have > HEAD:
        return (
            f"it has schema {have}, and this release knows {HEAD}: use the release that wrote it, or a newer"
        )
    return (
        f"the database has schema {have}, and this release copies {HEAD}: have the release that serves it "
        "copy it, or start the daemon of this one first, which brings it up to date"
    )


@contextmanager
def _told(engine: sa.Engine) -> Generator[None]:
    """Say in words what a database refuses."""
    try:
        yield
    except DBAPIError as error:
        shown = engine.url.render_as_string(hide_password=True)
        known = explain(error)
        if isinstance(known, StorageFull):
            msg = f"the copy into {shown} cannot be written: {known.message}; mend that, and begin again"
            raise TransferError(msg) from error
        msg = f"the copy into {shown} failed: {' '.join(str(error.orig).split())}"
        raise TransferError(msg) from error


def _wipe(connection: sa.Connection) -> None:
    for table in reversed(metadata.sorted_tables):
        connection.execute(sa.delete(table))


class _Ends:
    def __init__(self, source: str, target: str) -> None:
        self.source = _patient(source, writer=False)
        self.target = _patient(target, writer=True)

    def close(self) -> None:
        self.source.dispose()
        self.target.dispose()


def _patient(url: str, *, writer: bool) -> sa.Engine:
    engine = make_engine(url, writer=writer)
    give_time(engine, idle_ms=COPY_IDLE_MS)
    return engine


def _refuse_full(connection: sa.Connection) -> None:
    for table in TABLES:
        if _has_rows(connection, table):
            shown = connection.engine.url.render_as_string(hide_password=True)
            raise TransferError(f"{shown} has rows in {table.name} already; name an empty database")


def _has_rows(connection: sa.Connection, table: sa.Table) -> bool:
    return connection.execute(sa.select(sa.literal(1)).select_from(table).limit(1)).first() is not None


def _copy(reading: sa.Connection, writing: sa.Connection, table: sa.Table) -> tuple[int, str]:
    count, mark = 0, hashlib.sha256()
    page: list[dict[str, Any]] = []
    for row in _rows(reading, table):
        mark.update(_canonical(row))
        page.append(row)
        count += 1
        if len(page) == ROWS_AT_ONCE:
            writing.execute(sa.insert(table), page)
            page = []
    if page:
        writing.execute(sa.insert(table), page)
    return count, mark.hexdigest()


def _compare(engine: sa.Engine, counts: Mapping[str, int], marks: Mapping[str, str]) -> None:
    with engine.connect() as connection, connection.begin():
        for table in TABLES:
            count, mark = 0, hashlib.sha256()
            for row in _rows(connection, table):
                mark.update(_canonical(row))
                count += 1
            if count != counts[table.name] or mark.hexdigest() != marks[table.name]:
                read = counts[table.name]
                raise TransferError(
                    f"the copy of {table.name} is not the same: {read} rows were read and {count} are there, "
                    "or their values differ; do not use the copy"
                )


def _rows(connection: sa.Connection, table: sa.Table) -> Iterator[dict[str, Any]]:
    """All rows in the order of their keys, which is one order on every database."""
    keys = [_ordered(connection, column) for column in table.primary_key]
    found = connection.execution_options(yield_per=ROWS_AT_ONCE).execute(sa.select(table).order_by(*keys))
    for row in found.mappings():
        yield {str(name): row[name] for name in row}


def _ordered(connection: sa.Connection, column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    if connection.dialect.name == "postgresql" and isinstance(column.type, sa.String):
        return column.collate("C")
    return column


def _canonical(row: Mapping[str, Any]) -> bytes:
    return msgspec.msgpack.encode(list(row.values()))


def _set_sequences(connection: sa.Connection) -> None:
    """The next rows are counted on from those that were copied."""
    if connection.dialect.name != "postgresql":
        return
    for table in TABLES:
        for column in table.primary_key:
            if column.autoincrement is True:
                newest = sa.select(sa.func.coalesce(sa.func.max(column), 1)).scalar_subquery()
                owned = sa.func.pg_get_serial_sequence(table.name, column.name)
                connection.execute(sa.select(sa.func.setval(owned, newest)))
