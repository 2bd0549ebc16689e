"""The database: one writer thread, a few reader threads, and what is told after a commit.

Decides: how statements reach the database. ``write`` runs a verb inside a short IMMEDIATE transaction that
several verbs may share, each in a savepoint of its own; ``read`` runs a query on a snapshot.
Never: blocks the event loop, calls out while a transaction is open, or retries a verb that was refused.
Follows: when ``write`` returns, what the verb did is on disk, its events are published and its wakes are
out; when it raises, nothing of it was written.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from sky.domain.errors import Busy, SkyError, StorageFull
from sky.kit import faults
from sky.kit.clock import Clock
from sky.store.tx import Event, Tx, WakeRule

T = TypeVar("T")

BUSY_TIMEOUT_MS = 10_000
VERBS_PER_COMMIT_MAX = 128
READER_THREADS = 2
CACHE_KIB = 65_536


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit made true: recorded events in their order, and keys whose loops should look."""

    events: tuple[Event, ...]
    keys: tuple[str, ...]


Listener = Callable[[Committed], None]


@dataclass(slots=True)
class _Job:
    verb: Callable[[Tx], Any]
    done: Future[Any]


@dataclass(slots=True)
class _Outcome:
    job: _Job
    value: Any = None
    error: BaseException | None = None
    tx: Tx | None = field(default=None)


