"""What something names is never removed, whatever its age; what nothing names goes, from the disk too.

Decides: that every column that may name content does: each is tried, those of nouns to come as well.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.databases import fresh

from sky.domain.errors import NotFound, StorageFull
from sky.domain.keeping import FRESH_US, Keeping
from sky.kit import codec
from sky.kit.clock import SECOND_US, ManualClock
from sky.reconcile import wakes
from sky.reconcile.collect import QUIET_US, Collect
from sky.store.blobs import Blobs, store_inline, use
from sky.store.db import Database
from sky.store.rows import webhooks as hooks
from sky.store.schema import blobs as blobs_table
from sky.store.schema import computes as computes_table
from sky.store.schema_jobs import deliveries, job_events
from sky.store.schema_jobs import webhooks as webhooks_table
from sky.store.schema_users import metadata
from sky.store.tx import Tx
from sky.store.views.garbage import FILES, KINDS
from sky.store.views.standing import standing
from sky.verbs import functions, webhooks
from sky.wire import v1

NOW = Keeping(ended_us=0, calls_us=0, requests_us=0, deliveries_us=0, unnamed_us=0)
NAMING = {
    "tasks.function_sha256", "tasks.args_sha256", "tasks.result_sha256", "executions.result_sha256",
    "executions.error", "executions.late_report", "items.value_sha256", "functions.sha256", "storages.sha256",
    "computes.spec", "generations.spec", "cluster_jobs.body", "requests.body", "requests.result", "jobs.spec",
}  # fmt: skip
BRINGING = ("archives", "api_keys", "user_tokens")
"""Who has brought content, and hashes of tokens: these name nothing that has to stay."""


class Store:
    """A database, a folder of content, and the loop that removes."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.folder = folder / "blobs"
        self.db = Database(fresh(folder / "sky.db"), self.clock, wakes.keys, threaded=False)
        self.blobs = Blobs(self.db, self.folder)
        self.blobs.prepare()
        self.loop = Collect(self.db, self.clock, NOW, self.blobs)
        self._numbers = itertools.count(1)

    async def put(self, content: bytes) -> str:
        async def pieces() -> AsyncIterator[bytes]:
            yield content

        sha256 = codec.sha256_hex(content)
        await self.blobs.put(sha256, pieces(), limit_bytes=1 << 30)
        return sha256

    def file(self, sha256: str) -> Path:
        return self.folder / sha256[:2] / sha256[2:4] / sha256

    async def readable(self, sha256: str) -> bool:
        try:
            content = await self.blobs.get(sha256)
        except NotFound:
            return False
        return codec.sha256_hex(b"".join([piece async for piece in self.blobs.read(content)])) == sha256

    def later(self) -> None:
        """Long enough for anything."""
        self.clock.advance((QUIET_US + 3 * FRESH_US) / SECOND_US)

    async def collect(self, *kinds: str) -> None:
        """Passes until there is nothing more to remove."""
        for kind in kinds:
            for _ in range(100):
                done = await self.loop.look(kind)
                if done.write is not None:
                    await self.db.write(done.write)
                elif kind != FILES or not done.why.startswith("removed"):
                    break
            else:
                raise AssertionError(f"{kind} does not come to an end: {done.why}")

    async def name(self, column: sa.Column[Any], sha256: str) -> None:
        """A row of that column's table that names content, and is filled with anything besides."""
        number = next(self._numbers)
        row = {one.name: _anything(one, number) for one in column.table.columns if not one.nullable}
        row[column.name] = {"deep": [{"x": f"{sha256}"}]} if isinstance(column.type, sa.JSON) else sha256
        await self.db.write(lambda tx: tx.connection.execute(sa.insert(column.table), row))


def _anything(column: sa.Column[Any], number: int) -> Any:
    if isinstance(column.type, sa.Boolean):
        return False
    if isinstance(column.type, sa.Integer):
        return number
    if isinstance(column.type, sa.JSON):
        return {}
    if isinstance(column.type, sa.LargeBinary):
        return b""
    return f"{number}"


def columns() -> list[sa.Column[Any]]:
    """Everything that may name content."""
    return [
        column
        for table in metadata.sorted_tables
        if table.name not in ("blobs", *BRINGING)
        for column in table.columns
        if column.name.endswith("sha256") or isinstance(column.type, sa.JSON)
    ]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    one = Store(tmp_path)
    yield one
    one.db.close()


