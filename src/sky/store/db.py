"""The database: one writer thread, a few reader threads, and what is told after a commit.

Decides: how statements reach the database. ``write`` runs a verb inside a short IMMEDIATE transaction that
several verbs may share (``store/writer``); ``read`` runs a query on a snapshot.
Never: blocks the event loop, calls out while a transaction is open, or retries a verb that was refused.
Follows: when ``write`` returns, what the verb did is on disk, its events are published and its wakes are
out; when it raises, nothing of it was written.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import sqlalchemy as sa
import structlog
from sqlalchemy.exc import DBAPIError

from sky.domain.errors import Busy, SkyError, StorageFull
from sky.kit import faults, spans
from sky.kit.clock import Clock
from sky.store.commits import (
    ANYTHING,
    Attended,
    Committed,
    Follower,
    Job,
    Listener,
    Meters,
    Outcome,
    made_by,
    nothing,
)
from sky.store.engine import BUSY_TIMEOUT_MS, READER_THREADS, explain, let_go, make_engine
from sky.store.line import WRITES_WAITING_MAX, Line
from sky.store.neighbours import Neighbours
from sky.store.reserve import Reserve
from sky.store.tx import ConflictError, Tx, WakeRule
from sky.store.writer import Writer

T = TypeVar("T")
_log = structlog.get_logger(__name__)


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
        busy_timeout_ms: int = BUSY_TIMEOUT_MS,
        neighbours: Neighbours | None = None,
        reserve: Reserve | None = None,
    ) -> None:
        self.url = url
        self.clock = clock
        self._neighbours = neighbours
        self._threaded = threaded
        self._writer_engine = make_engine(
            url, writer=True, full_sync=full_sync, busy_timeout_ms=busy_timeout_ms
        )
        self._writer = Writer(self._writer_engine, clock, wakes, neighbours, reserve)
        self._reader_engine = make_engine(url, writer=False, busy_timeout_ms=busy_timeout_ms)
        self._listeners: list[Listener] = []
        self._attended = self._writer.attended
        self._line: Line[Job] = Line()
        self._readers = ThreadPoolExecutor(READER_THREADS, "sky-read") if threaded else None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._local = threading.local()
        self._reading: list[sa.Connection] = []
        self._closed = False
        self.meters = Meters()
        self.asked_s = float("-inf")
        """When somebody last asked for something and waited for it."""

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self._writer_engine.dialect.name

    @property
    def waiting(self) -> int:
        """How many verbs wait for the writer."""
        return len(self._line)

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` on the event loop after every commit that recorded or woke anything."""
        self._listeners.append(listener)

    def follow(self, loops: frozenset[str], follower: Follower) -> None:
        """Let ``follower`` look at every key of those loops in the transaction that touched it.

        It is called with a transaction and the key, and may only read, plan and write. What it cannot do
        then, or raises at, is left due for the loop itself. It saves a commit and two changes of thread.
        """
        self._writer.followed, self._writer.follower = loops, follower

    def attend(
        self, key: str, verb: Callable[[Tx], T], take: Callable[[T | None, BaseException | None], None]
    ) -> Callable[[], None]:
        """Run ``verb`` in every transaction that signals ``key``, instead of waking whoever waits for it.

        What it returns is given to ``take`` on the event loop after the commit, in the order of commits; so
        is what it raised, or why the transaction was not committed. Returns how to stop. Of a key that is
        attended twice, the newer one is.
        """
        mine = self._attended["~" + key] = Attended(verb, take)

        def stop() -> None:
            if self._attended.get("~" + key) is mine:
                del self._attended["~" + key]

        return stop

    def start(self) -> None:
        """Begin to serve, on the running event loop."""
        if self._threaded and self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._write_forever, name="sky-write", daemon=True)
            if self._neighbours is not None:
                self._read_here(self._neighbours.begin)
                self._neighbours.listen(self._hear)
            self._thread.start()

    def close(self) -> None:
        """Finish what was accepted, then close every connection. What comes later is refused as busy."""
        self._closed = True
        if self._neighbours is not None:
            self._neighbours.close()
        if self._thread is not None:
            self._line.end()
            self._thread.join()
            self._thread = None
        if self._readers is not None:
            self._readers.shutdown(wait=True)
        self._writer.drop()
        for connection in self._reading:
            connection.close()
        self._reading.clear()
        self._writer_engine.dispose()
        self._reader_engine.dispose()

    def asked(self) -> None:
        """Somebody waits for an answer: what nobody waits for may take its time for a moment."""
        self.asked_s = self.clock.monotonic_s()

    async def write(self, verb: Callable[[Tx], T], *, later: bool = False) -> T:
        """Run ``verb`` in a transaction; returns once it is committed. Raises Busy, StorageFull, its own.

        ``later``: nobody waits for an answer, so it lets those pass for whom somebody does.
        """
        if self._closed:
            raise Busy("the daemon is ending; try again when it is back", after_s=1.0)
        if not self._threaded:
            return self._write_here(verb, later)
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if not later:
            self.asked()
        if not self._line.put(Job(verb, done, later=later), later=later):
            raise Busy(f"{WRITES_WAITING_MAX} writes are waiting already; try again", after_s=1.0)
        with spans.span("db.write"):
            return await done

    async def read(self, query: Callable[[sa.Connection], T]) -> T:
        """Run ``query`` on a snapshot of what is committed. Raises Busy, StorageFull, its own."""
        if self._closed:
            raise Busy("the daemon is ending; try again when it is back", after_s=1.0)
        if self._readers is None:
            return self._read_here(query)
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read_here, query)

    def _read_here(self, query: Callable[[sa.Connection], T]) -> T:
        connection: sa.Connection | None = getattr(self._local, "connection", None)
        if connection is not None and connection.closed:
            connection = None
        try:
            if connection is None:
                connection = self._reader_engine.connect()
                self._local.connection = connection
                self._reading.append(connection)
            with connection.begin():
                return query(connection)
        except DBAPIError as error:
            if connection is not None:  # it may be in any state: the next query opens another
                self._local.connection = None
                self._reading.remove(connection)
                let_go(connection)
            if (known := explain(error)) is not None:
                raise known from error
            raise

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    def _write_here(self, verb: Callable[[Tx], T], later: bool) -> T:
        try:
            outcomes = self._writer.commit([Job(verb, None, later=later)])
        except Exception as error:
            self._give(self._writer.ran, error)
            raise
        outcome = outcomes[0]
        if outcome.error is not None:
            raise outcome.error
        faults.point("after commit")
        self._tell(made_by(outcomes))
        self._give(self._writer.ran, None)
        return outcome.value

    def _write_forever(self) -> None:
        while jobs := self._line.take():
            self._serve(jobs)

    def _serve(self, jobs: list[Job]) -> None:
        broken: BaseException | None = None
        began_s = self.clock.monotonic_s()
        jobs, heard = self._sorted(jobs)
        try:
            outcomes = self._writer.commit(jobs) if jobs else []
        except BaseException as error:
            broken = error
            outcomes = [Outcome(job, error=error) for job in jobs]
        if jobs:
            failed = broken is not None or any(isinstance(one.error, StorageFull) for one in outcomes)
            self.meters.seen(self.clock.monotonic_s() - began_s, len(jobs), failed=failed)
        told = self._with_missed(made_by(outcomes), heard)
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._finish, outcomes, broken, self._writer.ran, told)

    def _hear(self, keys: tuple[str, ...] | None) -> None:
        """Another daemon has committed. What is heard waits in line as what is written does: in order."""
        heard = ANYTHING if keys is None else frozenset(keys)
        self._line.put(Job(nothing, None, heard), later=False)

    def _sorted(self, jobs: list[Job]) -> tuple[list[Job], frozenset[str]]:
        """What is to be written, and what was heard; of that, what is attended here is written too."""
        heard = frozenset[str]().union(*(job.heard for job in jobs if job.heard is not None))
        rest = [job for job in jobs if job.heard is None]
        mine = [key for key in list(self._attended) if key in heard or heard >= ANYTHING]
        if mine:
            rest.append(Job(lambda tx: [tx.signal(key[1:]) for key in mine], None, heard))
        return rest, heard - set(mine)

    def _with_missed(self, made: Committed, heard: frozenset[str]) -> Committed:
        """What this daemon tells its own readers: first what others have recorded before it."""
        neighbours = self._neighbours
        if neighbours is None or not (heard or made.events or neighbours.owe):
            return made
        keys = tuple(dict.fromkeys((*made.keys, *sorted(heard - ANYTHING))))
        try:
            missed = self._read_here(lambda c: neighbours.missed(c, made.events))
        except (SkyError, ConflictError, DBAPIError) as error:
            # What is written is written. Its events are told later, behind those before them.
            _log.warning("events.not_read", error=str(error))
            neighbours.owe, told = True, tuple(event for event in made.events if not event.seq)
        else:
            neighbours.owe, told = False, (*missed, *made.events)
        return Committed(told, keys, anything=heard >= ANYTHING)

    def _finish(
        self,
        outcomes: Sequence[Outcome],
        broken: BaseException | None,
        ran: Sequence[tuple[Attended, Outcome]],
        told: Committed,
    ) -> None:
        try:
            self._tell(told)
        finally:
            try:
                self._give(ran, broken)
            finally:
                for outcome in outcomes:
                    self._answer(outcome)

    def _answer(self, outcome: Outcome) -> None:
        done = outcome.job.done
        if done is None or done.done():  # whoever asked has stopped waiting; it is written all the same
            return
        if outcome.error is not None:
            done.set_exception(outcome.error)
        else:
            done.set_result(outcome.value)

    def _give(self, ran: Sequence[tuple[Attended, Outcome]], broken: BaseException | None) -> None:
        """Hand out what was read for those who attend."""
        for attended, outcome in ran:
            error = broken or outcome.error
            attended.take(outcome.value if error is None else None, error)

    def _tell(self, committed: Committed) -> None:
        if committed.events or committed.keys or committed.anything:
            for listener in self._listeners:
                listener(committed)
