"""The one who writes: several verbs in a transaction, and ends where there is no room for anything else.

Decides: what is in a transaction, and which verb may use the room that is kept back. Never: waits for
anybody, or tells what a commit made true (``store/db``).
Follows: one verb's refusal undoes that verb alone; on a full disk each verb is alone, and either ends
something, or writes nothing, or is refused.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from sky.domain.endings import ENDS, KEPT_ALIVE
from sky.domain.errors import SkyError, StorageFull
from sky.kit import faults
from sky.kit.clock import Clock
from sky.store.commits import Attended, Follower, Job, Outcome, Refused, made_by
from sky.store.engine import TAKES_NO_WRITES, Trouble, explain, let_go
from sky.store.neighbours import Neighbours
from sky.store.prepared import say
from sky.store.reserve import Reserve
from sky.store.tx import Tx, WakeRule

PIECES_MAX = 32
"""Of the reserve, for one verb. What makes room is folding the log, for which the file may have to grow."""


class NoEndError(Exception):
    """The disk is full, and the verb would begin something."""


class Writer:
    """A connection that writes. Used by one thread at a time; ``attended`` and the follower by others too."""

    def __init__(
        self,
        engine: sa.Engine,
        clock: Clock,
        wakes: WakeRule,
        neighbours: Neighbours | None,
        reserve: Reserve | None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._wakes = wakes
        self._neighbours = neighbours
        self._reserve = reserve
        self._connection: sa.Connection | None = None
        self.follower: Follower | None = None
        self.followed: frozenset[str] = frozenset()
        self.attended: dict[str, Attended] = {}
        self.ran: list[tuple[Attended, Outcome]] = []
        """What was read for those who attend, in what was last committed, or was to be."""

    def commit(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run verbs in one transaction; or, where there is no room, those that end something, one by one."""
        self.ran = []
        if self._reserve is None:
            return self._commit(jobs)
        if self._reserve.whole or self._reserve.refill():
            try:
                outcomes = self._commit(jobs)
            except StorageFull:
                self.ran = []
            else:
                if not (len(jobs) == 1 and isinstance(outcomes[0].error, StorageFull)):
                    return outcomes
        return [outcome for job in jobs for outcome in self._alone(job, self._reserve)]

    def _alone(self, job: Job, reserve: Reserve) -> list[Outcome]:
        """Run a verb on a full disk, with room from the reserve if it ends something."""
        before, tries = self.ran, 0
        while True:
            self.ran, outcomes = [], list[Outcome]()
            error: SkyError | None = None
            try:
                outcomes = self._commit([job], sparing=True)
            except StorageFull as full:
                error = full
            except NoEndError:
                msg = "the disk that holds the database is full; nothing was written, and only ends still are"
                outcomes = [Outcome(job, error=StorageFull(msg))]
            except (SkyError, DBAPIError) as other:  # it is this verb's alone: others may be written already
                outcomes = [Outcome(job, error=other)]
            else:
                error = outcomes[0].error if isinstance(outcomes[0].error, StorageFull) else None
            if error is None:
                self._fold()  # at once, so that the log takes no room that the file needs
                break
            if tries > PIECES_MAX or (tries and not reserve.give()):
                outcomes = [Outcome(job, error=error)]
                for _, outcome in self.ran:
                    outcome.error = outcome.error or error
                break
            self._fold()
            tries += 1
        self.ran = before + self.ran
        return outcomes

    def _fold(self) -> None:
        """Fold the log into the file. Where all of it could be, it begins anew, in the room that it has."""
        try:
            if self._connection is None:
                self._connection = self._engine.connect()
            raw: Any = self._connection.connection.dbapi_connection
            raw.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except (Trouble, sqlite3.Error):
            self._give_up()

    def _commit(self, jobs: Sequence[Job], *, sparing: bool = False) -> list[Outcome]:
        try:
            if self._connection is None:
                self._connection = self._engine.connect()
            connection = self._connection
            with connection.begin():
                before = _changes(connection) if sparing else 0
                outcomes = [self._run(connection, job, alone=len(jobs) == 1, sparing=sparing) for job in jobs]
                if sparing and _changes(connection) != before and not _may(outcomes[0]):
                    raise NoEndError
                outcomes += self._follow(connection, [o.tx for o in outcomes if o.tx is not None])
                outcomes += self._attend(connection, [o.tx for o in outcomes if o.tx is not None])
                if any(o.tx is not None for o in outcomes):
                    self._say(connection, outcomes)
                    faults.point("before commit")
        except DBAPIError as error:
            self._give_up()
            raise explain(error) or error from error
        except Refused as refused:
            if isinstance(refused.__cause__, DBAPIError):
                self._give_up()
            return [Outcome(jobs[0], error=refused.error)]
        return outcomes

    def _say(self, connection: sa.Connection, outcomes: Sequence[Outcome]) -> None:
        """Tell the daemons beside this one what this transaction makes true."""
        if self._neighbours is None:
            return
        made = made_by([outcome for outcome in outcomes if outcome.job.heard is None])
        if made.events or made.keys:
            self._neighbours.say(connection, made.events[-1].seq if made.events else 0, made.keys)

    def drop(self) -> None:
        """Write no more on this connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _give_up(self) -> None:
        """The next commit opens a connection of its own: this one may be in any state."""
        connection, self._connection = self._connection, None
        if connection is not None:
            let_go(connection)

    def _run(self, connection: sa.Connection, job: Job, *, alone: bool, sparing: bool) -> Outcome:
        # What would be done besides may begin something: where there is no room, it is only noted as due.
        followed = frozenset[str]() if sparing else self.followed
        tx = Tx(connection, self._clock.now_us(), self._wakes, followed)
        if not alone:
            say(connection, "SAVEPOINT verb")
        try:
            value = job.verb(tx)
            tx.flush()
        except Exception as error:
            if alone:
                raise Refused(error) from error
            if _takes_no_writes(error):  # it refuses all of them: another connection may find one that does
                raise
            self._undo(connection, error)
            known = explain(error) if isinstance(error, DBAPIError) else None
            return Outcome(job, error=known or error)
        if not alone:
            say(connection, "RELEASE verb")
        return Outcome(job, value, tx=tx)

    def _follow(self, connection: sa.Connection, done: Sequence[Tx]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for key in dict.fromkeys(key for tx in done for key in tx.following):
            tx = Tx(connection, self._clock.now_us(), self._wakes)
            say(connection, "SAVEPOINT verb")
            try:
                if self.follower is None or not self.follower(tx, key):
                    tx.touch(key)
                tx.flush()
            except Exception as error:
                # The loop's own pass will meet it again, and is the one to quarantine the key.
                self._undo(connection, error)
                tx = Tx(connection, self._clock.now_us(), self._wakes)
                tx.touch(key)
                tx.flush()
            else:
                say(connection, "RELEASE verb")
            outcomes.append(Outcome(Job(lambda _: None, None), tx=tx))
        return outcomes

    def _attend(self, connection: sa.Connection, done: Sequence[Tx]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        if not self.attended:
            return outcomes
        for key in dict.fromkeys(key for tx in done for key in tx.keys if key in self.attended):
            attended = self.attended.get(key)
            if attended is None:  # it stopped just now
                continue
            tx = Tx(connection, self._clock.now_us(), self._wakes)
            outcome = Outcome(Job(attended.verb, None), attended=key)
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
            self.ran.append((attended, outcome))
        return outcomes

    def _undo(self, connection: sa.Connection, error: Exception) -> None:
        """Undo one verb. Where its failure has undone the whole transaction, that failure is everybody's."""
        try:
            say(connection, "ROLLBACK TO verb")
            say(connection, "RELEASE verb")
        except DBAPIError:
            raise error from None


def _changes(connection: sa.Connection) -> int:
    """How many rows were ever written over a connection to a SQLite."""
    raw: Any = connection.connection.dbapi_connection
    return int(raw.total_changes)


def _takes_no_writes(error: Exception) -> bool:
    return isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) == TAKES_NO_WRITES


def _may(outcome: Outcome) -> bool:
    """Whether what a verb has written may use the room that is kept back for ends."""
    tx = outcome.tx
    if tx is None or tx.spared:
        return tx is not None
    if tx.births:
        return False
    return bool(tx.moved & (ENDS | KEPT_ALIVE)) or (outcome.job.later and not (tx.moved or tx.events))