async def test_what_anything_names_stays_and_all_else_goes(store: Store) -> None:
    named: dict[str, str] = {}
    for column in columns():
        key = f"{column.table.name}.{column.name}"
        named[key] = await store.put(key.encode() * (1 if len(named) % 2 else 20_000))
        await store.name(column, named[key])
    assert set(named) >= NAMING
    small, large = await store.put(b"nobody's"), await store.put(b"nobody's" * 20_000)
    for table in BRINGING:
        await store.name(metadata.tables[table].c.sha256, small)
    store.later()
    await store.collect("content", FILES)
    assert [key for key, sha256 in named.items() if not await store.readable(sha256)] == []
    assert not await store.readable(small)
    assert not await store.readable(large)
    assert not store.file(large).exists(), "it is gone from the disk too"
    files = {path.name for path in store.folder.rglob("*") if path.is_file()}
    assert files == {sha256 for sha256 in named.values() if store.file(sha256).exists()}
    assert await store.db.read(lambda c: c.execute(sa.text("SELECT count(*) FROM archives")).scalar()) == 0
    assert await store.put(b"nobody's") == small, "and it can be brought again"
    assert await store.readable(small)


async def test_what_was_found_and_is_used_meanwhile_stays(store: Store) -> None:
    content = {name: await store.put(name.encode()) for name in ("used", "brought", "inline", "idle")}
    function = await store.put(b"a function")
    await store.db.write(
        lambda tx: functions.register(tx, function, v1.FunctionCreate(codec="cloudpickle-lz4"))
    )
    store.later()
    found = await store.loop.look("content")
    forgotten = await store.loop.look("functions")
    store.clock.advance(1.0)
    await store.db.write(lambda tx: use(tx, content["used"]))
    assert await store.blobs.has(content["brought"])
    await store.db.write(lambda tx: store_inline(tx, [(content["inline"], b"inline")]))
    await store.db.write(
        lambda tx: functions.register(tx, function, v1.FunctionCreate(codec="cloudpickle-lz4"))
    )
    for done in (found, forgotten):
        assert done.write is not None
        await store.db.write(done.write)
    there = {name for name, sha256 in content.items() if await store.readable(sha256)}
    assert there == {"used", "brought", "inline"}
    assert await store.db.read(lambda c: c.execute(sa.text("SELECT count(*) FROM functions")).scalar()) == 1
    store.later()
    await store.collect("functions", "content", FILES)
    assert await store.db.read(lambda c: c.execute(sa.select(blobs_table)).all()) == []


async def test_a_file_goes_only_when_no_row_knows_it_and_nobody_has_just_brought_it(store: Store) -> None:
    known, stray, late, moved = [await store.put(bytes([n]) * 100_000) for n in range(4)]
    await store.db.write(
        lambda tx: tx.connection.execute(
            sa.delete(blobs_table).where(blobs_table.c.sha256.in_([stray, late]))
        )
    )
    (store.folder / "going").mkdir()
    store.file(moved).rename(store.folder / "going" / moved)  # a daemon died at that moment
    store.later()
    moment_s = store.clock.now_us() / SECOND_US
    os.utime(store.file(late), (moment_s, moment_s))
    assert await store.blobs.stray_files(store.clock.now_us()) == [(stray, 100_000)]
    await store.collect(FILES)
    assert not store.file(stray).exists()
    assert store.file(late).exists(), "its row is about to be written"
    assert await store.readable(known)
    assert await store.readable(moved)


async def test_nodes_have_time_to_name_what_they_brought_before_a_start(store: Store) -> None:
    sha256 = await store.put(b"a result that is not reported yet")
    store.later()
    again = Collect(store.db, store.clock, NOW, store.blobs)
    done = await again.look("content")
    assert done.write is None
    assert done.due_us == store.clock.now_us() + QUIET_US
    assert await store.readable(sha256)


async def test_what_could_not_be_written_is_removed_at_the_next_try(store: Store) -> None:
    """A full disk has a verb run again; so does somebody else who was quicker."""
    numbers = itertools.count(1)

    def add(table: sa.Table, **more: Any) -> dict[str, Any]:
        number = next(numbers)
        row = {one.name: _anything(one, number) for one in table.columns if not one.nullable}
        return row | {"created_us": 1} | more

    over = [add(computes_table, state="deleted", deleted_us=1) for _ in range(3)]
    unnamed = [add(blobs_table) for _ in range(700)]
    await store.db.write(lambda tx: tx.connection.execute(sa.insert(computes_table), over))
    await store.db.write(lambda tx: tx.connection.execute(sa.insert(blobs_table), unnamed))
    store.later()
    for kind in ("computes", "content"):
        done = await store.loop.look(kind)
        assert done.write is not None
        with pytest.raises(StorageFull):
            await store.db.write(partial(_in_vain, done.write))
        await store.db.write(done.write)
        await store.collect(kind)
    for table in (computes_table, blobs_table):
        assert await store.db.read(lambda c, t=table: c.execute(sa.select(t)).all()) == []


