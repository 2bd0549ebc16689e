"""The one door for writing.

``apply`` is how a state moves: it asks the noun's table, writes the row only if nobody wrote it since it was
read, and records the event, in the same transaction. Decides: nothing of its own. Never: commits, calls out,
or retries. Follows: a repeat writes nothing; an illegal move raises; which loops should look again is noted
durably beside the effect, so that losing a process between two steps loses no work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import sqlalchemy as sa

from sky.domain import account, cluster, cluster_job, compute, job, node, request, task
from sky.domain.errors import IdempotencyConflict
from sky.domain.lifecycle import Fact, Table, advance
from sky.kit import codec
from sky.store import schema, schema_jobs, schema_requests
from sky.store.payloads import payload_for
from sky.store.prepared import Prepared, inserted, places, prepared
from sky.store.sql import insert_ignore, upsert

IDEMPOTENCY_KEPT_US = 7 * 24 * 3600 * 1_000_000


class Event(NamedTuple):
    """One recorded (``seq`` > 0) or merely published (``seq`` 0) event; ``payload`` is JSON."""

    seq: int
    name: str
    payload: str
    compute_id: str | None = None
    node_id: str | None = None
    task_id: str | None = None
    at_us: int = 0


class Moved(NamedTuple):
    """A fact that moved a row, with the columns of that row that tell who else is concerned."""

    fact: Fact
    noun: str
    row: Mapping[str, Any]


class Born(NamedTuple):
    """A row that did not exist does now. Birth wakes like any other fact."""

    noun: str
    row: Mapping[str, Any]


WakeRule = Callable[[Moved | Born], Iterable[str]]
"""Keys of the loops that should look again; one that begins with ``~`` is only a signal, kept nowhere."""


class ConflictError(Exception):
    """Somebody else moved the row first. Read again and decide again."""


@dataclass(frozen=True, slots=True)
class Noun:
    """Where a noun is kept, how it moves, and which columns its wakes and events need."""

    name: str
    table: sa.Table
    moves: Table
    context: tuple[str, ...]


NOUNS = (
    Noun("computes", schema.computes, compute.MOVES, ("id", "lease_owner", "generation", "owner")),
    Noun("nodes", schema.nodes, node.MOVES, ("id", "compute_id", "rank")),
    Noun("tasks", schema.tasks, task.TASK_MOVES, ("id", "compute_id", "owner", "correlation_id")),
    Noun("executions", schema.executions, task.EXECUTION_MOVES, ("id", "compute_id", "task_id", "node_id")),
    Noun("accounts", schema_jobs.accounts, account.MOVES, ("id",)),
    Noun("jobs", schema_jobs.jobs, job.MOVES, ("id", "owner", "compute_id")),
    Noun("requests", schema_requests.requests, request.MOVES, ("id", "cluster_id")),
    Noun("clusters", schema_requests.clusters, cluster.MOVES, ("id",)),
    Noun("cluster_jobs", schema_requests.cluster_jobs, cluster_job.MOVES, ("id", "cluster_id")),
)
_HOME: dict[type[Fact], Noun] = {fact: noun for noun in NOUNS for fact in noun.moves}
_BY_NAME = {noun.name: noun for noun in NOUNS}


class Tx:
    """An open transaction. Everything that a verb may do to the data, and nothing else."""

    def __init__(
        self,
        connection: sa.Connection,
        now_us: int,
        wakes: WakeRule,
        followed: frozenset[str] = frozenset(),
    ) -> None:
        self.connection = connection
        self.now_us = now_us
        self.events: list[Event] = []
        self.keys: list[str] = []
        self.moved: set[type[Fact]] = set()
        """Facts that moved a row."""
        self.births = 0
        """Rows that did not exist before, of nouns that have states."""
        self.spared = False
        """A verb says that it is to be written on a full disk too, though neither facts nor rows tell why."""
        self._wakes = wakes
        self._touched: dict[str, None] = {}
        self._followed = followed
        self.following: dict[str, None] = {}
        """Keys whose loops look in this very transaction, so that they need not be noted as due."""
        self._read: dict[str, dict[str, Mapping[str, Any]]] = {}

    # ── states ──────────────────────────────────────────────────────────────────────────────────

    def remember(self, noun: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Rows that this transaction has just read, so that ``apply`` need not read them again.

        They have id, state, version, seq and the noun's context at least. Nobody else writes between; if
        anybody did, the version would tell.
        """
        self._read.setdefault(noun, {}).update((row["id"], row) for row in rows)

    def apply(self, *facts: Fact) -> int:
        """Move the rows that ``facts`` are about; returns how many moved (a repeat does not).

        Facts of one type are written together; a row may have at most one fact of each type in a call.
        """
        moved = 0
        groups: dict[type[Fact], list[Fact]] = {}
        for fact in facts:
            groups.setdefault(type(fact), []).append(fact)
        for kind, group in groups.items():
            moved += self._apply(kind, group)
        return moved

    def _apply(self, kind: type[Fact], group: Sequence[Fact]) -> int:
        noun = _HOME[kind]
        rows = self._rows(noun, [fact.id for fact in group])
        columns = _columns(kind)
        changes: list[dict[str, Any]] = []
        moved: list[Moved] = []
        for fact in group:
            row = rows.get(fact.id)
            if row is None:
                msg = f"{kind.__name__} is about {fact.id}, and there is no such row"
                raise ConflictError(msg)
            state = advance(noun.moves, row["state"], fact)
            if state is None:
                continue
            values = {name: getattr(fact, name) for name in columns}
            values["state"] = state
            moved.append(Moved(fact, noun.name, {**row, **values, "version": row["version"] + 1}))
            values["b_seq"], values["b_version"] = row["seq"], row["version"]
            changes.append(values)
        if not changes:
            return 0
        name = noun.moves[kind].event
        seqs = self._reserve(len(moved)) if name else range(0)
        if name and noun.name == "tasks" and kind not in (task.TaskStarted, task.TaskRetried):
            for change, seq in zip(changes, seqs, strict=True):
                change["outcome_seq"] = seq
        written = _update(kind, "outcome_seq" in changes[0]).run(self.connection, *changes)
        if written != len(changes):
            msg = f"a {noun.name} row was written by somebody else meanwhile ({kind.__name__})"
            raise ConflictError(msg)
        self.moved.add(kind)
        self.remember(noun.name, (one.row for one in moved))
        for index, one in enumerate(moved):
            if name:
                self._record(seqs[index], name, one)
            self._wake(one)
        return len(moved)

    def _rows(self, noun: Noun, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """Those rows, as this transaction has read or written them, or as they are."""
        known = self._read.setdefault(noun.name, {})
        unread = [row_id for row_id in ids if row_id not in known]
        if unread:
            self.remember(noun.name, _select(noun.name).all(self.connection, {"ids": unread}))
        return known

    # ── rows ────────────────────────────────────────────────────────────────────────────────────

    def add(self, noun: str, rows: Sequence[Mapping[str, Any]], *, event: str | None = None) -> None:
        """Insert rows of a noun that has states; ``event`` is recorded for each."""
        if not rows:
            return
        self.births += len(rows)
        home = _BY_NAME[noun]
        _insert(home.name, tuple(rows[0])).run(self.connection, *rows)
        seqs = self._reserve(len(rows)) if event else range(0)
        for index, row in enumerate(rows):
            born = Born(noun, row)
            if event:
                self._record(seqs[index], event, born)
            self._wake(born)

    def once(
        self,
        key: str | None,
        fingerprint: str,
        make: Callable[[], Any],
        *,
        kept_us: int = IDEMPOTENCY_KEPT_US,
    ) -> tuple[Any, bool]:
        """Do it and remember the answer under ``key``, or give the answer of the first time.

        Returns (answer, whether it is a replay). ``answer`` is anything JSON can hold, and not None. Another
        fingerprint under the same key is refused. Without a key it is simply done.
        """
        if key is None:
            return make(), False
        known = self.remembered(key, fingerprint, kept_us=kept_us)
        if known is not None:
            return known, True
        answer = make()
        row = {"key": key, "fingerprint": fingerprint, "answer": answer, "created_us": self.now_us}
        _REMEMBER.run(self.connection, row)
        return answer, False

    def remembered(self, key: str | None, fingerprint: str, *, kept_us: int = IDEMPOTENCY_KEPT_US) -> Any:
        """What ``once`` has remembered under ``key`` for this fingerprint; None when that is nothing."""
        if key is None:
            return None
        if self.connection.dialect.name == "postgresql":
            # There, two may ask with one key at once: the second waits here until the first has written.
            _TAKE_TURNS.first(self.connection, {"b_key": key})
        found = _REMEMBERED.first(self.connection, {"b_key": key, "b_since": self.now_us - kept_us})
        if found is None:
            return None
        if found["fingerprint"] != fingerprint:
            shown = key.split(":", 1)[-1]
            msg = f"Idempotency-Key {shown!r} was used for another request; a new one needs a new key"
            raise IdempotencyConflict(msg, details={"key": shown})
        return found["answer"]

    def forget_keys(self) -> None:
        """Forget what ``once`` remembered for long enough."""
        table = schema.idempotency
        self.connection.execute(
            sa.delete(table).where(table.c.created_us < self.now_us - IDEMPOTENCY_KEPT_US)
        )

    # ── events and wakes ────────────────────────────────────────────────────────────────────────

    def emit(
        self,
        name: str,
        payload: Any,
        *,
        compute_id: str | None = None,
        node_id: str | None = None,
        task_id: str | None = None,
    ) -> None:
        """Record an event that moves no state: output, or a step of a node's making."""
        (seq,) = self._reserve(1)
        text = codec.dumps(payload)
        self.events.append(Event(seq, name, text, compute_id, node_id, task_id, self.now_us))

    def signal(self, key: str) -> None:
        """Wake whoever waits for ``key`` in a process, after the commit. Kept nowhere."""
        self.keys.append("~" + key)

    def touch(self, key: str) -> None:
        """Make a loop's key due."""
        if key.split("/", 1)[0] in self._followed:
            self.following[key] = None
        else:
            self._touched[key] = None

    def flush(self) -> None:
        """Write what was gathered: the events, and the keys that are due now."""
        rows = [
            {
                "seq": e.seq,
                "at_us": e.at_us,
                "name": e.name,
                "compute_id": e.compute_id,
                "node_id": e.node_id,
                "task_id": e.task_id,
                "payload": e.payload,
            }
            for e in self.events
            if e.seq > 0
        ]
        _LOG.run(self.connection, *rows)
        if self._touched:
            due = [{"key": key, "due_us": self.now_us, "version": 1, "failures": 0} for key in self._touched]
            _DUE.run(self.connection, *due)
            self.keys.extend(self._touched)
            self._touched = {}

    def _record(self, seq: int, name: str, about: Moved | Born) -> None:
        row = about.row
        noun = about.noun
        payload = codec.dumps(payload_for(noun, name, row, about.fact if isinstance(about, Moved) else None))
        compute_id = row["id"] if noun == "computes" else row["compute_id"]
        node_id = row["id"] if noun == "nodes" else None
        task_id = row["id"] if noun == "tasks" else None
        self.events.append(Event(seq, name, payload, compute_id, node_id, task_id, self.now_us))

    def _wake(self, about: Moved | Born) -> None:
        for key in self._wakes(about):
            if key.startswith("~"):
                self.keys.append(key)
            else:
                self.touch(key)

    def _reserve(self, count: int) -> range:
        asked = {"b_name": "events", "b_by": count}
        last = _COUNT.scalar(self.connection, asked)
        if last is None:
            _BEGIN_COUNTING.run(self.connection, {"name": "events", "value": 0})
            last = _COUNT.scalar(self.connection, asked)
        return range(last - count + 1, last + 1)


_COUNT = prepared(
    sa.update(schema.counters)
    .where(schema.counters.c.name == sa.bindparam("b_name"))
    .values(value=schema.counters.c.value + sa.bindparam("b_by"))
    .returning(schema.counters.c.value)
)
_BEGIN_COUNTING = Prepared(lambda dialect, _: insert_ignore(dialect, schema.counters, ["name", "value"]))
_LOG = inserted(schema.events, [column.name for column in schema.events.columns])
_DUE = Prepared(
    lambda dialect, _: upsert(
        dialect,
        schema.passes,
        ["key"],
        ["key", "due_us", "version", "failures"],
        lambda fresh: {"due_us": fresh.due_us, "version": schema.passes.c.version + 1},
    )
)
_TAKE_TURNS = prepared(
    sa.select(
        sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(sa.bindparam("b_key"), 0)).label("taken")
    )
)
_REMEMBERED = prepared(
    sa.select(schema.idempotency.c.fingerprint, schema.idempotency.c.answer).where(
        schema.idempotency.c.key == sa.bindparam("b_key"),
        schema.idempotency.c.created_us > sa.bindparam("b_since"),
    )
)
_REMEMBER = Prepared(
    lambda dialect, _: upsert(
        dialect, schema.idempotency, ["key"], [column.name for column in schema.idempotency.columns]
    )
)


@cache
def _columns(kind: type[Fact]) -> tuple[str, ...]:
    return tuple(name for name in kind.__struct_fields__ if name != "id")


@cache
def _select(noun: str) -> Prepared:
    home = _BY_NAME[noun]
    names = dict.fromkeys((*home.context, "state", "version", "seq"))
    query = sa.select(*(home.table.c[n] for n in names))
    return Prepared(lambda _, count: query.where(home.table.c.id.in_(places("ids", count))), "ids")


@cache
def _insert(noun: str, names: tuple[str, ...]) -> Prepared:
    return inserted(_BY_NAME[noun].table, names)


@cache
def _update(kind: type[Fact], with_seq: bool) -> Prepared:
    table = _HOME[kind].table
    names = ["state", *_columns(kind)]
    if with_seq and "outcome_seq" not in names:
        names.append("outcome_seq")
    values: dict[str, Any] = {name: sa.bindparam(name, type_=table.c[name].type) for name in names}
    values["version"] = table.c.version + 1
    if kind.intent:
        values["revision"] = table.c.revision + 1
    return prepared(
        sa.update(table)
        .where(table.c.seq == sa.bindparam("b_seq"), table.c.version == sa.bindparam("b_version"))
        .values(values)
    )
