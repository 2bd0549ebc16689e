"""Content by its hash: small in a row, large in a file of the blob folder or in a bucket.

Decides: where content is kept, and whether a file or an object is nobody's. Never: opens it; bytes go in and
out unread. Follows: content is stored under the SHA-256 that it really has, or not at all; the same content
has one row, written after its file or object is whole, so a row always has its content. With ``full_sync``
the file is on the disk before its row is. What is in the folder is read from there, with a bucket too.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from sky.domain.errors import Busy, HashMismatch, Internal, NotFound, PayloadTooLarge
from sky.domain.keeping import FRESH_US, UNWRITTEN_US
from sky.kit import faults
from sky.store.db import Database
from sky.store.prepared import Prepared, places, prepared
from sky.store.schema import blobs
from sky.store.spool import Spool, prepare_folder
from sky.store.sql import insert_ignore, upsert
from sky.store.tx import Tx

if TYPE_CHECKING:
    from sky.store.blob_bucket import BlobBucket
    from sky.store.tenure import Tenure

ROW_BYTES_MAX = 64 * 1024
CHUNK_BYTES = 1024 * 1024
FILES_AT_ONCE = 500
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Content:
    """Stored content. ``inline`` is all of it where it is small; where it is not, ``path`` is its file, or
    ``place`` its name in the bucket."""

    sha256: str
    size: int
    inline: bytes | None
    path: Path | None = None
    place: str | None = None


def store_inline(tx: Tx, contents: Sequence[tuple[str, bytes]]) -> None:
    """Keep small contents (hash, bytes) in rows, as part of a verb's own transaction."""
    if contents:
        rows = [
            {"sha256": sha256, "size_bytes": len(content), "content": content, "created_us": tx.now_us}
            for sha256, content in dict(contents).items()
        ]
        _KEEP.run(tx.connection, *rows)


def use(tx: Tx, sha256: str) -> int | None:
    """How many bytes the stored content of that hash has; None when it is not stored. It is about to be
    named: that is noted, so that it is not removed meanwhile."""
    row = _AGE.first(tx.connection, {"b_sha": sha256})
    if row is None:
        return None
    if row["created_us"] < tx.now_us - FRESH_US:
        _USED.run(tx.connection, {"b_sha": sha256, "b_now": tx.now_us})
    return int(row["size_bytes"])


def known(connection: sa.Connection, sha256: str) -> int | None:
    """How many bytes the stored content of that hash has; None when it is not stored."""
    return _SIZE.scalar(connection, {"b_sha": sha256})


def inline_of(connection: sa.Connection, hashes: Sequence[str]) -> dict[str, bytes]:
    """The contents of those hashes that sit in rows."""
    if not hashes:
        return {}
    found = _INLINE.all(connection, {"hashes": list(set(hashes))})
    return {row["sha256"]: row["content"] for row in found}


_NAMED = blobs.c.sha256 == sa.bindparam("b_sha")
_SIZE = prepared(sa.select(blobs.c.size_bytes).where(_NAMED))
_ROW = prepared(sa.select(blobs.c.size_bytes, blobs.c.content, blobs.c.place).where(_NAMED))
_AGE = prepared(sa.select(blobs.c.size_bytes, blobs.c.created_us).where(_NAMED))
_USED = prepared(sa.update(blobs).where(_NAMED).values(created_us=sa.bindparam("b_now")))
_IN_ROWS = sa.select(blobs.c.sha256, blobs.c.content).where(blobs.c.content.is_not(None))
_INLINE = Prepared(lambda _, count: _IN_ROWS.where(blobs.c.sha256.in_(places("hashes", count))), "hashes")
_NAMES = [column.name for column in blobs.columns]
_KEPT_IN_ROWS = [name for name in _NAMES if name != "place"]
_STORE = Prepared(lambda dialect, _: insert_ignore(dialect, blobs, _NAMES))
_KEEP = Prepared(
    lambda dialect, _: upsert(
        dialect,
        blobs,
        ["sha256"],
        _KEPT_IN_ROWS,
        lambda new: {"created_us": new.created_us},
        lambda new: blobs.c.created_us < new.created_us - FRESH_US,
    )
)


