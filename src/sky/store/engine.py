"""Connections to the database, tuned, and what its failures mean.

Decides: how a connection is set up on each database, and which failures mean something to a caller.
Never: runs a verb or a query. Follows: a commit that was answered survives the end of this process at any
moment; with ``full_sync``, and on PostgreSQL always, it survives the end of the machine too. Whoever writes
is alone: on SQLite by its own lock, on PostgreSQL by one that every transaction that writes takes first.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, OperationalError

from sky.domain.errors import Busy, SkyError, StorageFull
from sky.store import unopened
from sky.store.prepared import say
from sky.store.tx import ConflictError

Trouble = OperationalError
"""What a database raises when it cannot work just now, whatever it was asked."""
BUSY_TIMEOUT_MS = 10_000
"""How long a transaction waits for one of another process."""
READER_THREADS = 2
STATEMENTS_KEPT = 512
"""By a connection, ready to run: there are some 200 texts, of which the driver would keep 128 by itself."""
CACHE_KIB = 16_384
READER_CACHE_KIB = 4_096
"""What is not kept here, the system keeps, once for all. Four times as much was no faster over 60,000 calls,
and was 57 MB that no one else could use."""
CHECKPOINT_PAGES = 4_000
"""After this many pages the log is folded into the file, which waits for the disk: rarely."""
LOG_BYTES_KEPT = 64 * 1024 * 1024
WRITER_LOCK = 7_590_759_075
"""The advisory lock that a writing transaction on PostgreSQL holds: a number that is ours alone there."""
CLASHES = frozenset({"40001", "40P01"})
"""What a database answers, as SQLSTATE, to one of two transactions of which only one can be: that they cannot
be put in an order, or wait for each other. Nothing of it was written, and done again it may well be."""
CONNECT = {
    "connect_timeout": 10,  # seconds, of each address
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,  # milliseconds
    "client_encoding": "utf8",
    "application_name": "skyfleet",
}
"""How a PostgreSQL is connected to, where its URL does not say otherwise: one that is gone without a word, as
its computer is, is told from one that takes its time within half a minute, and not after hours."""
WRITER_IDLE_MS = 30_000
"""What PostgreSQL waits for the next statement of a transaction that writes: a process that is stopped in the
middle of one, or whose computer is gone, keeps all others from writing for no longer."""
READER_IDLE_MS = 300_000
COPY_IDLE_MS = 3_600_000
"""The same for both ends of a copy, of which one waits for the other: until it has sorted a table, say."""
SQLITE_KIND = 0xFF
"""The part of SQLite's codes that says which kind of failure it was."""
FILE = "sky_file"
"""What a failure of SQLite carries with it: which file it was about."""
UNREADABLE = "unreadable"
"""The one key of what is read where a row holds JSON that is none, so that its other columns can be."""
UNREADABLE_CHARS_MAX = 200


def make_engine(
    url: str, *, writer: bool, full_sync: bool = False, busy_timeout_ms: int = BUSY_TIMEOUT_MS
) -> sa.Engine:
    """An engine whose transactions begin IMMEDIATE (writer) or as plain snapshots (readers)."""
    engine = sa.create_engine(
        url,
        json_serializer=_serialize if url.startswith("sqlite") else _serialize_without_nul,
        json_deserializer=_parse,
        hide_parameters=True,  # what is written may be a secret, and failures are logged
        pool_size=1 if writer else READER_THREADS,
        max_overflow=0 if writer else 2,
        **_options(url, writer=writer),
    )
    if engine.dialect.name == "sqlite":
        pragmas = (
            f"busy_timeout={busy_timeout_ms}",
            "journal_mode=WAL",
            f"synchronous={'FULL' if full_sync else 'NORMAL'}",
            "foreign_keys=ON",
            f"cache_size=-{CACHE_KIB if writer else READER_CACHE_KIB}",
            "temp_store=MEMORY",
            f"wal_autocheckpoint={CHECKPOINT_PAGES}",
            f"journal_size_limit={LOG_BYTES_KEPT}",
        )
        _tune_sqlite(engine, "BEGIN IMMEDIATE" if writer else "BEGIN", pragmas)
    else:
        _tune_postgresql(engine, busy_timeout_ms, writer=writer)
    return engine


def give_time(engine: sa.Engine, *, idle_ms: int | None = None) -> None:
    """Let statements take the time that they take, whatever a PostgreSQL gives them; with ``idle_ms``, let it
    wait so long for the next one."""
    if engine.dialect.name != "postgresql":
        return

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        connection.execute("SET statement_timeout = 0")
        if idle_ms is not None:
            connection.execute(f"SET idle_in_transaction_session_timeout = {int(idle_ms)}")
        connection.commit()

    del _connect


def driver_url(url: str) -> str:
    """A database's URL with the driver that is used: ``postgres://`` and ``postgresql://`` are psycopg's."""
    for scheme in ("postgres://", "postgresql://"):
        if url.startswith(scheme):
            return f"postgresql+psycopg://{url.removeprefix(scheme)}"
    return url


def _options(url: str, *, writer: bool) -> dict[str, Any]:
    if url.startswith("sqlite"):
        return {"connect_args": {"check_same_thread": False, "cached_statements": STATEMENTS_KEPT}}
    # A writer sees what was committed before it was alone, whatever the database usually does: its first
    # statement waits until it is, and a snapshot would be older than that.
    level = "READ COMMITTED" if writer else "REPEATABLE READ"
    given = sa.make_url(url).query
    return {
        "isolation_level": level,
        "connect_args": {name: value for name, value in CONNECT.items() if name not in given},
    }


