"""The event log, and the readers that follow it.

Decides: how recorded events are read back, and how new ones reach each reader.
Never: waits for a reader; one that does not keep up is told so and comes back with its cursor.
Follows: whoever subscribes before reading the table misses nothing: what the table does not have yet
arrives in the subscription, and what both have is told apart by its sequence number.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Collection, Sequence

import sqlalchemy as sa
from msgspec import Struct

from sky.store.commits import Committed
from sky.store.schema import counters, events
from sky.store.schema_jobs import job_events
from sky.store.schema_requests import requests
from sky.store.tx import Event, Tx

SUBSCRIPTION_EVENTS_MAX = 10_000
SUBSCRIPTION_BYTES_MAX = 32 * 1024 * 1024
REPLAY_PAGE = 500
REPLAY_BYTES = 256 * 1024
"""A page ends with the event that reaches this: each reader has a page in memory, however slowly it reads."""
REPLAYS_AT_ONCE = 1
"""How many readers of one kind, who begin or who go on, have a page read at a time. The others wait for their
turn, and not in the queue of the database's readers, where everybody else would wait behind them."""
FORGOTTEN_MAX = 5_000
"""Events that are dropped at once."""


class Filter(Struct, frozen=True):
    """Which events a reader wants; empty means all."""

    compute_id: str | None = None
    task_id: str | None = None
    names: frozenset[str] = frozenset()

    def wants(self, event: Event) -> bool:
        """Whether ``event`` passes."""
        if self.names and event.name not in self.names:
            return False
        if self.compute_id is not None and event.compute_id != self.compute_id:
            return False
        return self.task_id is None or event.task_id == self.task_id


class Delivery(Struct, frozen=True):
    """An event and its frame, encoded once for all readers."""

    event: Event
    frame: bytes


class Subscription:
    """One reader's bounded queue. ``lagged`` becomes True when it overflowed; then it is over."""

    __slots__ = ("_bytes", "_ended", "_knock", "_queue", "filter", "lagged")

    def __init__(self, wanted: Filter) -> None:
        self.filter = wanted
        self.lagged = False
        self._ended = False
        self._queue: list[Delivery] = []
        self._bytes = 0
        self._knock = asyncio.Event()

    @property
    def over(self) -> bool:
        """Whether nothing more comes."""
        return self.lagged or self._ended

    def push(self, delivery: Delivery) -> None:
        """Called by the hub."""
        if self.over or len(self._queue) >= SUBSCRIPTION_EVENTS_MAX or self._bytes >= SUBSCRIPTION_BYTES_MAX:
            self.lagged = True
        else:
            self._queue.append(delivery)
            self._bytes += len(delivery.frame)
        self._knock.set()

    async def next(self, timeout_s: float) -> Sequence[Delivery]:
        """Everything that arrived, waiting up to ``timeout_s`` seconds for the first of it."""
        if not self._queue and not self.over:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._knock.wait()
            except TimeoutError:
                return ()
        self._knock.clear()
        taken, self._queue, self._bytes = self._queue, [], 0
        return taken

    def end(self) -> None:
        """Nothing more comes: its reader is let go at once."""
        self._ended = True
        self._knock.set()