def _in_vain(write: Callable[[Tx], None], tx: Tx) -> None:
    write(tx)
    raise StorageFull("there is no room")


async def test_a_look_leaves_its_connection_as_it_was(store: Store) -> None:
    await store.put(b"nobody's")
    store.later()
    before = await store.db.read(lambda c: dict(c.get_execution_options()))
    assert (await store.loop.look("content")).write is not None
    assert await store.db.read(lambda c: dict(c.get_execution_options())) == before


async def test_a_file_that_goes_while_files_are_looked_at_is_no_stray(store: Store) -> None:
    names = [f"{n:064x}" for n in range(3)]
    store.file(names[0]).parent.mkdir(parents=True)
    for name in names:
        store.file(name).write_bytes(b"nobody's")
    store.later()
    found = store.blobs._old_files(2 * store.clock.now_us())
    seen = {next(found)[0]}
    store.file(next(name for name in names if name not in seen)).unlink()
    seen |= {name for name, _ in found}
    assert len(seen) == 2


async def test_what_has_a_row_again_is_not_moved_though_it_was_found(store: Store) -> None:
    known, stray = await store.put(b"known" * 50_000), await store.put(b"stray" * 50_000)
    await store.db.write(
        lambda tx: tx.connection.execute(sa.delete(blobs_table).where(blobs_table.c.sha256 == stray))
    )
    held = os.open(store.file(known).parent, os.O_RDONLY)
    touched_ns = os.fstat(held).st_mtime_ns
    assert await store.blobs.remove_files([known, stray], store.clock.now_us() + 2 * FRESH_US) == 1
    assert os.fstat(held).st_mtime_ns == touched_ns, "whoever reads it finds it all the time"
    os.close(held)
    assert await store.readable(known)


async def test_every_kind_says_why_nothing_is_to_do(store: Store) -> None:
    store.later()
    for kind in KINDS:
        done = await store.loop.look(kind)
        assert done.write is None
        assert done.why
        assert done.due_us is None or done.due_us > store.clock.now_us()


async def test_a_webhook_that_is_deleted_takes_along_what_was_not_sent(store: Store) -> None:
    hook = {"id": "whe_1", "owner": "account:a", "url": "u", "secrets": b"", "enabled": True, "created_us": 0}
    event = {"job_id": "job_1", "owner": "account:a", "type": "job.queued", "data": {}, "at_us": 0}

    def send(tx: Tx) -> None:
        hooks.add(tx, hook)
        tx.connection.execute(sa.insert(job_events), [{**event, "id": f"evt_{n}"} for n in range(3)])
        row = hooks.find(tx.connection, "whe_1")
        assert row is not None
        assert hooks.spread(tx, row) == 3

    async def waits() -> tuple[int, int]:
        there = await store.db.read(lambda c: standing(c, store.clock.now_us()))
        return there.webhooks_due, there.webhooks_waiting

    await store.db.write(send)
    assert await waits() == (3, 3)
    await store.db.write(lambda tx: hooks.change(tx, "whe_1", {"enabled": False}))
    assert await waits() == (0, 3), "nobody sends to one that is disabled"

    def delete(tx: Tx) -> None:
        row = hooks.find(tx.connection, "whe_1")
        assert row is not None
        webhooks.delete(tx, row)

    await store.db.write(delete)
    assert await waits() == (0, 0), "nobody waits for it"
    store.later()
    await store.collect("deliveries")
    for table in (deliveries, webhooks_table):
        count = sa.select(sa.func.count()).select_from(table)
        assert await store.db.read(lambda c, q=count: c.execute(q).scalar()) == 0


def test_it_ends_while_others_write(tmp_path: Path) -> None:
    """On threads, as a daemon has them: content is brought and named beside the passes, and nothing that is
    named is missing."""

    async def run() -> None:
        one = Store(tmp_path)
        one.db.close()
        one.db = Database(one.db.url, one.clock, wakes.keys)
        one.db.start()
        one.blobs = Blobs(one.db, one.folder)
        one.loop = Collect(one.db, one.clock, NOW, one.blobs)
        column = metadata.tables["storages"].c.sha256
        brought = [await one.put(b"%d" % n * 50_000) for n in range(30)]
        one.later()

        async def bring() -> None:
            for n, sha256 in enumerate(brought):
                assert await one.put(b"%d" % n * 50_000) == sha256
                await one.name(column, sha256)

        async with asyncio.TaskGroup() as both:
            both.create_task(bring())
            both.create_task(one.collect("content", FILES))
        assert [sha256 for sha256 in brought if not await one.readable(sha256)] == []
        one.db.close()

    asyncio.run(run())
