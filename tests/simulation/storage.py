"""The database of the histories that a process tells: made once, and emptied before each of them.

Decides: that a SQLite is in memory, where a commit waits for no file. Never: gives a history what
is left of another, or two at once.
Follows: connections, and what is prepared on them, outlive daemons; a daemon's transactions end with it.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import psycopg
import sqlalchemy as sa
from tests.databases import ON_POSTGRESQL, fresh, server

from sky.store import db as store_db
from sky.store.db import Database
from sky.store.engine import make_engine

KEPT = "alembic_version"


class Storage(Protocol):
    """A database, and a connection of our own to it, which only looks at what is committed."""

    def of(self, number: int) -> str:
        """Its URL, as the daemon of that number is told it."""
        ...

    def empty(self) -> None: ...

    def query(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]: ...


class _Sqlite:
    """A database in this process' memory, and the eyes on it. It lasts as long as they do."""

    def __init__(self) -> None:
        self.url = f"sqlite:///file:/sky-simulation-{os.getpid()}?vfs=memdb&uri=true"
        self._connection = sqlite3.connect(self._name, uri=True, isolation_level=None)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "empty.db"
            fresh(path, postgresql=False)
            made = sqlite3.connect(path)
            made.execute("PRAGMA journal_mode=DELETE")  # a log is none of what is in memory only
            made.backup(self._connection)
            made.close()
        self._tables = [name for (name,) in self.query("SELECT name FROM sqlite_master WHERE type = 'table'")]

    @property
    def _name(self) -> str:
        return self.url.removeprefix("sqlite:///")

    def empty(self) -> None:
        for name in self._tables:
            if name != KEPT:
                self._connection.execute(f'DELETE FROM "{name}"')

    def of(self, number: int) -> str:
        return f"{self.url}&daemon={number}"

    def query(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        return self._connection.execute(sql, values).fetchall()


class _Postgresql:
    """A database on a server of the tests."""

    def __init__(self) -> None:
        self.url = server().empty()
        self._connection = psycopg.connect(self.url.replace("+psycopg", ""), autocommit=True)
        found = self.query("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        self._names = ", ".join(f'"{name}"' for (name,) in found if name != KEPT)

    def empty(self) -> None:
        self._connection.execute(f"TRUNCATE {self._names} RESTART IDENTITY CASCADE".encode())

    def of(self, number: int) -> str:
        return f"{self.url}?application_name=daemon-{number}"

    def query(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        return self._connection.execute(sql.replace("?", "%s").encode(), values or None).fetchall()


@cache
def _made(postgresql: bool) -> Storage:
    return _Postgresql() if postgresql else _Sqlite()


def begin(*, postgresql: bool = ON_POSTGRESQL) -> Storage:
    """A database for another history, with nothing in it."""
    one = _made(postgresql)
    one.empty()
    return one


def let_go(database: Database) -> None:
    """What the end of a process does to what is under way; the connections are its successor's."""
    database._closed = True
    database._writer.drop()
    for connection in database._reading:
        connection.close()
    database._reading.clear()


@contextmanager
def kept() -> Generator[None]:
    """Within this, a daemon begins with the connections of the one that had its number before."""
    store_db.make_engine = _engine
    try:
        yield
    finally:
        store_db.make_engine = make_engine


_compiled: dict[str, sa.Engine] = {}
"""By dialect: an engine whose compiled statements all others use."""


@cache
def _engine(url: str, **more: Any) -> sa.Engine:
    engine = make_engine(url, **more)
    first = _compiled.setdefault(engine.dialect.name, engine)
    engine.dialect, engine._compiled_cache = first.dialect, first._compiled_cache
    return engine