class Hub:
    """Hands new events to the readers of this process."""

    def __init__(self) -> None:
        self._all: set[Subscription] = set()
        self._closed = False
        self._turns = (asyncio.Semaphore(REPLAYS_AT_ONCE), asyncio.Semaphore(REPLAYS_AT_ONCE))

    def turn(self, *, begins: bool) -> asyncio.Semaphore:
        """What a reader waits for before it has a page read; ``begins``: its first, before which is no other.

        Who has just come waits for others who have, and not behind those who read a long log.
        """
        return self._turns[0 if begins else 1]

    @property
    def readers(self) -> int:
        """How many follow."""
        return len(self._all)

    @property
    def followed(self) -> bool:
        """Whether anybody follows."""
        return bool(self._all)

    def subscribe(self, wanted: Filter) -> Subscription:
        """Begin to follow; end with ``unsubscribe``."""
        subscription = Subscription(wanted)
        if self._closed:
            subscription.end()
        self._all.add(subscription)
        return subscription

    def close(self) -> None:
        """This process ends: every reader, and who comes yet, is let go and resumes elsewhere."""
        self._closed = True
        for subscription in self._all:
            subscription.end()

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop following."""
        self._all.discard(subscription)

    def on_commit(self, committed: Committed) -> None:
        """Hand out what a commit recorded."""
        self.publish(committed.events)

    def publish(self, new: Collection[Event]) -> None:
        """Hand out events: recorded ones, or (``seq`` 0) ones that are only published."""
        if not self._all:
            return
        for event in new:
            delivery: Delivery | None = None
            for subscription in self._all:
                if subscription.filter.wants(event):
                    delivery = delivery or Delivery(event, frame(event))
                    subscription.push(delivery)


def frame(event: Event) -> bytes:
    """An event as a message of the stream. Text is escaped to ASCII: some readers end lines at U+2028."""
    payload = event.payload
    if not payload.isascii():
        payload = _escaped(payload)
    cursor = f"id: {event.seq}\n" if event.seq else ""
    return f"{cursor}event: {event.name}\ndata: {payload}\n\n".encode()


def _escaped(text: str) -> str:
    """JSON text with its characters beyond ASCII escaped.

    As the text of a string, which is quick however many those are; what that escapes besides is put back.
    """
    return json.dumps(text)[1:-1].replace('\\"', '"').replace("\\\\", "\\")


def replay(
    connection: sa.Connection, after: int, wanted: Filter, limit: int = REPLAY_PAGE
) -> Sequence[Event]:
    """Recorded events after a cursor that pass ``wanted``, in order, at most ``limit``.

    Fewer when they are large; none only when there are none.
    """
    query = sa.select(events).where(events.c.seq > after)
    if wanted.compute_id is not None:
        query = query.where(events.c.compute_id == wanted.compute_id)
    if wanted.task_id is not None:
        query = query.where(events.c.task_id == wanted.task_id)
    if wanted.names:
        query = query.where(events.c.name.in_(sorted(wanted.names)))
    page: list[Event] = []
    size = 0
    with connection.execute(query.order_by(events.c.seq).limit(limit)) as rows:
        for r in rows:
            page.append(Event(r.seq, r.name, r.payload, r.compute_id, r.node_id, r.task_id, r.at_us))
            size += len(r.payload)
            if size >= REPLAY_BYTES:
                break
    return page


def is_full(page: Sequence[Event]) -> bool:
    """Whether a page ended because of its size, so that more may be recorded behind it."""
    return len(page) >= REPLAY_PAGE or sum(len(event.payload) for event in page) >= REPLAY_BYTES


class ForgottenError(Exception):
    """Events that were still to be replayed are not kept any more."""


def replay_to(connection: sa.Connection, after: int, wanted: Filter) -> tuple[Sequence[Event], int]:
    """A page of recorded events, and the newest cursor of which it has missed nothing if it is not full.

    Raises ForgottenError.
    """
    if first_seq(connection) > after + 1:
        raise ForgottenError
    last = last_seq(connection)
    page = replay(connection, after, wanted)
    return page, max(last, page[-1].seq) if page else last


class Replayed(Struct, frozen=True):
    """A page as it goes out. ``cursor``: nothing up to there is missing; ``ends``: nor is anything after."""

    content: bytes
    cursor: int
    ends: bool


def replay_as_sent(connection: sa.Connection, after: int, wanted: Filter) -> Replayed:
    """A page of recorded events, encoded where it is read, so that the event loop is not. Raises
    ForgottenError."""
    page, last = replay_to(connection, after, wanted)
    full = is_full(page)
    cursor = page[-1].seq if full else max(after, last)
    return Replayed(b"".join(map(frame, page)), cursor, not full)


def last_seq(connection: sa.Connection) -> int:
    """The newest cursor there is."""
    found = connection.execute(sa.select(counters.c.value).where(counters.c.name == "events")).scalar()
    return found or 0


def last_at_us(connection: sa.Connection) -> int:
    """The moment of the newest event, of a job's newest or of the newest request (0: there is none)."""
    written = (events, events.c.at_us), (job_events, job_events.c.at_us), (requests, requests.c.created_us)
    newest = (sa.select(at).order_by(table.c.seq.desc()).limit(1) for table, at in written)
    return max(connection.execute(one).scalar() or 0 for one in newest)


def first_seq(connection: sa.Connection) -> int:
    """The oldest recorded event that is still kept (0: none)."""
    return connection.execute(sa.select(sa.func.min(events.c.seq))).scalar() or 0


def forget(tx: Tx, before_us: int, limit: int = FORGOTTEN_MAX) -> int:
    """Drop the oldest events, as far as they are from before that moment; returns how many.

    The newest of all stays, so that what was said last can be told from nothing having been said.
    """
    last = last_seq(tx.connection)
    page = tx.connection.execute(sa.select(events.c.seq, events.c.at_us).order_by(events.c.seq).limit(limit))
    old = [seq for seq, _ in itertools.takewhile(lambda row: row[1] < before_us and row[0] < last, page)]
    if old:
        tx.connection.execute(sa.delete(events).where(events.c.seq <= old[-1]))
    return len(old)
