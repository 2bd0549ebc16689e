"""The one door for writing: facts, rows, keys, events."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa
from tests.proof import record
from tests.store.support import compute_row, contents, execution_row, node_row, task_row

from sky.domain import node as n
from sky.domain import task as t
from sky.domain.errors import IdempotencyConflict, NotFound
from sky.domain.lifecycle import IllegalMoveError
from sky.kit.clock import ManualClock
from sky.store import events, schema
from sky.store.commits import Committed
from sky.store.db import Database
from sky.store.tx import IDEMPOTENCY_KEPT_US, ConflictError, Event, Tx
from sky.wire import v1


async def put(db: Database, noun: str, *rows: dict[str, Any], event: str | None = None) -> None:
    await db.write(lambda tx: tx.add(noun, rows, event=event))


async def row_of(db: Database, table: sa.Table, key: str) -> dict[str, Any]:
    found = await db.read(lambda c: c.execute(sa.select(table).where(table.c.id == key)).mappings().one())
    return dict(found)


# ── facts ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_fact_is_applied_once(db: Database) -> None:
    await put(db, "executions", execution_row())
    fact = t.ExecutionAssigned("exe_1", "nod_1", 3, 7)
    assert await db.write(lambda tx: tx.apply(fact)) == 1
    before = contents(db)
    assert await db.write(lambda tx: tx.apply(fact)) == 0
    assert contents(db) == before
    row = await row_of(db, schema.executions, "exe_1")
    assert (row["state"], row["node_id"], row["rank"], row["assigned_us"], row["version"]) == (
        "assigned",
        "nod_1",
        3,
        7,
        2,
    )


async def test_many_facts_of_several_kinds_are_applied_together(db: Database) -> None:
    many = [f"tsk_{number}" for number in range(700)]
    await put(db, "tasks", *(task_row(key) for key in many), event="task.queued")
    facts = [t.TaskStarted(key) for key in many] + [t.TaskCancelled("tsk_1", 5), t.TaskFailed("tsk_2", 6)]
    assert await db.write(lambda tx: tx.apply(*facts)) == 702
    log = await db.read(lambda c: events.replay(c, 700, events.Filter(), limit=1_000))
    assert [e.name for e in log] == ["task.started"] * 700 + ["task.cancelled", "task.failed"]
    row = await row_of(db, schema.tasks, "tsk_2")
    assert (row["state"], row["finished_us"], row["outcome_seq"]) == ("failed", 6, log[-1].seq)


A_FUNCTION = """
CREATE FUNCTION pg_temp.other() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN UPDATE nodes SET version = 99 WHERE id = NEW.id; RETURN NULL; END $$
"""
A_TRIGGER = """
CREATE TRIGGER other BEFORE UPDATE ON nodes FOR EACH ROW WHEN (NEW.state = 'failed')
EXECUTE FUNCTION pg_temp.other()
"""
OF_A_FILE = """
CREATE TEMP TRIGGER other BEFORE UPDATE ON nodes WHEN NEW.state = 'failed'
BEGIN UPDATE nodes SET version = 99 WHERE id = NEW.id; SELECT RAISE(IGNORE); END
"""
MEDDLING = {"sqlite": (OF_A_FILE,), "postgresql": (A_FUNCTION, A_TRIGGER)}


async def test_a_row_written_meanwhile_by_somebody_else_is_a_conflict(db: Database) -> None:
    await put(db, "nodes", node_row())

    def verb(tx: Tx) -> None:
        # A trigger writes the row between our reading and our writing of it, as another daemon would.
        for step in MEDDLING[tx.connection.dialect.name]:
            tx.connection.exec_driver_sql(step)
        tx.apply(n.NodeFailed("nod_1", None, 1))

    with pytest.raises(ConflictError, match="somebody else"):
        await db.write(verb)
    row = await row_of(db, schema.nodes, "nod_1")
    assert (row["state"], row["version"]) == ("requested", 1)


async def test_a_fact_about_no_row_is_a_conflict(db: Database) -> None:
    with pytest.raises(ConflictError, match="exe_none"):
        await db.write(lambda tx: tx.apply(t.ExecutionDispatched("exe_none")))


async def test_an_illegal_move_writes_nothing_of_its_verb(db: Database) -> None:
    await put(db, "executions", execution_row(), execution_row("exe_2", ordinal=2))
    before = contents(db)

    def verb(tx: Tx) -> None:
        tx.apply(t.ExecutionAssigned("exe_1", "nod_1", 0, 1))
        tx.touch("somewhere/1")
        tx.apply(t.ExecutionDispatched("exe_2"))

    with pytest.raises(IllegalMoveError):
        await db.write(verb)
    assert contents(db) == before


async def test_an_event_says_what_the_row_is_afterwards(db: Database) -> None:
    await put(db, "computes", compute_row(), event="compute.created")
    await put(db, "nodes", node_row(rank=4), event="node.requested")
    error = {"code": "busy", "message": "no quota", "retryable": True}
    await db.write(lambda tx: tx.apply(n.NodeFailed("nod_1", error, 9)))
    log = await db.read(lambda c: events.replay(c, 0, events.Filter()))
    assert [(e.seq, e.name, e.compute_id, e.node_id, e.task_id) for e in log] == [
        (1, "compute.created", "cmp_1", None, None),
        (2, "node.requested", "cmp_1", "nod_1", None),
        (3, "node.failed", "cmp_1", "nod_1", None),
    ]
    assert log[2].payload == (
        '{"type":"node.state","compute":"cmp_1","node":"nod_1","state":"failed","error":"no quota","rank":4}'
    )


# ── keys ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_key_gives_the_first_answer_again(db: Database) -> None:
    made: list[int] = []

    def ask(tx: Tx) -> tuple[Any, bool]:
        return tx.once("k", "f" * 64, lambda: made.append(1) or {"id": "x", "many": [1, None]})

    assert await db.write(ask) == ({"id": "x", "many": [1, None]}, False)
    assert await db.write(ask) == ({"id": "x", "many": [1, None]}, True)
    assert made == [1]


async def test_a_key_with_another_request_is_refused(db: Database) -> None:
    await db.write(lambda tx: tx.once("POST:k-1", "a" * 64, lambda: 1))
    with pytest.raises(IdempotencyConflict, match="'k-1'"):
        await db.write(lambda tx: tx.once("POST:k-1", "b" * 64, lambda: 2))
    assert (await db.write(lambda tx: tx.once("POST:k-1", "a" * 64, lambda: 3)))[0] == 1


async def test_without_a_key_it_is_simply_done(db: Database) -> None:
    made: list[int] = []
    for _ in range(2):
        assert await db.write(lambda tx: tx.once(None, "f", lambda: made.append(1) or "x")) == ("x", False)
    assert made == [1, 1]
    assert contents(db)["idempotency"] == []


async def test_a_key_of_a_request_that_was_refused_is_free(db: Database) -> None:
    def refuse() -> None:
        raise NotFound("no such thing")

    with pytest.raises(NotFound):
        await db.write(lambda tx: tx.once("k", "a" * 64, refuse))
    assert await db.write(lambda tx: tx.once("k", "b" * 64, lambda: 1)) == (1, False)


async def test_a_key_expires_and_is_forgotten(db: Database, clock: ManualClock) -> None:
    await db.write(lambda tx: tx.once("old", "a" * 64, lambda: 1))
    clock.advance(IDEMPOTENCY_KEPT_US / 1_000_000 - 1)
    await db.write(lambda tx: tx.once("young", "a" * 64, lambda: 1))
    assert (await db.write(lambda tx: tx.once("old", "a" * 64, lambda: 2))) == (1, True)
    clock.advance(2)
    await db.write(lambda tx: tx.forget_keys())
    assert [row[0] for row in contents(db)["idempotency"]] == ["young"]
    assert await db.write(lambda tx: tx.once("old", "b" * 64, lambda: 3)) == (3, False)


async def test_an_expired_key_that_was_not_forgotten_yet_is_used_anew(
    db: Database, clock: ManualClock
) -> None:
    await db.write(lambda tx: tx.once("k", "a" * 64, lambda: 1))
    clock.advance(IDEMPOTENCY_KEPT_US / 1_000_000 + 1)
    assert await db.write(lambda tx: tx.once("k", "b" * 64, lambda: 2)) == (2, False)
    assert await db.write(lambda tx: tx.once("k", "b" * 64, lambda: 3)) == (2, True)


async def test_one_key_used_by_many_at_once_is_one_effect(db: Database) -> None:
    def submit(tx: Tx) -> tuple[Any, bool]:
        return tx.once(
            "k", "f" * 64, lambda: (tx.add("tasks", [task_row()], event="task.queued"), "tsk_1")[1]
        )

    answers = await asyncio.gather(*(db.write(submit) for _ in range(20)))
    assert sorted(replayed for _, replayed in answers) == [False] + [True] * 19
    assert {answer for answer, _ in answers} == {"tsk_1"}
    assert len(contents(db)["events"]) == 1


async def test_one_key_used_by_several_daemons_at_once_is_one_effect(
    database_url: str, clock: ManualClock
) -> None:
    daemons = [Database(database_url, clock, lambda _: ()) for _ in range(4)]
    for one in daemons:
        one.start()

    def submit(tx: Tx) -> tuple[Any, bool]:
        return tx.once(
            "k", "f" * 64, lambda: (tx.add("tasks", [task_row()], event="task.queued"), "tsk_1")[1]
        )

    answers = await asyncio.gather(*(one.write(submit) for one in daemons for _ in range(10)))
    assert sum(not replayed for _, replayed in answers) == 1
    assert len(contents(daemons[0])["tasks"]) == 1
    record(daemons=len(daemons), requests=len(answers), effects=1)
    for one in daemons:
        one.close()


# ── events ──────────────────────────────────────────────────────────────────────────────────────


async def test_the_log_has_no_gap_whatever_is_refused(db: Database) -> None:
    def verb(number: int) -> Any:
        def write(tx: Tx) -> int:
            tx.emit(
                "node.console", v1.ConsoleEvent(compute="c", node="n", content=str(number)), compute_id="c"
            )
            if number % 3 == 0:
                raise NotFound(str(number))
            return number

        return write

    told: list[Event] = []
    db.listen(lambda committed: told.extend(committed.events))
    answers = await asyncio.gather(*(db.write(verb(x)) for x in range(300)), return_exceptions=True)
    assert sum(isinstance(x, NotFound) for x in answers) == 100
    log = await db.read(lambda c: events.replay(c, 0, events.Filter(), limit=1_000))
    assert [e.seq for e in log] == list(range(1, 201))
    assert [e.seq for e in told] == [e.seq for e in log], "and it is told in the order of its numbers"


async def test_the_log_of_several_daemons_has_no_gap(database_url: str, clock: ManualClock) -> None:
    daemons = [Database(database_url, clock, lambda _: ()) for _ in range(3)]
    for one in daemons:
        one.start()
    payload = v1.ConsoleEvent(compute="c", node="n", content="x")
    verbs = (lambda tx: tx.emit("node.console", payload, compute_id="c"),)
    await asyncio.gather(*(one.write(verbs[0]) for one in daemons for _ in range(50)))
    log = await daemons[0].read(lambda c: events.replay(c, 0, events.Filter(), limit=1_000))
    assert [e.seq for e in log] == list(range(1, 151))
    for one in daemons:
        one.close()


async def test_keys_are_told_once_and_made_due(db: Database, clock: ManualClock) -> None:
    told: list[Committed] = []
    db.listen(told.append)

    def verb(tx: Tx) -> None:
        tx.touch("loop/1")
        tx.signal("someone")
        tx.touch("loop/1")
        tx.add("executions", [execution_row(), execution_row("exe_2", ordinal=2)])

    await db.write(verb)
    (committed,) = told
    assert committed.events == ()
    assert committed.keys == (
        "~someone",
        "~knock/exe_1",
        "~knock/exe_2",
        "loop/1",
        "looked/exe_1",
        "looked/exe_2",
    )
    due = {row[0]: row[2] for row in contents(db)["passes"]}
    assert due == dict.fromkeys(("loop/1", "looked/exe_1", "looked/exe_2"), clock.now_us())


async def test_nothing_written_nothing_told(db: Database) -> None:
    told: list[Committed] = []
    db.listen(told.append)
    await db.write(lambda tx: None)
    with pytest.raises(NotFound):
        await db.write(_touch_and_refuse)
    await asyncio.sleep(0)
    assert told == []


def _touch_and_refuse(tx: Tx) -> None:
    tx.touch("loop/1")
    tx.signal("someone")
    raise NotFound("nothing")
