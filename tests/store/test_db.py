"""The database under many hands: shared commits, locks, full disks, deaths."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from tests.databases import copy_files, fresh
from tests.proof import record
from tests.store.support import empty, execution_row, inline, task_row, wakes

from sky.domain import task as t
from sky.domain.errors import Busy, NotFound, StorageFull
from sky.kit.clock import ManualClock, SystemClock
from sky.store import schema
from sky.store.commits import Committed
from sky.store.db import Database
from sky.store.engine import explain, make_engine
from sky.store.line import PASSES_PER_COMMIT_MAX, VERBS_PER_COMMIT_MAX, WRITES_WAITING_MAX
from sky.store.neighbours import Neighbours
from sky.store.reserve import Reserve
from sky.store.tx import ConflictError, Event, Tx

COUNT = sa.select(sa.func.count()).select_from(schema.tasks)


def add(number: int, **more: Any) -> Callable[[Tx], int]:
    """A verb that adds one task with its event."""

    def verb(tx: Tx) -> int:
        tx.add("tasks", [task_row(f"tsk_{number}", **more)], event="task.queued")
        return number

    return verb


def refuse(number: int) -> Callable[[Tx], int]:
    """A verb that writes, and is refused after all."""

    def verb(tx: Tx) -> int:
        add(number)(tx)
        raise NotFound(f"{number} is refused")

    return verb


class Held:
    """Keeps the writer in a verb, so that what is asked meanwhile waits together."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self.go = threading.Event()

    def __call__(self, _tx: Tx) -> None:
        self.inside.set()
        assert self.go.wait(20)


async def hold(db: Database) -> tuple[Held, asyncio.Task[None]]:
    held = Held()
    task = asyncio.create_task(db.write(held))
    assert await asyncio.to_thread(held.inside.wait, 10)
    return held, task


async def count(db: Database) -> int:
    return await db.read(lambda c: c.execute(COUNT).scalar_one())


# ── sharing a commit ────────────────────────────────────────────────────────────────────────────


async def test_verbs_that_wait_share_a_commit(db: Database) -> None:
    told: list[Committed] = []
    db.listen(told.append)
    held, first = await hold(db)
    asked = [asyncio.create_task(db.write(add(number))) for number in range(50)]
    await asyncio.sleep(0)
    held.go.set()
    assert await asyncio.gather(*asked) == list(range(50))
    await first
    assert [len(committed.events) for committed in told] == [50]
    assert [e.task_id for e in told[0].events] == [f"tsk_{n}" for n in range(50)], "in the order they came"


async def test_a_commit_is_shared_by_so_many_and_no_more(db: Database) -> None:
    told: list[Committed] = []
    db.listen(told.append)
    held, first = await hold(db)
    asked = [asyncio.create_task(db.write(add(number))) for number in range(VERBS_PER_COMMIT_MAX + 5)]
    await asyncio.sleep(0)
    held.go.set()
    await asyncio.gather(first, *asked)
    assert [len(committed.events) for committed in told] == [VERBS_PER_COMMIT_MAX, 5]


async def test_loops_let_those_pass_for_whom_somebody_waits(db: Database) -> None:
    told: list[Committed] = []
    db.listen(told.append)
    held, first = await hold(db)
    passes = range(100, 100 + PASSES_PER_COMMIT_MAX + 1)
    later = [asyncio.create_task(db.write(add(number), later=True)) for number in passes]
    await asyncio.sleep(0)
    asked = [asyncio.create_task(db.write(add(number))) for number in range(3)]
    await asyncio.sleep(0)
    held.go.set()
    await asyncio.gather(first, *asked, *later)
    tasks = [[e.task_id for e in committed.events] for committed in told]
    assert tasks[0][:3] == ["tsk_0", "tsk_1", "tsk_2"], "whoever came after them goes first"
    assert [len(one) for one in tasks] == [3 + PASSES_PER_COMMIT_MAX, 1], "and they go on beside"


