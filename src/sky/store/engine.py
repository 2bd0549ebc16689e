"""Connections to the database, tuned, and what its failures mean.

Decides: how a connection is set up on each database, and which failures mean something to a caller.
Never: runs a verb or a query. Follows: a commit that was answered survives the end of this process at any
moment; with ``full_sync`` it survives the end of the machine too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, OperationalError

from sky.domain.errors import Busy, SkyError, StorageFull
from sky.store.prepared import say
from sky.store.tx import ConflictError

Trouble = OperationalError
"""What a database raises when it cannot work just now, whatever it was asked."""
BUSY_TIMEOUT_MS = 10_000
"""How long a transaction waits for one of another process."""
READER_THREADS = 2
CACHE_KIB = 16_384
READER_CACHE_KIB = 4_096
"""What is not kept here, the system keeps, once for all. Four times as much was no faster over 60,000 calls,
and was 57 MB that no one else could use."""
CHECKPOINT_PAGES = 4_000
"""After this many pages the log is folded into the file, which waits for the disk: rarely."""
LOG_BYTES_KEPT = 64 * 1024 * 1024
CLASHES = frozenset({"40001", "40P01"})
"""What a database answers, as SQLSTATE, to one of two transactions of which only one can be: that they cannot
be put in an order, or wait for each other. Nothing of it was written, and done again it may well be."""
UNREADABLE = "unreadable"
"""The one key of what is read where a row holds JSON that is none, so that its other columns can be."""
UNREADABLE_CHARS_MAX = 200


def make_engine(
    url: str, *, writer: bool, full_sync: bool = False, busy_timeout_ms: int = BUSY_TIMEOUT_MS
) -> sa.Engine:
    """An engine whose transactions begin IMMEDIATE (writer) or as plain snapshots (readers)."""
    engine = sa.create_engine(
        url,
        json_serializer=_serialize,
        json_deserializer=_parse,
        pool_size=1 if writer else READER_THREADS,
        max_overflow=0 if writer else 2,
        **({"connect_args": {"check_same_thread": False}} if url.startswith("sqlite") else {}),
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
    return engine


def explain(error: DBAPIError) -> SkyError | ConflictError | None:
    """What a failure of the database means to a caller, where it means something to them."""
    if getattr(error.orig, "sqlstate", None) in CLASHES:
        return ConflictError(f"the database had to choose between two transactions: {error.orig}")
    text = str(error.orig).lower()
    if "locked" in text or "busy" in text:
        return Busy("the database is held by another process; try again", after_s=1.0)
    if "full" in text or "disk i/o" in text or "readonly" in text or "unable to open" in text:
        return StorageFull("the disk that holds the database is full or read-only; nothing was written")
    return None


def _parse(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {UNREADABLE: text[:UNREADABLE_CHARS_MAX]}


def _serialize(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _tune_sqlite(engine: sa.Engine, begin: str, pragmas: Sequence[str]) -> None:
    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves; the driver's own is deferred
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        say(connection, begin)

    del _connect, _begin  # registered; the names are for a reader of a trace
