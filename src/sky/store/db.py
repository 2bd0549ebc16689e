"""The database: one writer thread, a few reader threads, and what is told after a commit.

Decides: how statements reach the database. ``write`` runs a verb inside a short IMMEDIATE transaction that
several verbs may share, each in a savepoint of its own; ``read`` runs a query on a snapshot.
Never: blocks the event loop, calls out while a transaction is open, or retries a verb that was refused.
Follows: when ``write`` returns, what the verb did is on disk, its events are published and its wakes are
out; when it raises, nothing of it was written.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from sky.domain.errors import Busy
from sky.kit import faults
from sky.kit.clock import Clock
from sky.store.engine import BUSY_TIMEOUT_MS, READER_THREADS, explain, make_engine
from sky.store.line import WRITES_WAITING_MAX, Line
from sky.store.prepared import say
from sky.store.tx import Event, Tx, WakeRule

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit made true: recorded events in their order, and keys whose loops should look."""

    events: tuple[Event, ...]
    keys: tuple[str, ...]


Listener = Callable[[Committed], None]
Follower = Callable[[Tx, str], bool]


@dataclass(slots=True)
class _Job:
    verb: Callable[[Tx], Any]
    done: asyncio.Future[Any] | None


@dataclass(slots=True)
class _Outcome:
    job: _Job
    value: Any = None
    error: BaseException | None = None
    tx: Tx | None = field(default=None)
    attended: str = ""