async def test_who_attends_a_key_reads_in_the_transaction_that_signals_it(db: Database) -> None:
    told: list[Committed] = []
    db.listen(told.append)
    taken: list[tuple[int | None, BaseException | None]] = []
    ids = sa.select(schema.tasks.c.id)

    def look(tx: Tx) -> int:
        add(100 + len(tx.connection.execute(ids).all()))(tx)
        return len(tx.connection.execute(ids).all())

    leave = db.attend("shelf", look, lambda value, error: taken.append((value, error)))

    def knock(tx: Tx) -> int:
        tx.signal("shelf")
        tx.signal("other")
        return add(1)(tx)

    assert await db.write(knock) == 1
    assert taken == [(2, None)], "it was given what it read before whoever asked went on"
    assert [len(c.events) for c in told] == [2], "one commit"
    assert "~other" in told[0].keys
    assert "~shelf" not in told[0].keys, "nobody else need be woken for it"
    leave()
    await db.write(lambda tx: tx.signal("shelf"))
    assert len(taken) == 1
    assert "~shelf" in told[-1].keys


async def test_who_fails_while_attending_spoils_nobody_elses_write(db: Database) -> None:
    taken: list[tuple[int | None, BaseException | None]] = []
    db.attend("shelf", refuse(2), lambda value, error: taken.append((value, error)))

    def knock(tx: Tx) -> int:
        tx.signal("shelf")
        return add(1)(tx)

    assert await db.write(knock) == 1
    assert await count(db) == 1
    ((value, error),) = taken
    assert value is None
    assert isinstance(error, NotFound)


async def test_who_attends_is_told_when_the_commit_failed(db: Database, monkeypatch: Any) -> None:
    taken: list[tuple[int | None, BaseException | None]] = []
    db.attend("shelf", add(2), lambda value, error: taken.append((value, error)))

    def full(name: str) -> None:
        if name == "before commit":
            failed = sqlite3.OperationalError("database or disk is full")
            failed.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise sa.exc.OperationalError("COMMIT", None, failed)

    monkeypatch.setattr("sky.store.db.faults.point", full)
    with pytest.raises(StorageFull):
        await db.write(lambda tx: tx.signal("shelf"))
    ((value, error),) = taken
    assert value is None
    assert isinstance(error, StorageFull)
    monkeypatch.undo()
    assert await count(db) == 0


async def test_one_that_is_refused_leaves_the_others_of_its_commit_intact(db: Database) -> None:
    held, first = await hold(db)
    verbs = [refuse(n) if n % 3 == 1 else add(n) for n in range(30)]
    asked = [asyncio.create_task(db.write(verb)) for verb in verbs]
    await asyncio.sleep(0)
    held.go.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    await first
    for number, answer in enumerate(answers):
        assert isinstance(answer, NotFound) if number % 3 == 1 else answer == number
    found = await db.read(lambda c: {row.id for row in c.execute(sa.select(schema.tasks.c.id))})
    assert found == {f"tsk_{n}" for n in range(30) if n % 3 != 1}