class Blobs:
    """The blobs of one database and one folder, or a bucket for what is brought from now on."""

    def __init__(
        self,
        db: Database,
        folder: Path,
        *,
        full_sync: bool = False,
        shared: bool = False,
        bucket: BlobBucket | None = None,
        tenures: tuple[Tenure | None, Tenure | None] = (None, None),
    ) -> None:
        """``tenures``: who may remove from the folder, and from the bucket; None: nobody else knows it."""
        self._db = db
        self._of_folder, self._of_bucket = tenures
        self._bucket = bucket
        self._folder = folder
        self._shared = shared
        self._full_sync = full_sync
        self._incoming = folder / "incoming"
        self._going = folder / "going"

    def prepare(self) -> None:
        """Make the folder, and remove what uploads of an ended process left half-written."""
        prepare_folder(self._incoming, shared=self._shared)

    async def size(self, sha256: str) -> int | None:
        """Bytes of the stored content of that hash; None when it is not stored."""
        return await self._db.read(lambda c: known(c, sha256))

    async def has(self, sha256: str) -> bool:
        """Whether content of that hash is stored, and stays for whoever is about to name it."""
        row = await self._db.read(lambda c: _AGE.first(c, {"b_sha": sha256}))
        if row is None:
            return False
        if row["created_us"] >= self._db.clock.now_us() - FRESH_US:
            return True
        return await self._db.write(lambda tx: use(tx, sha256)) is not None

    async def get(self, sha256: str) -> Content:
        """The content of that hash, or ``NotFound``."""
        row = await self._db.read(lambda c: _ROW.first(c, {"b_sha": sha256}))
        if row is None:
            msg = f"no blob {sha256} is stored; upload it with PUT /v1/blobs/{sha256}"
            raise NotFound(msg, details={"blob": sha256})
        if row["content"] is not None:
            return Content(sha256, row["size_bytes"], row["content"])
        if row["place"] is not None:
            return Content(sha256, row["size_bytes"], None, place=row["place"])
        return Content(sha256, row["size_bytes"], None, self._path(sha256))

    async def read(self, content: Content, start: int = 0) -> AsyncGenerator[bytes]:
        """The bytes of ``content`` from ``start``, in pieces of at most a mebibyte."""
        if content.inline is not None:
            yield content.inline[start:]
            return
        if content.place is not None:
            async for piece in self._in_bucket().read(content.place, start, content.size):
                yield piece
            return
        if content.path is None:
            return
        try:
            file = await asyncio.to_thread(open, content.path, "rb")
        except FileNotFoundError as error:
            msg = (
                f"blob {content.sha256} is not in its file any more, where it was put; restore {content.path}"
            )
            raise NotFound(msg, details={"blob": content.sha256}) from error
        try:
            if start:
                file.seek(start)
            while piece := await asyncio.to_thread(file.read, CHUNK_BYTES):
                yield piece
        finally:
            file.close()

    async def begin(self, content: Content, start: int = 0) -> AsyncIterator[bytes]:
        """The same, once it is clear that it can be read: later it is too late to say that it cannot."""
        pieces = self.read(content, start)
        return _going_on(await anext(pieces, b""), pieces)

    def _in_bucket(self) -> BlobBucket:
        if self._bucket is None:
            raise Internal("this content was put into a bucket; set SKY_BLOBS to that one again")
        return self._bucket

    async def put(self, sha256: str, chunks: AsyncIterator[bytes], *, limit_bytes: int) -> bool:
        """Store what ``chunks`` bring under ``sha256``; True when it was not stored before.

        It never sits in memory whole. ``HashMismatch`` and ``PayloadTooLarge`` store nothing.
        """
        digest = hashlib.sha256()
        head = bytearray()
        spool: Spool | None = None
        size = 0
        try:
            async for chunk in chunks:
                size += len(chunk)
                if size > limit_bytes:
                    msg = f"the body is larger than {limit_bytes} bytes, the limit of one blob"
                    raise PayloadTooLarge(msg, details={"limit_bytes": limit_bytes})
                head += chunk
                if len(head) >= CHUNK_BYTES:
                    spool = spool or await Spool.open(self._incoming)
                    await spool.take(head, digest)
                    head = bytearray()
            if spool is not None or size > ROW_BYTES_MAX:
                spool = spool or await Spool.open(self._incoming)
                await spool.take(head, digest)
            else:
                digest.update(head)
            if spool is not None:
                await spool.settle()
            if digest.hexdigest() != sha256:
                msg = f"the body hashes to {digest.hexdigest()}, but was named {sha256}; nothing was stored"
                raise HashMismatch(msg, details={"expected": sha256, "actual": digest.hexdigest()})
            began_us = self._db.clock.now_us()
            if spool is None:
                row: dict[str, Any] = {"content": bytes(head), "place": None}
            elif self._bucket is None:  # the collector must not take it for old before it has a row
                await spool.keep(self._path(sha256), full_sync=self._full_sync, at_us=began_us)
                row = {"content": None, "place": None}
            elif await self.has(sha256):  # somebody else has brought it meanwhile
                return False
            else:
                row = {"content": None, "place": await self._bucket.put(spool.path, sha256, size)}
            faults.point("blob kept, not written down")
            row |= {"sha256": sha256, "size_bytes": size}
            return await self._db.write(lambda tx: _write_down(tx, row, began_us))
        finally:
            if spool is not None:
                await spool.discard()

    async def stray_files(self, now_us: int) -> list[tuple[str, int]]:
        """Content in files and objects that no row knows, and how many bytes it has: its row is removed, or
        was never written. What came lately is not among it, nor what is another installation's."""
        files: list[tuple[str, int]] = []
        if await _is_ours(self._of_folder):
            files = await asyncio.to_thread(lambda: list(self._old_files(now_us)))
        strays: list[tuple[str, int]] = []
        for start in range(0, len(files), FILES_AT_ONCE):
            some = files[start : start + FILES_AT_ONCE]
            there = await self._rows(sha256 for sha256, _ in some)
            strays += [one for one in some if one[0] not in there]
        if self._bucket is not None and await _is_ours(self._of_bucket):
            async for page in self._bucket.old(now_us):
                placed = await self._placed(name for name, _ in page)
                strays += [one for one in page if one[0] not in placed]
        return strays

    async def kept_from(self) -> list[str]:
        """Why nothing is removed from the folder, or the bucket: a sentence for each that is not ours."""
        asked = [one for one in (self._of_folder, self._of_bucket) if one is not None]
        return [why for one in asked if (why := await one.kept_from()) is not None]

    async def remove_files(self, hashes: Sequence[str], now_us: int) -> int:
        """Remove files and objects that no row knows; returns how many are gone.

        Each file is moved aside first, and put back when it turns out that somebody has just brought it
        again. An object that is brought again has another name.
        """
        objects = [name for name in hashes if "/" in name] if await _is_ours(self._of_bucket) else []
        may = await _is_ours(self._of_folder)
        hashes = [name for name in hashes if may and "/" not in name]
        known = await self._rows(hashes)
        hashes = [name for name in hashes if name not in known]
        if objects:
            await self._in_bucket().remove(objects)
        aside = await asyncio.to_thread(self._aside, hashes) if may else []
        there = await self._rows(aside)
        return len(objects) + await asyncio.to_thread(self._settle, aside, there, now_us)

    async def _placed(self, names: Iterable[str]) -> set[str]:
        """Which of those names in the bucket a row has."""
        wanted = list(names)
        query = sa.select(blobs.c.place).where(
            blobs.c.sha256.in_([name.partition("/")[0] for name in wanted])
        )
        return set(await self._db.read(lambda c: list(c.scalars(query)))) if wanted else set()

    async def _rows(self, hashes: Iterable[str]) -> set[str]:
        wanted = list(hashes)
        query = sa.select(blobs.c.sha256).where(blobs.c.sha256.in_(wanted))
        return set(await self._db.read(lambda c: list(c.scalars(query)))) if wanted else set()

    def _old_files(self, now_us: int) -> Iterator[tuple[str, int]]:
        for path in self._folder.glob("[0-9a-f][0-9a-f]/[0-9a-f][0-9a-f]/*"):
            try:
                told = path.stat(follow_symlinks=False)
            except FileNotFoundError:  # whoever removes files has just done so
                continue
            if _HASH.fullmatch(path.name) and told.st_mtime_ns // 1000 < now_us - FRESH_US:
                yield path.name, told.st_size

    def _aside(self, hashes: Sequence[str]) -> list[str]:
        self._going.mkdir(exist_ok=True, mode=0o700)
        for sha256 in hashes:
            with contextlib.suppress(FileNotFoundError):
                self._path(sha256).rename(self._going / sha256)
        return [path.name for path in self._going.iterdir()]  # also what an ended process has left there

    def _settle(self, aside: Sequence[str], there: set[str], now_us: int) -> int:
        gone = 0
        for sha256 in aside:
            path, moved = self._path(sha256), self._going / sha256
            fresh = moved.stat().st_mtime_ns // 1000 >= now_us - FRESH_US
            if (sha256 in there or fresh) and not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                moved.rename(path)
            else:
                moved.unlink()
                gone += 1
        return gone

    def _path(self, sha256: str) -> Path:
        return self._folder / sha256[:2] / sha256[2:4] / sha256


async def _is_ours(tenure: Tenure | None) -> bool:
    return tenure is None or await tenure.kept_from() is None


async def _going_on(first: bytes, rest: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    try:
        yield first
        async for piece in rest:
            yield piece
    finally:
        await rest.aclose()


def _write_down(tx: Tx, row: dict[str, Any], began_us: int) -> bool:
    if row["place"] is not None and tx.now_us - began_us > UNWRITTEN_US:
        msg = f"this daemon stood still while it stored blob {row['sha256']}; nothing was stored, try again"
        raise Busy(msg, after_s=1.0)
    return _STORE.run(tx.connection, {**row, "created_us": tx.now_us}) == 1 or use(tx, row["sha256"]) is None
