"""What the loops note of their keys: due, claimed, decided."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.store.support import compute_row, inline, node_row

from sky.kit.clock import SECOND_US, ManualClock
from sky.store import installation, passes
from sky.store.db import Database
from sky.store.transfer import transfer
from sky.store.tx import Tx

OF_COMPUTES = ("computes", "dispatch", "attempts")


async def touch(db: Database, *keys: str) -> None:
    def verb(tx: Tx) -> None:
        for key in keys:
            tx.touch(key)

    await db.write(verb)


async def due(db: Database) -> tuple[str, ...]:
    return await db.read(lambda c: passes.due(c, db.clock.now_us()))


async def finish(db: Database, key: str, seen: int, due_us: int | None = None) -> bool:
    return await db.write(lambda tx: passes.finish(tx, key, seen, due_us=due_us, decision="done"))


async def test_a_touched_key_is_due_until_its_pass_is_finished(db: Database) -> None:
    await touch(db, "nodes/1", "nodes/2")
    assert set(await due(db)) == {"nodes/1", "nodes/2"}
    seen = await db.read(lambda c: passes.version(c, "nodes/1"))
    assert await finish(db, "nodes/1", seen)
    assert await due(db) == ("nodes/2",)


async def test_a_key_that_was_touched_while_its_pass_ran_stays_due(db: Database) -> None:
    await touch(db, "nodes/1")
    seen = await db.read(lambda c: passes.version(c, "nodes/1"))
    await touch(db, "nodes/1")
    assert not await finish(db, "nodes/1", seen)
    assert await due(db) == ("nodes/1",)
    row = await db.read(lambda c: passes.row(c, "nodes/1"))
    assert row is not None
    assert row.decision is None
    assert await finish(db, "nodes/1", row.version)
    assert await due(db) == ()


async def test_a_key_is_due_at_the_moment_its_pass_named(db: Database, clock: ManualClock) -> None:
    await touch(db, "nodes/1", "nodes/2", "nodes/3")
    now_us = clock.now_us()
    for key, after_s in (("nodes/1", 9), ("nodes/2", 5), ("nodes/3", None)):
        await finish(db, key, 1, None if after_s is None else now_us + after_s * SECOND_US)
    clock.advance(4.9)
    assert await due(db) == ()
    clock.advance(0.1)
    assert await due(db) == ("nodes/2",)
    clock.advance(10)
    assert await due(db) == ("nodes/2", "nodes/1"), "longest waiting first"
    assert await db.read(lambda c: passes.due(c, clock.now_us(), limit=1)) == ("nodes/2",)


async def test_a_key_has_one_holder_at_a_time(db: Database, clock: ManualClock) -> None:
    await touch(db, "nodes/1")
    until = clock.now_us() + 60 * SECOND_US

    async def claim(holder: str) -> bool:
        return await db.write(lambda tx: passes.claim(tx, "nodes/1", holder, until))

    answers = await asyncio.gather(*(claim(f"daemon {n}") for n in range(10)))
    assert sorted(answers) == [False] * 9 + [True]
    holder = f"daemon {answers.index(True)}"
    assert await claim(holder), "the holder may hold on"
    assert not await claim("another")
    clock.advance(60)
    assert not await claim("another")
    clock.advance(0.001)
    until = clock.now_us() + 60 * SECOND_US
    assert await claim("another")
    assert not await claim(holder)


async def test_two_daemons_claim_from_one_database(database_url: str, clock: ManualClock) -> None:
    daemons = [Database(database_url, clock, lambda _: ()) for _ in range(2)]
    for one in daemons:
        one.start()
    keys = [f"nodes/{n}" for n in range(40)]
    await touch(daemons[0], *keys)
    until = clock.now_us() + SECOND_US

    async def claim(number: int, key: str) -> bool:
        return await daemons[number].write(lambda tx: passes.claim(tx, key, f"daemon {number}", until))

    first = await asyncio.gather(*(claim(number, key) for key in keys for number in (0, 1)))
    assert [a + b for a, b in zip(first[::2], first[1::2], strict=True)] == [1] * 40
    for one in daemons:
        one.close()


async def test_a_holder_that_ends_lets_go_of_everything(db: Database, clock: ManualClock) -> None:
    await touch(db, "nodes/1", "nodes/2", "nodes/3")
    until = clock.now_us() + 60 * SECOND_US

    def verb(tx: Tx) -> None:
        assert passes.claim(tx, "nodes/1", "a", until)
        assert passes.claim(tx, "nodes/2", "a", until)
        assert passes.claim(tx, "nodes/3", "b", until)
        passes.release(tx, "a")
        assert passes.claim(tx, "nodes/1", "b", until)
        assert passes.claim(tx, "nodes/2", "c", until)
        assert not passes.claim(tx, "nodes/3", "c", until)

    await db.write(verb)
    assert len(await due(db)) == 3


async def test_a_key_that_nobody_ever_touched_cannot_be_claimed(db: Database, clock: ManualClock) -> None:
    assert not await db.write(lambda tx: passes.claim(tx, "nodes/9", "a", clock.now_us() + 1))
    assert await db.read(lambda c: passes.version(c, "nodes/9")) == 0
    assert await db.read(lambda c: passes.row(c, "nodes/9")) is None


async def test_a_key_is_begun_only_when_it_has_no_time_of_its_own(db: Database, clock: ManualClock) -> None:
    await touch(db, "offers/1")
    later = clock.now_us() + 60 * SECOND_US
    await finish(db, "offers/1", 1, later)
    await db.write(lambda tx: passes.begin(tx, "offers/1"))
    assert await due(db) == ()
    await touch(db, "offers/1")
    await finish(db, "offers/1", 2, None)
    told: list[tuple[str, ...]] = []
    db.listen(lambda committed: told.append(committed.keys))
    await db.write(lambda tx: passes.begin(tx, "offers/1"))
    assert await due(db) == ("offers/1",)
    assert told == [("offers/1",)]


async def test_a_pass_that_raised_is_noted_and_the_next_good_one_clears_it(
    db: Database, clock: ManualClock
) -> None:
    await touch(db, "nodes/1")
    later = clock.now_us() + SECOND_US
    await db.write(lambda tx: passes.fail(tx, "nodes/1", due_us=later, failures=3, error="KeyError: x"))
    row = await db.read(lambda c: passes.row(c, "nodes/1"))
    assert row is not None
    assert (row.failures, row.error, row.due_us, row.decided_us) == (3, "KeyError: x", later, clock.now_us())
    assert await due(db) == ()
    await finish(db, "nodes/1", row.version)
    row = await db.read(lambda c: passes.row(c, "nodes/1"))
    assert row is not None
    assert (row.failures, row.error, row.decision) == (0, None, "done")


async def test_notes_are_found_by_loop_and_by_what_they_are_about(db: Database, clock: ManualClock) -> None:
    await touch(db, "nodes/a_1", "nodes/ab1", "dispatch/a_1", "computes/x")
    for key in ("nodes/ab1", "nodes/a_1", "dispatch/a_1"):
        clock.advance(1)
        await finish(db, key, 1)
    found = await db.read(lambda c: [r.key for r in passes.rows(c)])
    assert found == ["dispatch/a_1", "nodes/a_1", "nodes/ab1", "computes/x"], "latest decision first"
    assert await db.read(lambda c: [r.key for r in passes.rows(c, key_prefix="nodes/")]) == [
        "nodes/a_1",
        "nodes/ab1",
    ]
    assert await db.read(lambda c: [r.key for r in passes.rows(c, about="a_1")]) == [
        "dispatch/a_1",
        "nodes/a_1",
    ]
    assert await db.read(lambda c: [r.key for r in passes.rows(c, key_prefix="nodes/a_")]) == ["nodes/a_1"]
    assert await db.read(lambda c: len(passes.rows(c, limit=2))) == 2
    assert await db.read(lambda c: passes.row(c, "nodes/a")) is None, "the whole key, not its beginning"


async def test_notes_are_dropped_when_what_they_are_about_is_over_for_long(
    db: Database, clock: ManualClock
) -> None:
    def rows(tx: Tx) -> None:
        for state in ("ready", "deleted"):
            tx.add("computes", [compute_row(f"cmp_{state}", state=state)])
            tx.add("nodes", [node_row(f"nod_{state}", state=state, rank=len(state))])

    await db.write(rows)
    keys: list[str] = []
    for state in ("ready", "deleted"):
        keys += [f"{loop}/cmp_{state}" for loop in OF_COMPUTES] + [f"nodes/nod_{state}"]
    keys += ["offers/prv_1", "dispatch/cmp_unknown", "nodes/nod_due"]
    await touch(db, *keys)
    for key in keys:
        await finish(db, key, 1, clock.now_us() + SECOND_US if key == "nodes/nod_due" else None)
    gone = {f"{loop}/cmp_deleted" for loop in OF_COMPUTES} | {"nodes/nod_deleted", "dispatch/cmp_unknown"}
    clock.advance(passes.OVER_KEPT_US / SECOND_US)
    assert await db.write(passes.forget) == 0, "`sky why` knows it for a day"
    clock.advance(1)
    assert await db.write(passes.forget) == len(gone)
    left = {row.key for row in await db.read(passes.rows)}
    assert {key for key in keys if key not in left} == gone
    clock.advance(passes.SETTLED_KEPT_US / SECOND_US)
    assert await db.write(passes.forget) == 1
    assert await db.read(lambda c: passes.row(c, "offers/prv_1")) is None
    assert await db.read(lambda c: passes.row(c, "nodes/nod_ready")) is not None, "it is there"
    assert await db.read(lambda c: passes.row(c, "nodes/nod_due")) is not None, "it is waited for"


async def test_what_the_originals_daemons_hold_nobody_holds_in_a_copy(
    db: Database, database_url: str, tmp_path: Path, clock: ManualClock
) -> None:
    await touch(db, "nodes/1")
    until_us = db.clock.now_us() + 60 * SECOND_US
    assert await db.write(lambda tx: passes.claim(tx, "nodes/1", "the original's", until_us))
    url = f"sqlite:///{tmp_path / 'copy.db'}"
    transfer(database_url, url, identity="ins_copy")
    installation.copy_ends(url, installation.RESTORED, "ins_copy")
    copy = inline(url, clock)
    assert await copy.write(lambda tx: passes.claim(tx, "nodes/1", "the copy's", until_us))
    assert not await db.write(lambda tx: passes.claim(tx, "nodes/1", "another", until_us))
    copy.close()