def connecting(url: str) -> dict[str, Any]:
    """How the driver of PostgreSQL is told to connect to ``url``, as an engine for it connects."""
    where = sa.make_url(url)
    _, told = where.get_dialect()().create_connect_args(where)
    return {**CONNECT, **told}


def let_go(connection: sa.Connection) -> None:
    """Close a connection that failed. It may be in any state, and is not asked for anything any more."""
    try:
        connection.invalidate()
    finally:
        connection.close()


def explain(error: DBAPIError) -> SkyError | ConflictError | None:
    """What a failure of the database means to a caller, where it means something to them."""
    if getattr(error.orig, "sqlstate", None) in CLASHES:
        return ConflictError(f"the database had to choose between two transactions: {error.orig}")
    code: str | None = getattr(error.orig, "sqlstate", None)
    if code is not None:
        return explain_code(code)
    if type(error.orig).__module__.startswith("psycopg"):  # no code: it was not the server who said it
        return Busy("the database does not answer; try again", after_s=1.0) if is_lost(error) else None
    return _explain_sqlite(error.orig)


def _explain_sqlite(error: BaseException | None) -> SkyError | None:
    match getattr(error, "sqlite_errorcode", 0) & SQLITE_KIND:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return Busy("the database is held by another process; try again", after_s=1.0)
        case sqlite3.SQLITE_FULL:
            return StorageFull(
                "the disk that holds the database is full: make room there; nothing was written"
            )
        case sqlite3.SQLITE_IOERR:
            msg = f"the disk that holds the database is full, or fails ({error}); nothing was written"
            return StorageFull(msg)
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return unopened.why(getattr(error, FILE, None), str(error))
        case _:
            return None


def is_lost(error: DBAPIError) -> bool:
    """Whether a connection was not to be had, or is gone."""
    return error.connection_invalidated or isinstance(error, OperationalError)


_NOT_NOW = ("08", "25P03", "40", "53", "55P03", "57P", "57014")
"""Beginnings of the codes of failures that pass: no connection, a transaction that was too slow, a lock that
was not had in time, no room."""
TAKES_NO_WRITES = "25006"


def explain_code(code: str) -> SkyError | None:
    """What a SQLSTATE of PostgreSQL means to a caller."""
    if code == "55P03":
        return Busy("the database is held by another process; try again", after_s=1.0)
    if code == "53100":
        return StorageFull("the disk that holds the database is full; nothing was written")
    if code == TAKES_NO_WRITES:
        msg = "the database takes no writes now: it stands by for another, or was made read-only; try again"
        return Busy(msg, after_s=2.0)
    if code.startswith(_NOT_NOW):
        return Busy("the database is busy, or is not there; try again", after_s=1.0)
    return None


def _parse(text: str | bytes) -> Any:
    if isinstance(text, bytes):  # as PostgreSQL's driver has it
        text = text.decode("utf-8", "replace").replace(NUL_IN_JSON, "\\u0000")
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {UNREADABLE: text[:UNREADABLE_CHARS_MAX]}


def _serialize(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _serialize_without_nul(value: Any) -> str:
    text = _serialize(value)
    if "\\u0000" not in text:
        return text
    return _ESCAPED.sub(lambda found: NUL_IN_JSON if found[0] == "\\u0000" else found[0], text)


def _tune_sqlite(engine: sa.Engine, begin: str, pragmas: Sequence[str]) -> None:
    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves; the driver's own is deferred
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        say(connection, begin)

    @event.listens_for(engine, "handle_error")
    def _failed(context: sa.engine.ExceptionContext) -> None:
        setattr(context.original_exception, FILE, engine.url.database)

    del _connect, _begin, _failed  # registered; the names are for a reader of a trace


NUL, INSTEAD_OF_NUL = "\x00", "\ufffd"
"""PostgreSQL keeps no NUL in text. What is asked for with one is not found; what is told with one is kept
with the character that stands for what cannot be shown."""
NUL_IN_JSON = "\ufffd\u2060\ufffd"
"""What stands for a NUL in JSON there, and is read as one again: PostgreSQL takes an escaped one, and fails
when it is asked for any part of that JSON."""
_ESCAPED = re.compile(r"\\\\|\\u0000")


def _without_nul(connection: Any) -> None:
    """Have a connection take text with a NUL in it."""
    usual: Any = import_module("psycopg.types.string").StrDumper

    def dump(self: Any, text: str) -> Any:
        return usual.dump(self, text.replace(NUL, INSTEAD_OF_NUL) if NUL in text else text)

    connection.adapters.register_dumper(str, type("Text", (usual,), {"dump": dump}))


def _tune_postgresql(engine: sa.Engine, busy_timeout_ms: int, *, writer: bool) -> None:
    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        _without_nul(connection)
        with connection.cursor() as cursor:
            idle_ms = WRITER_IDLE_MS if writer else READER_IDLE_MS
            cursor.execute(f"SET lock_timeout = {int(busy_timeout_ms)}")
            cursor.execute("SET TIME ZONE 'UTC'")
            cursor.execute(f"SET idle_in_transaction_session_timeout = {int(idle_ms)}")
        connection.commit()

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        if writer:
            say(connection, f"SELECT pg_advisory_xact_lock({WRITER_LOCK})")
        else:
            say(connection, "SET TRANSACTION READ ONLY")

    del _connect, _begin
