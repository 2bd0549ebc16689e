"""Content by its hash: whole or not at all, once, and never whole in memory."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import threading
from collections.abc import AsyncIterator
from pathlib import Path, PosixPath
from typing import Any

import pytest
import sqlalchemy as sa

from sky.domain.errors import HashMismatch, NotFound, PayloadTooLarge, StorageFull
from sky.kit import faults
from sky.store import schema
from sky.store.blobs import CHUNK_BYTES, ROW_BYTES_MAX, Blobs, inline_of, known, store_inline
from sky.store.db import Database
from sky.store.spool import UNTOUCHED_S, Spool

LIMIT = 300 * 1024 * 1024


def name_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def pieces(content: bytes, size: int = 10_000) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


@pytest.fixture
def blobs(db: Database, tmp_path: Path) -> Blobs:
    one = Blobs(db, tmp_path / "blobs")
    one.prepare()
    return one


def files(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]


async def content_of(blobs: Blobs, sha256: str, start: int = 0) -> bytes:
    found = await blobs.get(sha256)
    return b"".join([piece async for piece in blobs.read(found, start)])


@pytest.mark.parametrize(
    "size",
    [
        0,
        1,
        ROW_BYTES_MAX - 1,
        ROW_BYTES_MAX,
        ROW_BYTES_MAX + 1,
        CHUNK_BYTES,
        CHUNK_BYTES + 1,
        3 * CHUNK_BYTES + 7,
    ],
)
async def test_what_goes_in_comes_out(blobs: Blobs, tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    name = name_of(content)
    assert await blobs.size(name) is None
    assert await blobs.put(name, pieces(content), limit_bytes=LIMIT) is True
    assert await blobs.put(name, pieces(content), limit_bytes=LIMIT) is False, "it was there already"
    assert await blobs.size(name) == size
    assert await content_of(blobs, name) == content
    assert await content_of(blobs, name, size // 2) == content[size // 2 :]
    assert len(files(tmp_path)) == (1 if size > ROW_BYTES_MAX else 0), "small ones sit in a row"


@pytest.mark.parametrize("size", [10, 5 * CHUNK_BYTES])
async def test_a_wrong_hash_stores_nothing(blobs: Blobs, tmp_path: Path, db: Database, size: int) -> None:
    content = os.urandom(size)
    wrong = name_of(b"something else")
    with pytest.raises(HashMismatch) as refused:
        await blobs.put(wrong, pieces(content), limit_bytes=LIMIT)
    assert refused.value.details == {"expected": wrong, "actual": name_of(content)}
    assert files(tmp_path) == []
    assert await db.read(lambda c: c.execute(sa.select(schema.blobs)).all()) == []
    with pytest.raises(NotFound):
        await blobs.get(wrong)


@pytest.mark.parametrize("size", [101, 5 * CHUNK_BYTES])
async def test_too_large_stores_nothing_and_is_noticed_as_it_comes(
    blobs: Blobs, tmp_path: Path, size: int
) -> None:
    content = os.urandom(size)
    taken = 0

    async def counted() -> AsyncIterator[bytes]:
        nonlocal taken
        async for piece in pieces(content, 64):
            taken += len(piece)
            yield piece

    with pytest.raises(PayloadTooLarge):
        await blobs.put(name_of(content), counted(), limit_bytes=100)
    assert taken <= 128, "the rest was not even read"
    assert files(tmp_path) == []
    assert await blobs.put(name_of(content[:100]), pieces(content[:100]), limit_bytes=100)


async def test_an_upload_that_breaks_off_leaves_nothing(blobs: Blobs, tmp_path: Path) -> None:
    content = os.urandom(3 * CHUNK_BYTES)

    async def broken() -> AsyncIterator[bytes]:
        yield content[: 2 * CHUNK_BYTES]
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await blobs.put(name_of(content), broken(), limit_bytes=LIMIT)
    assert files(tmp_path) == []


@pytest.mark.parametrize("size", [100, 2 * CHUNK_BYTES])
async def test_the_same_content_by_twenty_at_once_is_stored_once(
    blobs: Blobs, tmp_path: Path, size: int
) -> None:
    content = os.urandom(size)
    name = name_of(content)
    puts = [blobs.put(name, pieces(content, 50_000), limit_bytes=LIMIT) for _ in range(20)]
    answers = await asyncio.gather(*puts)
    assert sorted(answers) == [False] * 19 + [True]
    assert await content_of(blobs, name) == content
    assert len(files(tmp_path)) == (1 if size > ROW_BYTES_MAX else 0)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_two_hundred_megabytes_never_sit_in_memory(blobs: Blobs) -> None:
    piece, count = bytes(256 * 1024), 800
    digest = hashlib.sha256()
    for _ in range(count):
        digest.update(piece)
    before = peak = resident_bytes()

    async def sparse() -> AsyncIterator[bytes]:
        nonlocal peak
        for number in range(count):
            if number % 20 == 0:
                peak = max(peak, resident_bytes())
            yield piece

    assert await blobs.put(digest.hexdigest(), sparse(), limit_bytes=LIMIT)
    found = await blobs.get(digest.hexdigest())
    assert found.size == 200 * 1024 * 1024
    size = 0
    async for part in blobs.read(found):
        size += len(part)
        peak = max(peak, resident_bytes())
    assert size == found.size
    assert peak - before < 32 * 1024 * 1024


async def test_a_full_disk_is_told_and_recovered_from(db: Database, small_disk: Path) -> None:
    blobs = Blobs(db, small_disk / "blobs")
    blobs.prepare()
    large, fits = os.urandom(8 * CHUNK_BYTES), os.urandom(2 * CHUNK_BYTES)
    with pytest.raises(StorageFull):
        await blobs.put(name_of(large), pieces(large, CHUNK_BYTES), limit_bytes=LIMIT)
    assert [path for path in small_disk.rglob("*") if path.is_file()] == [], "what had come is gone"
    assert await blobs.size(name_of(large)) is None
    assert await blobs.put(name_of(fits), pieces(fits), limit_bytes=LIMIT)
    assert await content_of(blobs, name_of(fits)) == fits


def leave_room_for_files(disk: Path, number: int) -> None:
    there = os.statvfs(disk)
    options = f"remount,nr_inodes={there.f_files - there.f_ffree + number}"
    subprocess.run(["mount", "-o", options, str(disk)], check=True)


async def test_a_disk_without_room_for_another_file_is_told(db: Database, small_disk: Path) -> None:
    blobs = Blobs(db, small_disk / "blobs")
    blobs.prepare()
    content = os.urandom(CHUNK_BYTES)
    for room in (0, 1):  # none for what comes in; none for the folder that it is kept in
        leave_room_for_files(small_disk, room)
        with pytest.raises(StorageFull, match="No space left"):
            await blobs.put(name_of(content), pieces(content), limit_bytes=LIMIT)
        assert [path for path in small_disk.rglob("*") if path.is_file()] == []


class Slow(PosixPath):
    """A path on a disk that is long in answering. ``asked``: somebody waits for it."""

    asked: threading.Event
    there: threading.Event

    @property
    def parent(self) -> Path:
        self._wait()
        return Path(super().parent)

    def __fspath__(self) -> str:
        self._wait()
        return str(self)

    def _wait(self) -> None:
        self.asked.set()
        self.there.wait(30)


def slow(path: Path) -> Slow:
    one = Slow(path)
    one.asked, one.there = threading.Event(), threading.Event()
    return one


async def leave(working: asyncio.Task[Any], path: Slow) -> None:
    """Stop waiting for work that is in a thread just then, and have the disk answer."""
    assert await asyncio.to_thread(path.asked.wait, 30)
    working.cancel()
    await asyncio.sleep(0)
    path.there.set()
    with pytest.raises(asyncio.CancelledError):
        await working
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_who_leaves_while_a_file_is_kept_leaves_it_whole(tmp_path: Path) -> None:
    kept, content = slow(tmp_path / "kept"), bytearray(b"content" * 1000)
    spool = await Spool.open(tmp_path)

    async def keep() -> None:
        try:
            await spool.take(content, hashlib.sha256())
            await spool.settle()
            await spool.keep(kept, full_sync=True, at_us=1)
        finally:
            await spool.discard()

    await leave(asyncio.create_task(keep()), kept)
    assert {path.name for path in tmp_path.iterdir()} == {"kept"}
    assert (tmp_path / "kept").read_bytes() == content


async def test_who_leaves_while_a_file_is_made_leaves_none(tmp_path: Path) -> None:
    incoming = slow(tmp_path)
    await leave(asyncio.create_task(Spool.open(incoming)), incoming)
    async with asyncio.timeout(60):
        while any(tmp_path.iterdir()):
            await asyncio.sleep(0.01)
    there = [os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()]
    assert not [path for path in there if path.startswith(str(tmp_path))]


async def test_a_file_that_is_lost_is_told_before_anything_is_sent(blobs: Blobs, tmp_path: Path) -> None:
    content = os.urandom(2 * CHUNK_BYTES)
    await blobs.put(name_of(content), pieces(content), limit_bytes=LIMIT)
    [file] = files(tmp_path)
    file.unlink()
    with pytest.raises(NotFound, match="restore"):
        await blobs.begin(await blobs.get(name_of(content)))


async def test_dying_between_the_file_and_its_row_loses_nothing(blobs: Blobs) -> None:
    content = os.urandom(2 * CHUNK_BYTES)
    name = name_of(content)
    faults.arm(0)
    with pytest.raises(faults.Died):
        await blobs.put(name, pieces(content), limit_bytes=LIMIT)
    faults.disarm()
    assert await blobs.size(name) is None, "without a row it is not there"
    assert await blobs.put(name, pieces(content), limit_bytes=LIMIT)
    assert await content_of(blobs, name) == content


async def test_what_ended_uploads_left_is_removed_at_the_next_start(blobs: Blobs, tmp_path: Path) -> None:
    left = tmp_path / "blobs" / "incoming" / "half"
    left.write_bytes(b"half of it")
    blobs.prepare()
    assert not left.exists()


async def test_where_others_write_too_only_what_was_left_alone_is_removed(
    db: Database, blobs: Blobs, tmp_path: Path
) -> None:
    incoming = tmp_path / "blobs" / "incoming"
    old, fresh = incoming / "old", incoming / "fresh"
    old.write_bytes(b"half of it")
    fresh.write_bytes(b"half of it")
    long_ago_s = old.stat().st_mtime - UNTOUCHED_S - 60
    os.utime(old, (long_ago_s, long_ago_s))
    Blobs(db, tmp_path / "blobs", shared=True).prepare()
    assert [path.name for path in incoming.iterdir()] == ["fresh"]


async def test_small_contents_share_a_verbs_transaction(db: Database) -> None:
    contents = [(name_of(b"%d" % n), b"%d" % n) for n in range(300)]
    await db.write(lambda tx: store_inline(tx, [*contents, contents[0]]))
    await db.write(lambda tx: store_inline(tx, contents))
    await db.write(lambda tx: store_inline(tx, []))
    names = [name for name, _ in contents]
    assert await db.read(lambda c: inline_of(c, [*names, "f" * 64])) == dict(contents)
    assert await db.read(lambda c: inline_of(c, [])) == {}
    assert await db.read(lambda c: known(c, names[3])) == 1
    assert await db.read(lambda c: known(c, "f" * 64)) is None