@dataclass(frozen=True, slots=True)
class _Attended:
    verb: Callable[[Tx], Any]
    take: Callable[[Any, BaseException | None], None]


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
    ) -> None:
        self.url = url
        self.clock = clock
        self._wakes = wakes
        self._threaded = threaded
        self._writer_engine = make_engine(
            url, writer=True, full_sync=full_sync, busy_timeout_ms=busy_timeout_ms
        )
        self._reader_engine = make_engine(url, writer=False, busy_timeout_ms=busy_timeout_ms)
        self._listeners: list[Listener] = []
        self._follower: Follower | None = None
        self._followed: frozenset[str] = frozenset()
        self._attended: dict[str, _Attended] = {}
        self._ran: list[tuple[_Attended, _Outcome]] = []
        self._line: Line[_Job] = Line()
        self._readers = ThreadPoolExecutor(READER_THREADS, "sky-read") if threaded else None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writer: sa.Connection | None = None
        self._local = threading.local()
        self._reading: list[sa.Connection] = []
        self._closed = False

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self._writer_engine.dialect.name

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` on the event loop after every commit that recorded or woke anything."""
        self._listeners.append(listener)

    def follow(self, loops: frozenset[str], follower: Follower) -> None:
        """Let ``follower`` look at every key of those loops in the transaction that touched it.

        It is called with a transaction and the key, and may only read, plan and write. What it cannot do
        then, or raises at, is left due for the loop itself. It saves a commit and two changes of thread.
        """
        self._followed, self._follower = loops, follower

    def attend(
        self, key: str, verb: Callable[[Tx], T], take: Callable[[T | None, BaseException | None], None]
    ) -> Callable[[], None]:
        """Run ``verb`` in every transaction that signals ``key``, instead of waking whoever waits for it.

        What it returns is given to ``take`` on the event loop after the commit, in the order of commits; so
        is what it raised, or why the transaction was not committed. Returns how to stop. Of a key that is
        attended twice, the newer one is.
        """
        mine = self._attended["~" + key] = _Attended(verb, take)

        def stop() -> None:
            if self._attended.get("~" + key) is mine:
                del self._attended["~" + key]

        return stop

    def start(self) -> None:
        """Begin to serve, on the running event loop."""
        if self._threaded and self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._write_forever, name="sky-write", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Finish what was accepted, then close every connection. What comes later is refused as busy."""
        self._closed = True
        if self._thread is not None:
            self._line.end()
            self._thread.join()
            self._thread = None
        if self._readers is not None:
            self._readers.shutdown(wait=True)
        self._drop_writer()
        for connection in self._reading:
            connection.close()
        self._reading.clear()
        self._writer_engine.dispose()
        self._reader_engine.dispose()

    async def write(self, verb: Callable[[Tx], T], *, later: bool = False) -> T:
        """Run ``verb`` in a transaction; returns once it is committed. Raises Busy, StorageFull, its own.

        ``later``: nobody waits for an answer, so it lets those pass for whom somebody does.
        """
        if self._closed:
            raise Busy("the daemon is ending; try again when it is back", after_s=1.0)
        if not self._threaded:
            return self._write_here(verb)
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if not self._line.put(_Job(verb, done), later=later):
            raise Busy(f"{WRITES_WAITING_MAX} writes are waiting already; try again", after_s=1.0)
        return await done

    async def read(self, query: Callable[[sa.Connection], T]) -> T:
        """Run ``query`` on a snapshot of what is committed. Raises Busy, StorageFull, its own."""
        if self._closed:
            raise Busy("the daemon is ending; try again when it is back", after_s=1.0)
        if self._readers is None:
            return self._read_here(query)
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read_here, query)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def _read_here(self, query: Callable[[sa.Connection], T]) -> T:
        try:
            connection: sa.Connection | None = getattr(self._local, "connection", None)
            if connection is None or connection.closed:
                connection = self._reader_engine.connect()
                self._local.connection = connection
                self._reading.append(connection)
            with connection.begin():
                return query(connection)
        except DBAPIError as error:
            if (known := explain(error)) is not None:
                raise known from error
            raise

    # ── writing ─────────────────────────────────────────────────────────────────────────────────

    def _write_here(self, verb: Callable[[Tx], T]) -> T:
        try:
            outcomes = self._commit([_Job(verb, None)])
        except Exception as error:
            self._give(self._ran, error)
            raise
        outcome = outcomes[0]
        if outcome.error is not None:
            raise outcome.error
        faults.point("after commit")
        self._tell(outcomes)
        self._give(self._ran, None)
        return outcome.value

    def _write_forever(self) -> None:
        while jobs := self._line.take():
            self._serve(jobs)

    def _serve(self, jobs: list[_Job]) -> None:
        broken: BaseException | None = None
        try:
            outcomes = self._commit(jobs)
        except BaseException as error:
            broken = error
            outcomes = [_Outcome(job, error=error) for job in jobs]
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._finish, outcomes, broken, self._ran)

    def _finish(
        self,
        outcomes: Sequence[_Outcome],
        broken: BaseException | None,
        ran: Sequence[tuple[_Attended, _Outcome]],
    ) -> None:
        try:
            self._tell(outcomes)
        finally:
            try:
                self._give(ran, broken)
            finally:
                for outcome in outcomes:
                    self._answer(outcome)

    def _answer(self, outcome: _Outcome) -> None:
        done = outcome.job.done
        if done is None or done.done():  # whoever asked has stopped waiting; it is written all the same
            return
        if outcome.error is not None:
            done.set_exception(outcome.error)
        else:
            done.set_result(outcome.value)

    def _give(self, ran: Sequence[tuple[_Attended, _Outcome]], broken: BaseException | None) -> None:
        """Hand out what was read for those who attend."""
        for attended, outcome in ran:
            error = broken or outcome.error
            attended.take(outcome.value if error is None else None, error)

    def _tell(self, outcomes: Sequence[_Outcome]) -> None:
        done = [o.tx for o in outcomes if o.tx is not None]
        events = tuple(e for tx in done for e in tx.events)
        attended = {o.attended for o in outcomes}
        keys = tuple(dict.fromkeys(k for tx in done for k in tx.keys if k not in attended))
        if events or keys:
            committed = Committed(events, keys)
            for listener in self._listeners:
                listener(committed)

    def _commit(self, jobs: Sequence[_Job]) -> list[_Outcome]:
        self._ran = []
        try:
            if self._writer is None:
                self._writer = self._writer_engine.connect()
            connection = self._writer
            with connection.begin():
                outcomes = [self._run(connection, job, alone=len(jobs) == 1) for job in jobs]
                outcomes += self._follow(connection, [o.tx for o in outcomes if o.tx is not None])
                outcomes += self._attend(connection, [o.tx for o in outcomes if o.tx is not None])
                if any(o.tx is not None for o in outcomes):
                    faults.point("before commit")
        except DBAPIError as error:
            self._drop_writer()
            raise explain(error) or error from error
        except _Refused as refused:
            if isinstance(refused.__cause__, DBAPIError):
                self._drop_writer()
            return [_Outcome(jobs[0], error=refused.error)]
        return outcomes

    def _drop_writer(self) -> None:
        """The next commit opens a connection of its own: this one may be in any state."""
        connection, self._writer = self._writer, None
        if connection is not None:
            connection.close()

    def _run(self, connection: sa.Connection, job: _Job, *, alone: bool) -> _Outcome:
        tx = Tx(connection, self.clock.now_us(), self._wakes, self._followed)
        if not alone:
            say(connection, "SAVEPOINT verb")
        try:
            value = job.verb(tx)
            tx.flush()
        except Exception as error:
            if alone:
                raise _Refused(error) from error
            self._undo(connection, error)
            known = explain(error) if isinstance(error, DBAPIError) else None
            return _Outcome(job, error=known or error)
        if not alone:
            say(connection, "RELEASE verb")
        return _Outcome(job, value, tx=tx)

    def _follow(self, connection: sa.Connection, done: Sequence[Tx]) -> list[_Outcome]:
        outcomes: list[_Outcome] = []
        for key in dict.fromkeys(key for tx in done for key in tx.following):
            tx = Tx(connection, self.clock.now_us(), self._wakes)
            say(connection, "SAVEPOINT verb")
            try:
                if self._follower is None or not self._follower(tx, key):
                    tx.touch(key)
                tx.flush()
            except Exception as error:
                # The loop's own pass will meet it again, and is the one to quarantine the key.
                self._undo(connection, error)
                tx = Tx(connection, self.clock.now_us(), self._wakes)
                tx.touch(key)
                tx.flush()
            else:
                say(connection, "RELEASE verb")
            outcomes.append(_Outcome(_Job(lambda _: None, None), tx=tx))
        return outcomes

    def _attend(self, connection: sa.Connection, done: Sequence[Tx]) -> list[_Outcome]:
        outcomes: list[_Outcome] = []
        if not self._attended:
            return outcomes
        for key in dict.fromkeys(key for tx in done for key in tx.keys if key in self._attended):
            attended = self._attended.get(key)
            if attended is None:  # it stopped just now
                continue
            tx = Tx(connection, self.clock.now_us(), self._wakes)
            outcome = _Outcome(_Job(attended.verb, None), attended=key)
            say(connection, "SAVEPOINT verb")
            try:
                outcome.value = attended.verb(tx)
                tx.flush()
            except Exception as error:
                self._undo(connection, error)
                outcome.error = error
            else:
                say(connection, "RELEASE verb")
                outcome.tx = tx
            outcomes.append(outcome)
            self._ran.append((attended, outcome))
        return outcomes

    def _undo(self, connection: sa.Connection, error: Exception) -> None:
        """Undo one verb. Where its failure has undone the whole transaction, that failure is everybody's."""
        try:
            say(connection, "ROLLBACK TO verb")
            say(connection, "RELEASE verb")
        except DBAPIError:
            raise error from None


class _Refused(Exception):
    """Carries a verb's own refusal out of the transaction that it was alone in, so that it is rolled back."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        known = explain(error) if isinstance(error, DBAPIError) else None
        self.error = known or error