async def test_one_that_the_database_refuses_leaves_the_others_intact(db: Database) -> None:
    held, first = await hold(db)
    asked = [asyncio.create_task(db.write(add(number // 2))) for number in range(6)]
    await asyncio.sleep(0)
    held.go.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    await first
    assert [type(x).__name__ for x in answers] == ["int", "IntegrityError"] * 3
    assert await count(db) == 3


async def test_alone_or_not_a_refusal_is_the_verbs_own(db: Database) -> None:
    with pytest.raises(NotFound, match="7 is refused"):
        await db.write(refuse(7))
    with pytest.raises(sa.exc.IntegrityError):
        await db.write(lambda tx: tx.add("tasks", [task_row(), task_row()]))
    assert await count(db) == 0
    assert await db.write(add(8)) == 8


async def test_whoever_stops_waiting_has_asked_all_the_same(db: Database) -> None:
    held, first = await hold(db)
    asked = asyncio.create_task(db.write(add(1)))
    await asyncio.sleep(0)
    asked.cancel()
    held.go.set()
    await first
    assert await db.write(add(2)) == 2
    assert await count(db) == 2


async def test_too_many_at_once_are_told_to_come_again(db: Database) -> None:
    held, first = await hold(db)
    asked = [asyncio.create_task(db.write(lambda tx: None)) for _ in range(WRITES_WAITING_MAX)]
    await asyncio.sleep(0)
    with pytest.raises(Busy, match="waiting") as refused:
        await db.write(add(1))
    assert refused.value.after_s
    held.go.set()
    await asyncio.gather(first, *asked)
    assert await db.write(add(1)) == 1


async def test_one_that_attends_and_fails_keeps_no_answer_from_others(db: Database) -> None:
    def broken(value: object, error: BaseException | None) -> None:
        raise RuntimeError("a defect of whoever attends")

    loop = asyncio.get_running_loop()
    told: list[str] = []
    loop.set_exception_handler(lambda _, context: told.append(str(context["exception"])))
    leave = db.attend("shelf", lambda tx: None, broken)
    try:
        async with asyncio.timeout(60):
            await db.write(lambda tx: tx.signal("shelf"))
    finally:
        leave()
        loop.set_exception_handler(None)
    assert told == ["a defect of whoever attends"]


async def test_closing_finishes_what_was_accepted_and_refuses_the_rest(database_url: str) -> None:
    db = Database(database_url, SystemClock(), wakes)
    db.start()
    asked = [asyncio.create_task(db.write(add(number))) for number in range(20)]
    await asyncio.sleep(0)
    db.close()
    assert await asyncio.gather(*asked) == list(range(20))
    for late in (db.write(add(99)), db.read(lambda c: None)):
        with pytest.raises(Busy, match="ending"):
            await late
    other = inline(database_url)
    assert await count(other) == 20
    other.close()


async def test_a_read_sees_one_moment(db: Database) -> None:
    await db.write(add(1))
    ready, go = threading.Event(), threading.Event()

    def look(connection: sa.Connection) -> tuple[int, int]:
        before = connection.execute(COUNT).scalar_one()
        ready.set()
        assert go.wait(10)
        return before, connection.execute(COUNT).scalar_one()

    reading = asyncio.create_task(db.read(look))
    assert await asyncio.to_thread(ready.wait, 10)
    await db.write(add(2))
    go.set()
    assert await reading == (1, 1)
    assert await count(db) == 2


async def test_the_event_loop_never_waits_for_the_database(db: Database) -> None:
    held, first = await hold(db)
    for _ in range(5):
        assert await count(db) == 0, "reads go on beside a writer"
    held.go.set()
    await first


# ── other processes ─────────────────────────────────────────────────────────────────────────────

LOCKER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
"""


PG_LOCKER = """
import sys
import sqlalchemy as sa
from sky.store.engine import WRITER_LOCK
with sa.create_engine(sys.argv[1]).begin() as connection:
    connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({WRITER_LOCK})"))
    print("locked", flush=True)
    sys.stdin.readline()
"""


def lock(url: str) -> subprocess.Popen[str]:
    """Another process that holds the database until it is told to let go."""
    of_file = url.startswith("sqlite")
    process = subprocess.Popen(
        [sys.executable, "-c", LOCKER if of_file else PG_LOCKER, url.removeprefix("sqlite:///")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


@pytest.mark.real
async def test_a_database_locked_by_another_process_is_waited_for_and_then_busy(database_url: str) -> None:
    db = Database(database_url, SystemClock(), wakes, busy_timeout_ms=800)
    patient = Database(database_url, SystemClock(), wakes, busy_timeout_ms=60_000)
    db.start()
    patient.start()
    locker = lock(database_url)
    began = time.monotonic()
    with pytest.raises(Busy, match="another process") as refused:
        await db.write(add(1))
    assert time.monotonic() - began >= 0.7
    assert refused.value.after_s
    assert await count(db) == 0, "reads go on"
    waiting = asyncio.create_task(patient.write(add(2)))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    locker.communicate("go\n", timeout=60)
    assert await waiting == 2
    assert await count(db) == 1, "what was refused as busy was not written"
    patient.close()
    db.close()


class Deaf(Neighbours):
    """While it is deaf its database fails when it is asked what others have recorded, in a way that means
    nothing known."""

    deaf = True

    def missed(self, connection: sa.Connection, own: Sequence[Event]) -> tuple[Event, ...]:
        if self.deaf:
            connection.execute(sa.text("SELECT 1 / 0"))
        return super().missed(connection, own)


async def test_events_that_cannot_be_read_stop_no_write_and_are_told_later_in_order(tmp_path: Path) -> None:
    url = fresh(tmp_path / "sky.db", postgresql=True)
    ear = Deaf(url, "one")
    one = Database(url, SystemClock(), wakes, neighbours=ear)
    other = Database(url, SystemClock(), wakes, neighbours=Neighbours(url, "other"))
    told: list[int] = []
    one.listen(lambda committed: told.extend(event.seq for event in committed.events))
    one.start()
    other.start()
    try:
        async with asyncio.timeout(60):
            for number in range(3):
                assert await other.write(add(2 * number)) == 2 * number
                assert await one.write(add(2 * number + 1)) == 2 * number + 1
            assert await count(one) == 6
            assert told == [], "none is told before those that came before it"
            ear.deaf = False
            await one.write(lambda _: None)
            while len(told) < 6:
                await asyncio.sleep(0.01)
        assert told == [1, 2, 3, 4, 5, 6]
    finally:
        one.close()
        other.close()


# ── a full disk ─────────────────────────────────────────────────────────────────────────────────


def fill(folder: Path) -> Path:
    """Leave no byte free."""
    ballast = folder / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        for size in (65_536, 4_096, 512, 1):
            while True:
                try:
                    file.write(b"x" * size)
                except OSError:
                    break
    return ballast


async def test_a_full_disk_is_told_writes_nothing_and_is_recovered_from(small_disk: Path) -> None:
    db = Database(empty(small_disk / "sky.db"), SystemClock(), wakes)
    db.start()
    await db.write(add(0))
    ballast = fill(small_disk)
    big = {"owner": "x" * 70, "correlation_id": "y" * 250}
    written, full = 1, 0
    for number in range(1, 400):
        try:
            await db.write(add(number, **big))
            written += 1
        except StorageFull:
            full += 1
    assert full > 0, "there is some room in the files themselves, and not for so much"
    assert await count(db) == written, "reads still work, and what was refused is not there"
    held, first = await hold(db)
    together = [asyncio.create_task(db.write(add(1_000 + number, **big))) for number in range(60)]
    await asyncio.sleep(0)
    held.go.set()
    answers = await asyncio.gather(*together, return_exceptions=True)
    await asyncio.gather(first, return_exceptions=True)
    kept = sum(isinstance(answer, int) for answer in answers)
    assert {type(answer) for answer in answers} <= {int, StorageFull}
    assert await count(db) == written + kept
    ballast.unlink()
    assert await db.write(add(5_000)) == 5_000
    assert await count(db) == written + kept + 1
    record(written=written + kept, refused_and_not_there=full + len(answers) - kept)
    db.close()
    with sqlite3.connect(small_disk / "sky.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        seqs = [row[0] for row in connection.execute("SELECT seq FROM events ORDER BY seq")]
    assert seqs == list(range(1, len(seqs) + 1))


async def test_on_a_full_disk_what_is_under_way_is_ended_and_nothing_begins(small_disk: Path) -> None:
    """Some hundred ends, for which there would be no room at all."""
    kept = Reserve(small_disk / "reserve", 1024 * 1024)
    db = Database(empty(small_disk / "sky.db"), SystemClock(), wakes, reserve=kept)
    db.start()
    await db.write(lambda tx: [add(number)(tx) for number in range(300)])

    def end(number: int) -> Callable[[Tx], int]:
        return lambda tx: tx.apply(t.TaskCancelled(f"tsk_{number}", tx.now_us))

    def begin_and_end(tx: Tx) -> int:
        return end(299)(tx) + add(6_000)(tx)

    ballast = fill(small_disk)
    big = {"owner": "x" * 70, "correlation_id": "y" * 250}
    begun = [db.write(add(number, **big)) for number in range(1_000, 1_400)]
    assert StorageFull in {type(answer) for answer in await asyncio.gather(*begun, return_exceptions=True)}
    assert kept.whole, "what begins takes nothing of it"
    assert [await db.write(end(number)) for number in range(150)] == [1] * 150
    assert not kept.whole
    with pytest.raises(StorageFull, match="only ends"):
        await db.write(add(5_000))
    with pytest.raises(StorageFull, match="only ends"):
        await db.write(begin_and_end)
    assert await db.write(end(0)) == 0, "what was done writes nothing, and needs no room"
    verbs = [verb for number in range(150, 299) for verb in (end(number), add(number + 7_000))]
    together = [asyncio.create_task(db.write(verb)) for verb in verbs]
    answers = await asyncio.gather(*together, return_exceptions=True)
    assert answers[::2] == [1] * 149
    assert {type(answer) for answer in answers[1::2]} == {StorageFull}
    ended = await db.read(_ended)
    assert ended == {f"tsk_{number}" for number in range(299)}
    ballast.unlink()
    assert await db.write(add(5_000)) == 5_000
    assert kept.whole, "it is kept back again"
    record(ended=len(ended), refused_and_not_there=sum(isinstance(one, StorageFull) for one in answers))
    db.close()
    with sqlite3.connect(small_disk / "sky.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def _ended(connection: sa.Connection) -> set[str]:
    tasks = schema.tasks.c
    return {row.id for row in connection.execute(sa.select(tasks.id).where(tasks.state == "cancelled"))}


# ── deaths ──────────────────────────────────────────────────────────────────────────────────────

WRITER = """
import asyncio, sys
from sky.kit.clock import SystemClock
from sky.store.db import Database
from tests.store.support import task_row, wakes

async def main():
    db = Database(sys.argv[1], SystemClock(), wakes)
    db.start()
    for number in range(int(sys.argv[2]), 10**9):
        await db.write(lambda tx: tx.add("tasks", [task_row(f"tsk_{number}")], event="task.queued"))
        print(number, flush=True)

asyncio.run(main())
"""


@pytest.mark.real
def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    url = empty(tmp_path / "sky.db")
    root = Path(__file__).parents[2]
    said = -1
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, url, str(said + 1_000)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
        )
        assert process.stdout is not None
        for _ in range(150):
            said = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        for line in process.stdout.read().splitlines():
            said = int(line) if line.isdigit() else said
        process.wait(10)
        with sqlite3.connect(tmp_path / "sky.db") as connection:
            found = {row[0] for row in connection.execute("SELECT id FROM tasks")}
            seqs = [row[0] for row in connection.execute("SELECT seq FROM events ORDER BY seq")]
        assert f"tsk_{said}" in found
        assert seqs == list(range(1, len(found) + 1)), "each with its event, and nothing by halves"
        record(kills=1, writes_answered=150)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_files_copied_while_it_writes_open_clean(db: Database, tmp_path: Path) -> None:
    for number in range(40):
        await db.write(add(number))
    writing = [asyncio.create_task(db.write(add(number))) for number in range(40, 140)]
    await asyncio.sleep(0.02)
    copy = tmp_path / "copy"
    copy.mkdir()
    await asyncio.to_thread(copy_files, tmp_path, copy)
    await asyncio.gather(*writing)
    with sqlite3.connect(copy / "sky.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        tasks = connection.execute("SELECT count(*) FROM tasks").fetchone()[0]
        seqs = [row[0] for row in connection.execute("SELECT seq FROM events ORDER BY seq")]
    assert tasks >= 40
    assert seqs == list(range(1, tasks + 1))


async def test_without_threads_it_is_the_same(database_url: str) -> None:
    db = inline(database_url, ManualClock())
    told: list[Committed] = []
    db.listen(told.append)
    await db.write(add(1))
    with pytest.raises(NotFound):
        await db.write(refuse(2))
    await db.write(lambda tx: tx.add("executions", [execution_row()]))
    assert await count(db) == 1
    assert len(told) == 2
    assert database_url.startswith(db.dialect)
    db.close()


async def test_text_with_a_nul_is_kept_or_not_found_and_breaks_nothing(db: Database) -> None:
    name = sa.select(schema.tasks.c.correlation_id).where(schema.tasks.c.id == "tsk_1")
    await db.write(add(1, correlation_id="a\0b"))
    kept = await db.read(lambda c: c.execute(name).scalar())
    assert kept in ("a\0b", "a\ufffdb")
    asked = sa.select(schema.tasks.c.id).where(schema.tasks.c.id == "tsk_\0")
    assert await db.read(lambda c: c.execute(asked).all()) == []


@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_a_choice_between_two_transactions_is_a_conflict(state: str) -> None:
    class Clash(Exception):
        sqlstate = state  # as drivers of PostgreSQL name it

    clash = Clash("could not serialize access due to concurrent update")
    assert isinstance(explain(sa.exc.OperationalError("UPDATE", {}, clash)), ConflictError)


def test_what_was_to_be_written_is_not_in_the_words_of_a_failure(database_url: str) -> None:
    engine = make_engine(database_url, writer=True)
    with engine.connect() as connection, pytest.raises(DBAPIError) as failed:
        connection.execute(sa.text("SELECT :value FROM nowhere"), {"value": "canary-value"})
    engine.dispose()
    assert "nowhere" in str(failed.value)
    assert "canary-value" not in str(failed.value)
