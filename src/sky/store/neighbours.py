"""Other daemons on the same database: what each of them commits is heard by all.

Decides: how a commit is told (one notification, in the transaction itself), and that what was told while
nobody listened is found out again. Never: carries an event; those are read from the table, in their order.
Follows: a daemon publishes every recorded event once and in order, whoever recorded it; a notification that
was lost delays, and loses nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import msgspec
import sqlalchemy as sa
import structlog

from sky.store.engine import connecting
from sky.store.prepared import prepared
from sky.store.schema import counters, events
from sky.store.tx import Event

CHANNEL = "skyfleet"
PAYLOAD_BYTES_MAX = 7_900
"""What PostgreSQL takes with a notification, and a little less."""
GAP_MAX = 20_000
"""Events that are read again after a silence; who misses more comes back with a cursor."""
PAYLOAD_CHARS_SHOWN = 80
LISTEN_S = 1.0
PAUSE_S = 1.0
_log = structlog.get_logger(__name__)


class Told(msgspec.Struct, frozen=True, array_like=True):
    """A notification: who committed, the newest event, and keys that somebody may wait for (None: many)."""

    who: str
    seq: int
    keys: tuple[str, ...] | None


class Neighbours:
    """One daemon's ear. ``name`` is its own, so that it does not hear itself."""

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._name = name
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._seen = 0
        self._why_deaf: str | None = None
        self.owe = False
        """Events are recorded that could not be read, and that no reader here was told of."""

    def say(self, connection: sa.Connection, seq: int, keys: Sequence[str]) -> None:
        """Tell the others, when this transaction commits."""
        knocks = tuple(key for key in keys if key.startswith("~"))
        body = msgspec.json.encode(Told(self._name, seq, knocks))
        if len(body) > PAYLOAD_BYTES_MAX:
            body = msgspec.json.encode(Told(self._name, seq, None))
        _NOTIFY.first(connection, {"b_channel": CHANNEL, "b_body": body.decode()})

    def begin(self, connection: sa.Connection) -> None:
        """What is recorded by now is not news."""
        query = sa.select(counters.c.value).where(counters.c.name == "events")
        self._seen = connection.execute(query).scalar() or 0

    def missed(self, connection: sa.Connection, own: Sequence[Event]) -> tuple[Event, ...]:
        """What others have recorded before ``own``, and everything new where that is empty; in order."""
        recorded = [event.seq for event in own if event.seq]
        first = recorded[0] if recorded else None
        if first is not None and first <= self._seen + 1:
            self._seen = max(self._seen, recorded[-1])
            return ()
        query = sa.select(events).where(events.c.seq > self._seen)
        if first is not None:
            query = query.where(events.c.seq < first)
        rows = connection.execute(query.order_by(events.c.seq.desc()).limit(GAP_MAX)).all()
        found = [Event(r.seq, r.name, r.payload, r.compute_id, r.node_id, r.task_id, r.at_us) for r in rows]
        found.reverse()
        self._seen = max(self._seen, recorded[-1] if recorded else 0, found[-1].seq if found else 0)
        return tuple(found)

    def listen(self, hear: Callable[[tuple[str, ...] | None], None]) -> None:
        """Call ``hear`` from a thread at each notification with its keys; None: anything may be news."""
        self._thread = threading.Thread(target=self._forever, args=(hear,), name="sky-hear", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _forever(self, hear: Callable[[tuple[str, ...] | None], None]) -> None:
        psycopg = import_module("psycopg")
        while not self._stop.is_set():
            try:
                self._listen(psycopg, hear)
            except psycopg.Error as error:
                if str(error) != self._why_deaf:
                    self._why_deaf = str(error)
                    _log.warning("neighbours.not_heard", error=self._why_deaf)
                self._stop.wait(PAUSE_S)

    def _listen(self, psycopg: Any, hear: Callable[[tuple[str, ...] | None], None]) -> None:
        with psycopg.connect(**connecting(self._url), autocommit=True) as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            if self._why_deaf is not None:
                self._why_deaf = None
                _log.info("neighbours.heard_again")
            hear(None)  # whatever was told while nobody listened here
            while not self._stop.is_set():
                for heard in connection.notifies(timeout=LISTEN_S):
                    self._told(heard.payload, hear)
                    if self._stop.is_set():
                        return
                if self.owe:
                    hear(())  # what could not be read when it was told may be read now

    def _told(self, payload: str, hear: Callable[[tuple[str, ...] | None], None]) -> None:
        try:
            told = msgspec.json.decode(payload, type=Told)
        except msgspec.DecodeError:  # anybody with this database may say anything on any channel of it
            _log.warning("neighbours.not_understood", payload=payload[:PAYLOAD_CHARS_SHOWN])
            hear(None)
            return
        if told.who != self._name:
            hear(told.keys)


_NOTIFY = prepared(
    sa.select(sa.func.pg_notify(sa.bindparam("b_channel"), sa.bindparam("b_body")).label("told"))
)
