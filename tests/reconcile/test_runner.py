"""Passes: one a key at a time, quarantined when they raise, found again when their wakes were lost."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
import structlog.testing
import structlog.typing
from sqlalchemy.exc import OperationalError
from tests.store.support import empty

from sky.kit import backoff
from sky.kit.clock import SECOND_US, ManualClock, SystemClock
from sky.reconcile.passes import Done, InnerLoop, OuterLoop
from sky.reconcile.runner import CLAIM_S, PASSES_AT_ONCE_MAX, Runner
from sky.store import passes
from sky.store.db import Database
from sky.store.tx import ConflictError, Tx

DEADLINE_S = 60.0


class Outer(OuterLoop):
    """A loop outside; ``act`` is what a pass does, and ``seen`` the keys in the order they were looked at."""

    name: ClassVar[str] = "outer"

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.at_once = 0
        self.most = 0
        self.act: Callable[[str], Done | None] = lambda _: None
        self.gate: asyncio.Event | None = None

    async def look(self, key_id: str) -> Done:
        self.seen.append(key_id)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            if self.gate is not None:
                await self.gate.wait()
            return self.act(key_id) or Done("looked")
        finally:
            self.at_once -= 1


class Inner(InnerLoop):
    """A loop inside one transaction."""

    name: ClassVar[str] = "inner"

    def __init__(self) -> None:
        self.act: Callable[[Tx, str], Done | None] = lambda _tx, _key: None
        self.seen: list[str] = []

    def look(self, tx: Tx, key_id: str) -> Done:
        self.seen.append(key_id)
        return self.act(tx, key_id) or Done("looked inside")


class Desk:
    """A runner over a database without threads, on a clock that the test moves."""

    def __init__(self, url: str, clock: ManualClock, holder: str = "a", *, hints: bool = False) -> None:
        self.clock = clock
        self.db = Database(url, clock, lambda _: (), threaded=False)
        self.outer, self.inner = Outer(), Inner()
        self.runner = Runner(self.db, clock, [self.outer, self.inner], holder=holder, hints=hints)

    async def touch(self, *keys: str) -> None:
        def verb(tx: Tx) -> None:
            for key in keys:
                tx.touch(key)

        await self.db.write(verb)

    async def turn(self) -> int:
        """Offer what is due, and run it; returns how many passes that were."""
        await self.runner.tick()
        return await self.runner.drain()

    async def note(self, key: str) -> passes.PassRow:
        row = await self.db.read(lambda c: passes.row(c, key))
        assert row is not None
        return row


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return empty(tmp_path / "sky.db")


@pytest.fixture
def desk(url: str, clock: ManualClock) -> Iterator[Desk]:
    one = Desk(url, clock)
    yield one
    one.db.close()


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[structlog.typing.EventDict]]:
    with structlog.testing.capture_logs() as kept:
        yield kept


async def test_what_is_due_is_looked_at_once_and_noted(desk: Desk) -> None:
    await desk.touch("outer/1", "inner/2", "unknown/3")
    assert await desk.turn() == 2
    assert (desk.outer.seen, desk.inner.seen) == (["1"], ["2"])
    assert (await desk.note("outer/1")).decision == "looked"
    assert (await desk.note("inner/2")).decision == "looked inside"
    assert await desk.turn() == 0


async def test_it_is_looked_at_again_at_the_moment_it_named(desk: Desk, clock: ManualClock) -> None:
    desk.outer.act = lambda _: Done("waits", clock.now_us() + 5 * SECOND_US)
    await desk.touch("outer/1")
    await desk.turn()
    clock.advance(4.9)
    assert await desk.turn() == 0
    clock.advance(0.2)
    assert await desk.turn() == 1


async def test_a_pass_writes_its_fact_and_its_note_together(desk: Desk) -> None:
    def broken(tx: Tx) -> None:
        tx.touch("outer/other")
        raise RuntimeError("while writing")

    desk.outer.act = lambda _: Done("decided", None, broken)
    await desk.touch("outer/1")
    await desk.turn()
    note = await desk.note("outer/1")
    assert (note.decision, note.failures) == (None, 1)
    assert await desk.db.read(lambda c: passes.row(c, "outer/other")) is None


@pytest.mark.parametrize("loop", ["outer", "inner"])
async def test_one_that_raises_is_set_aside_ever_longer_and_others_go_on(
    desk: Desk, clock: ManualClock, logs: list[structlog.typing.EventDict], loop: str
) -> None:
    def act(*arguments: object) -> Done | None:
        if arguments[-1] == "bad":
            raise KeyError("poison")
        return None

    desk.outer.act = desk.inner.act = act
    await desk.touch(f"{loop}/bad", f"{loop}/good")
    waits: list[float] = []
    for failures in range(1, 12):
        await desk.turn()
        note = await desk.note(f"{loop}/bad")
        assert (note.failures, note.error) == (failures, "KeyError: 'poison'")
        assert note.due_us is not None
        waits.append((note.due_us - clock.now_us()) / SECOND_US)
        await desk.touch(f"{loop}/good")
        assert await desk.turn() == 1, "the good one alone"
        clock.advance(waits[-1])
    assert waits == [backoff.delay_s(n) for n in range(1, 12)]
    assert max(waits) == backoff.LONGEST_S
    assert [line["key"] for line in logs if line["event"] == "pass.failed"] == [f"{loop}/bad"] * 11
    desk.outer.act, desk.inner.act = lambda _: None, lambda _tx, _key: None
    await desk.turn()
    assert (await desk.note(f"{loop}/bad")).failures == 0


async def test_a_poisoned_key_is_looked_at_at_once_when_something_happens_to_it(desk: Desk) -> None:
    def poison(_: str) -> Done:
        raise KeyError("poison")

    desk.outer.act = poison
    await desk.touch("outer/1")
    await desk.turn()
    desk.outer.act = lambda _: None
    await desk.touch("outer/1")
    assert await desk.turn() == 1
    assert (await desk.note("outer/1")).failures == 0


async def test_a_conflict_is_no_failure_and_is_looked_at_again(desk: Desk) -> None:
    def conflict(_: str) -> Done:
        desk.outer.act = lambda _: None
        raise ConflictError("somebody was first")

    desk.outer.act = conflict
    await desk.touch("outer/1")
    await desk.turn()
    assert (await desk.note("outer/1")).failures == 0
    assert await desk.turn() == 1
    assert (await desk.note("outer/1")).decision == "looked"


async def test_a_key_touched_while_its_pass_runs_stays_due(desk: Desk) -> None:
    desk.inner.act = lambda tx, _: tx.touch("inner/1") if len(desk.inner.seen) == 1 else None
    await desk.touch("inner/1")
    await desk.turn()
    assert await desk.turn() == 1


async def test_two_daemons_share_the_keys_and_never_a_key(url: str, clock: ManualClock) -> None:
    first, second = Desk(url, clock, "first"), Desk(url, clock, "second")
    await first.touch("outer/1", "outer/2")
    await first.turn()
    await first.touch("outer/1", "outer/2", "outer/3")
    assert first.outer.seen == ["1", "2"]
    await second.turn()
    assert second.outer.seen == ["3"], "what the first has claimed is its own for a while"
    clock.advance(2 * CLAIM_S + 1)
    await second.turn()
    assert sorted(second.outer.seen) == ["1", "2", "3"], "and anybody's when it does not come back"
    await second.runner.stop()
    await first.touch("outer/1")
    await first.turn()
    assert first.outer.seen == ["1", "2", "1"], "who ends in order lets go at once"
    for one in (first, second):
        one.db.close()


async def test_a_call_that_takes_long_keeps_its_key_from_other_daemons(url: str, clock: ManualClock) -> None:
    first, second = Desk(url, clock), Desk(url, clock, "b")
    first.outer.gate = asyncio.Event()
    await first.touch("outer/1")
    await first.runner.tick()
    calling = asyncio.create_task(first.runner.drain())
    while not first.outer.seen:
        await asyncio.sleep(0)
    for _ in range(120):
        clock.advance(2.0)
        await first.runner.tick()
        await second.turn()
    assert second.outer.seen == [], "four minutes later it is still the first one's"
    first.outer.gate.set()
    await asyncio.wait_for(calling, DEADLINE_S)
    assert (await first.note("outer/1")).decision == "looked"
    first.db.close()
    second.db.close()


async def test_what_a_stalled_daemon_found_out_is_not_written_over_anothers_word(
    url: str, clock: ManualClock
) -> None:
    first, second = Desk(url, clock), Desk(url, clock, "b")
    first.outer.gate = asyncio.Event()
    await first.touch("outer/1")
    await first.runner.tick()
    calling = asyncio.create_task(first.runner.drain())
    while not first.outer.seen:
        await asyncio.sleep(0)
    clock.advance(2 * CLAIM_S + 1)  # it does not tick: its process stands still
    second.outer.act = lambda _: Done("looked by the second")
    assert await second.turn() == 1
    first.outer.act = lambda _: Done("looked by the first, before", None, lambda tx: tx.touch("outer/2"))
    first.outer.gate.set()
    await asyncio.wait_for(calling, DEADLINE_S)
    assert (await first.note("outer/1")).decision == "looked by the second"
    assert await first.db.read(lambda c: passes.row(c, "outer/2")) is None
    first.db.close()
    second.db.close()


async def test_a_claim_that_was_not_committed_is_none(url: str, clock: ManualClock) -> None:
    first, second = Desk(url, clock), Desk(url, clock, "b")

    def refuse(_tx: Tx, _key: str) -> Done:
        raise KeyError("undone, and the claim with it")

    first.inner.act = refuse
    await first.touch("inner/1")
    await first.turn()
    await second.touch("inner/1")
    await second.turn()
    assert second.inner.seen == ["1"], "nobody holds it, so the second does now"
    await first.touch("inner/1")
    await first.turn()
    assert first.inner.seen == ["1"], "and the first knows that it does not"
    for one in (first, second):
        one.db.close()


async def test_a_pass_whose_failure_cannot_be_noted_is_told_and_stays_due(
    desk: Desk, logs: list[structlog.typing.EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: str) -> None:
        failed = sqlite3.OperationalError("database or disk is full")
        failed.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise OperationalError("COMMIT", None, failed)

    await desk.touch("outer/1")
    monkeypatch.setattr("sky.store.db.faults.point", full)
    assert await desk.turn() == 1
    monkeypatch.undo()
    assert [line["key"] for line in logs if line["event"] == "pass.not_noted"] == ["outer/1"]
    assert await desk.turn() == 1
    assert (await desk.note("outer/1")).decision == "looked"


# ── beside each other, on the real clock ────────────────────────────────────────────────────────


@pytest.fixture
async def live(url: str) -> AsyncIterator[tuple[Database, Outer, Runner]]:
    db = Database(url, SystemClock(), lambda _: ())
    db.start()
    outer = Outer()
    runner = Runner(db, SystemClock(), [outer], holder="a")
    db.listen(lambda committed: runner.wake(committed.keys))
    yield db, outer, runner
    if outer.gate is not None:
        outer.gate.set()
    await runner.stop()
    db.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_wake_during_a_pass_is_followed_by_another(live: tuple[Database, Outer, Runner]) -> None:
    db, outer, _ = live
    outer.gate = asyncio.Event()
    await db.write(lambda tx: tx.touch("outer/1"))
    await until(lambda: outer.at_once == 1)
    for _ in range(5):
        await db.write(lambda tx: tx.touch("outer/1"))
    assert outer.seen == ["1"], "one pass a key at a time"
    outer.gate.set()
    await until(lambda: outer.seen == ["1", "1"] and outer.at_once == 0)


async def test_so_many_passes_run_beside_each_other_and_no_more(live: tuple[Database, Outer, Runner]) -> None:
    db, outer, _ = live
    outer.gate = asyncio.Event()
    keys = [f"outer/{n}" for n in range(PASSES_AT_ONCE_MAX + 20)]

    def verb(tx: Tx) -> None:
        for key in keys:
            tx.touch(key)

    await db.write(verb)
    await until(lambda: outer.at_once == PASSES_AT_ONCE_MAX)
    outer.gate.set()
    await until(lambda: len(outer.seen) == len(keys) and outer.at_once == 0)
    assert outer.most == PASSES_AT_ONCE_MAX


async def test_a_moment_before_the_next_tick_is_kept(live: tuple[Database, Outer, Runner]) -> None:
    db, outer, _ = live
    clock = SystemClock()
    outer.act = lambda _: Done("again", clock.now_us() + SECOND_US // 20) if len(outer.seen) < 3 else None
    await db.write(lambda tx: tx.touch("outer/1"))
    await until(lambda: outer.seen == ["1", "1", "1"])


async def test_a_lost_wake_costs_a_tick(url: str) -> None:
    db = Database(url, SystemClock(), lambda _: ())
    db.start()
    outer = Outer()
    runner = Runner(db, SystemClock(), [outer], holder="a")
    await db.write(lambda tx: tx.touch("outer/1"))
    ticking = asyncio.create_task(runner.run_forever())
    await until(lambda: outer.seen == ["1"])
    ticking.cancel()
    await runner.stop()
    db.close()


async def test_stopping_lets_passes_end_and_begins_none(live: tuple[Database, Outer, Runner]) -> None:
    db, outer, runner = live
    outer.gate = asyncio.Event()
    await db.write(lambda tx: tx.touch("outer/1"))
    await until(lambda: outer.at_once == 1)
    stopping = asyncio.create_task(runner.stop())
    await asyncio.sleep(0)
    await db.write(lambda tx: tx.touch("outer/2"))
    outer.gate.set()
    await stopping
    assert outer.seen == ["1"]
    row = await db.read(lambda c: passes.row(c, "outer/1"))
    assert row is not None
    assert row.decision == "looked"
