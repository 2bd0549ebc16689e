"""Content in a bucket that checks every signature: what is there, what is refused, and what is removed.

Follows: what the tests of the folder say of content holds here too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa
from tests.databases import fresh
from tests.jobs.s3_double import BUCKET, REGION, FakeS3, Held, serving

from sky.domain.errors import Busy, HashMismatch, Internal, NotFound
from sky.domain.keeping import UNWRITTEN_US, Keeping
from sky.kit import codec
from sky.kit.clock import SystemClock
from sky.reconcile import wakes
from sky.reconcile.collect import QUIET_US, Collect
from sky.store.blob_bucket import BlobBucket
from sky.store.blobs import CHUNK_BYTES, Blobs
from sky.store.db import Database
from sky.store.s3 import Bucket, Place
from sky.store.schema import blobs as blobs_table
from sky.store.sigv4 import Credentials
from sky.store.views.garbage import FILES

LIMIT = 64 * 1024**2
NOW = Keeping(ended_us=0, calls_us=0, requests_us=0, deliveries_us=0, unnamed_us=0)


class LateClock(SystemClock):
    """This computer's clock, which a test may move ahead."""

    ahead_us = 0

    def now_us(self) -> int:
        return super().now_us() + self.ahead_us


@dataclass
class Kept:
    """A bucket, and the content of a database that is kept in it."""

    bucket: FakeS3
    stack: ExitStack
    url: str
    clock: LateClock
    db: Database
    folder: Path
    blobs: Blobs

    async def put(self, content: bytes) -> str:
        sha256 = codec.sha256_hex(content)
        await self.blobs.put(sha256, _pieces(content), limit_bytes=LIMIT)
        return sha256

    async def read(self, sha256: str, start: int = 0) -> bytes:
        pieces = await self.blobs.begin(await self.blobs.get(sha256), start)
        return b"".join([piece async for piece in pieces])

    def objects(self, sha256: str) -> list[str]:
        """Where in the bucket that content is."""
        return [key for key in self.bucket.objects if key.startswith(f"own/blobs/{sha256}/")]

    def age(self) -> None:
        """Two hours pass for what is in the bucket."""
        for held in self.bucket.objects.values():
            held.since -= timedelta(hours=2)

    async def forget(self, sha256: str) -> None:
        await self.db.write(
            lambda tx: tx.connection.execute(sa.delete(blobs_table).where(blobs_table.c.sha256 == sha256))
        )

    async def collect(self) -> str:
        """One pass over files and objects; returns what it says."""
        return (await Collect(self.db, self.clock, NOW, self.blobs).look(FILES)).why


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), 100_000):
        yield content[start : start + 100_000]


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    """An empty bucket and an empty database."""
    bucket, clock = FakeS3(page_keys=2), LateClock()
    with ExitStack() as stack:
        url = stack.enter_context(serving(bucket))
        place = Place(BUCKET, "own/", REGION, url)
        own = BlobBucket(Bucket(place, clock, lambda: Credentials("AKIDEXAMPLE", "a/secret+key")))
        db = Database(fresh(tmp_path / "sky.db"), clock, wakes.keys, threaded=False)
        blobs = Blobs(db, tmp_path / "blobs", bucket=own)
        blobs.prepare()
        yield Kept(bucket, stack, url, clock, db, tmp_path / "blobs", blobs)
        db.close()
        assert not [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()], (
            "nothing is left here"
        )


LARGE = b"large content" * 300_000


async def test_large_content_is_in_the_bucket_and_small_in_its_row(kept: Kept) -> None:
    small, large = await kept.put(b"small"), await kept.put(LARGE)
    assert len(LARGE) > 3 * CHUNK_BYTES
    [key] = kept.bucket.objects
    assert kept.objects(large) == [key]
    assert kept.bucket.objects[key].content == LARGE
    assert kept.bucket.objects[key].checksum is not None, "the bucket was told what it should be"
    assert [await kept.read(small), await kept.read(large)] == [b"small", LARGE]
    assert await kept.read(large, len(LARGE) - 10) == LARGE[-10:]
    assert await kept.read(large, CHUNK_BYTES) == LARGE[CHUNK_BYTES:]
    await kept.put(LARGE)
    assert list(kept.bucket.objects) == [key], "it is stored once"


async def test_parallel_uploads_are_one_content(kept: Kept) -> None:
    [sha256] = set(await asyncio.gather(*(kept.put(LARGE) for _ in range(5))))
    assert await kept.read(sha256) == LARGE
    kept.age()
    while "removed" in await kept.collect():
        pass
    assert len(kept.objects(sha256)) == 1, "what no row names goes"
    assert await kept.read(sha256) == LARGE