def _serialize(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def make_engine(url: str, *, writer: bool, full_sync: bool = False) -> sa.Engine:
    """An engine whose transactions begin IMMEDIATE (writer) or as plain snapshots (readers)."""
    engine = sa.create_engine(
        url,
        json_serializer=_serialize,
        json_deserializer=msgspec.json.decode,
        pool_size=1 if writer else READER_THREADS,
        max_overflow=0 if writer else 2,
        **({"connect_args": {"check_same_thread": False}} if url.startswith("sqlite") else {}),
    )
    if engine.dialect.name == "sqlite":
        _tune_sqlite(engine, begin="BEGIN IMMEDIATE" if writer else "BEGIN", full_sync=full_sync)
    return engine


def _tune_sqlite(engine: sa.Engine, *, begin: str, full_sync: bool) -> None:
    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves; the driver's own is deferred
        for pragma in (
            f"busy_timeout={BUSY_TIMEOUT_MS}",
            "journal_mode=WAL",
            f"synchronous={'FULL' if full_sync else 'NORMAL'}",
            "foreign_keys=ON",
            f"cache_size=-{CACHE_KIB}",
            "temp_store=MEMORY",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(begin)

    del _connect, _begin  # registered; the names are for a reader of a trace


def explain(error: DBAPIError) -> SkyError | None:
    """What a failure of the database means to a caller, where it means something to them."""
    text = str(error.orig).lower()
    if "locked" in text or "busy" in text:
        return Busy("the database is held by another process; try again", after_s=1.0)
    if "full" in text or "disk i/o" in text or "readonly" in text:
        return StorageFull("the disk that holds the database is full or read-only; nothing was written")
    return None


class Database:
    """All access to the data. ``threaded=False`` runs everything in the caller, for tests in virtual time."""

    def __init__(
        self,
        url: str,
        clock: Clock,
        wakes: WakeRule,
        *,
        threaded: bool = True,
        full_sync: bool = False,
    ) -> None:
        self.url = url
        self.clock = clock
        self._wakes = wakes
        self._threaded = threaded
        self._writer_engine = make_engine(url, writer=True, full_sync=full_sync)
        shared_memory = ":memory:" in url or url in {"sqlite://", "sqlite:///"}
        self._reader_engine = self._writer_engine if shared_memory else make_engine(url, writer=False)
        self._listeners: list[Listener] = []
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._readers = ThreadPoolExecutor(READER_THREADS, "sky-read") if threaded else None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._local = threading.local()

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self._writer_engine.dialect.name

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` on the event loop after every commit that recorded or woke anything."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Begin to serve, on the running event loop."""
        if self._threaded and self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._write_forever, name="sky-write", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Finish what was accepted, then close every connection."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        if self._readers is not None:
            self._readers.shutdown(wait=True)
        self._writer_engine.dispose()
        self._reader_engine.dispose()

    async def write(self, verb: Callable[[Tx], T]) -> T:
        """Run ``verb`` in a transaction; returns once it is committed."""
        if not self._threaded:
            return self._write_here(verb)
        job = _Job(verb, Future())
        self._queue.put(job)
        return await asyncio.wrap_future(job.done)

    async def read(self, query: Callable[[sa.Connection], T]) -> T:
        """Run ``query`` on a snapshot of what is committed."""
        if self._readers is None:
            return self._read_here(query)
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read_here, query)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def _read_here(self, query: Callable[[sa.Connection], T]) -> T:
        connection: sa.Connection | None = getattr(self._local, "connection", None)
        if connection is None or connection.closed or self._reader_engine is self._writer_engine:
            connection = self._reader_engine.connect()
            self._local.connection = connection
        try:
            with connection.begin():
                return query(connection)
        except DBAPIError as error:
            if (known := explain(error)) is not None:
                raise known from error
            raise
        finally:
            if self._reader_engine is self._writer_engine:
                connection.close()

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    def _write_here(self, verb: Callable[[Tx], T]) -> T:
        with self._writer_engine.connect() as connection:
            outcomes = self._commit(connection, [_Job(verb, Future())])
        outcome = outcomes[0]
        if outcome.error is not None:
            raise outcome.error
        faults.point("after commit")
        self._tell(outcomes)
        return outcome.value

    def _write_forever(self) -> None:
        while True:
            job = self._queue.get()
            if job is None:
                return
            jobs, last = [job], False
            while len(jobs) < VERBS_PER_COMMIT_MAX:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    last = True
                    break
                jobs.append(more)
            self._serve(jobs)
            if last:
                return

    def _serve(self, jobs: list[_Job]) -> None:
        try:
            with self._writer_engine.connect() as connection:
                outcomes = self._commit(connection, jobs)
        except BaseException as error:
            outcomes = [_Outcome(job, error=error) for job in jobs]
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._finish, outcomes)

    def _finish(self, outcomes: Sequence[_Outcome]) -> None:
        self._tell(outcomes)
        for outcome in outcomes:
            if outcome.job.done.cancelled() or not outcome.job.done.set_running_or_notify_cancel():
                continue
            if outcome.error is not None:
                outcome.job.done.set_exception(outcome.error)
            else:
                outcome.job.done.set_result(outcome.value)

    def _tell(self, outcomes: Sequence[_Outcome]) -> None:
        done = [o.tx for o in outcomes if o.tx is not None]
        events = tuple(e for tx in done for e in tx.events)
        keys = tuple(dict.fromkeys(k for tx in done for k in tx.keys))
        if events or keys:
            committed = Committed(events, keys)
            for listener in self._listeners:
                listener(committed)

    def _commit(self, connection: sa.Connection, jobs: Sequence[_Job]) -> list[_Outcome]:
        try:
            with connection.begin():
                outcomes = [self._run(connection, job, alone=len(jobs) == 1) for job in jobs]
                if any(o.tx is not None for o in outcomes):
                    faults.point("before commit")
        except DBAPIError as error:
            raise explain(error) or error from error
        except _Refused as refused:
            return [_Outcome(jobs[0], error=refused.error)]
        return outcomes

    def _run(self, connection: sa.Connection, job: _Job, *, alone: bool) -> _Outcome:
        tx = Tx(connection, self.clock.now_us(), self._wakes)
        if not alone:
            connection.exec_driver_sql("SAVEPOINT verb")
        try:
            value = job.verb(tx)
            tx.flush()
        except Exception as error:
            if alone:
                raise _Refused(error) from error
            connection.exec_driver_sql("ROLLBACK TO verb")
            connection.exec_driver_sql("RELEASE verb")
            known = explain(error) if isinstance(error, DBAPIError) else None
            return _Outcome(job, error=known or error)
        if not alone:
            connection.exec_driver_sql("RELEASE verb")
        return _Outcome(job, value, tx=tx)


class _Refused(Exception):
    """Carries a verb's own refusal out of the transaction that it was alone in, so that it is rolled back."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        known = explain(error) if isinstance(error, DBAPIError) else None
        self.error = known or error