async def test_what_hashes_to_something_else_never_gets_there(kept: Kept) -> None:
    with pytest.raises(HashMismatch):
        await kept.blobs.put("0" * 64, _pieces(LARGE), limit_bytes=LIMIT)
    assert not kept.bucket.objects


@pytest.mark.parametrize("trouble", ["down", "SlowDown", "AccessDenied"])
async def test_a_bucket_that_does_not_serve_is_told_and_loses_nothing(kept: Kept, trouble: str) -> None:
    sha256, other = await kept.put(LARGE), b"other" * 100_000
    await kept.put(b"small")
    if trouble == "down":
        kept.stack.close()
    else:
        kept.bucket.fails = trouble
    for refused in (kept.read(sha256), kept.put(other)):
        with pytest.raises(Busy, match="nothing was lost") as told:
            await refused
        assert told.value.after_s
    assert await kept.read(codec.sha256_hex(b"small")) == b"small"
    assert await kept.put(LARGE) == sha256, "what is there need not be brought again"
    assert "could not be removed" in await kept.collect()
    kept.bucket.fails = None
    if trouble == "down":
        kept.stack.enter_context(serving(kept.bucket, urlsplit(kept.url).port or 0))
    assert await kept.read(sha256) == LARGE
    assert await kept.read(await kept.put(other)) == other


async def test_content_that_is_not_what_was_put_is_never_given_whole(kept: Kept) -> None:
    sha256 = await kept.put(LARGE)
    [key] = kept.objects(sha256)
    for wrong in (LARGE[:-1] + b"!", LARGE[:-1], LARGE + b"!"):
        kept.bucket.objects[key] = Held(wrong, None)
        got = bytearray()

        async def read(into: bytearray) -> None:
            async for piece in kept.blobs.read(await kept.blobs.get(sha256)):
                into += piece

        with pytest.raises(Internal, match=sha256):
            await read(got)
        assert len(got) < len(LARGE)
    del kept.bucket.objects[key]
    with pytest.raises(NotFound, match="not in the bucket any more"):
        await kept.read(sha256)


async def test_an_object_goes_only_when_no_row_names_it_and_it_did_not_come_lately(kept: Kept) -> None:
    named = [await kept.put(LARGE + bytes([number])) for number in range(3)]
    strays = [await kept.put(bytes([number]) + LARGE) for number in range(3)]
    for sha256 in strays:
        await kept.forget(sha256)
    kept.age()
    late = await kept.put(b"late" + LARGE)
    await kept.forget(late)
    kept.bucket.objects["own/jobs/a"] = Held(
        b"a job's file", None, since=kept.bucket.now() - timedelta(days=9)
    )
    found = await kept.blobs.stray_files(kept.clock.now_us())
    assert sorted(name.partition("/")[0] for name, _ in found) == sorted(strays)
    again = await kept.put(bytes([0]) + LARGE)  # somebody brings it after it was found
    assert again == strays[0]
    assert await kept.blobs.remove_files([name for name, _ in found], kept.clock.now_us()) == 3
    for sha256 in (*named, again):
        assert len(await kept.read(sha256)) == len(LARGE) + 1
    assert [len(kept.objects(sha256)) for sha256 in (*strays, late)] == [1, 0, 0, 1]
    assert "own/jobs/a" in kept.bucket.objects
    assert await kept.collect() == "every file is known"


async def test_a_daemon_that_stood_still_names_nothing_that_may_be_gone(kept: Kept) -> None:
    def stand_still() -> None:
        kept.clock.ahead_us = UNWRITTEN_US + 1

    kept.bucket.took = stand_still
    with pytest.raises(Busy, match="stood still"):
        await kept.put(LARGE)
    with pytest.raises(NotFound):
        await kept.read(codec.sha256_hex(LARGE))


async def test_what_is_in_the_folder_is_read_from_there(kept: Kept) -> None:
    before = Blobs(kept.db, kept.folder)
    sha256 = codec.sha256_hex(LARGE)
    await before.put(sha256, _pieces(LARGE), limit_bytes=LIMIT)
    assert await kept.put(LARGE) == sha256
    assert not kept.bucket.objects
    assert await kept.read(sha256) == LARGE
    other = await kept.put(b"other" + LARGE)
    with pytest.raises(Internal, match="SKY_BLOBS"):
        [piece async for piece in before.read(await before.get(other))]
    (kept.folder / sha256[:2] / sha256[2:4] / sha256).unlink()


async def test_the_collector_waits_before_it_removes_rows(kept: Kept) -> None:
    sha256 = await kept.put(LARGE)
    kept.age()
    done = await Collect(kept.db, kept.clock, NOW, kept.blobs).look("content")
    assert done.due_us is not None
    assert done.due_us <= kept.clock.now_us() + QUIET_US
    assert await kept.read(sha256) == LARGE
