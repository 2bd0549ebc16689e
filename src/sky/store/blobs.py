"""Content by its hash: small in a row, large in a file of the blob folder.

Decides: where content is kept, and whether a file is nobody's. Never: opens it; bytes go in and out unread.
Follows: content is stored under the SHA-256 that it really has, or not at all; the same content is stored
once; the row is written after the file is whole, so a row always has its content. With ``full_sync`` the
file is on the disk before its row is.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from sky.domain.errors import HashMismatch, NotFound, PayloadTooLarge
from sky.domain.keeping import FRESH_US
from sky.kit import faults
from sky.store.db import Database
from sky.store.prepared import Prepared, places, prepared
from sky.store.schema import blobs
from sky.store.spool import Spool, prepare_folder
from sky.store.sql import insert_ignore, upsert
from sky.store.tx import Tx

ROW_BYTES_MAX = 64 * 1024
CHUNK_BYTES = 1024 * 1024
INLINE_BYTES_MAX = 256 * 1024
FILES_AT_ONCE = 500
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Content:
    """Stored content. ``inline`` is all of it where it is small; ``path`` is its file where it is not."""

    sha256: str
    size: int
    inline: bytes | None
    path: Path | None


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
_ROW = prepared(sa.select(blobs.c.size_bytes, blobs.c.content).where(_NAMED))
_AGE = prepared(sa.select(blobs.c.size_bytes, blobs.c.created_us).where(_NAMED))
_USED = prepared(sa.update(blobs).where(_NAMED).values(created_us=sa.bindparam("b_now")))
_IN_ROWS = sa.select(blobs.c.sha256, blobs.c.content).where(blobs.c.content.is_not(None))
_INLINE = Prepared(lambda _, count: _IN_ROWS.where(blobs.c.sha256.in_(places("hashes", count))), "hashes")
_NAMES = [column.name for column in blobs.columns]
_STORE = Prepared(lambda dialect, _: insert_ignore(dialect, blobs, _NAMES))
_KEEP = Prepared(
    lambda dialect, _: upsert(
        dialect,
        blobs,
        ["sha256"],
        _NAMES,
        lambda new: {"created_us": new.created_us},
        lambda new: blobs.c.created_us < new.created_us - FRESH_US,
    )
)


class Blobs:
    """The blobs of one database and one folder."""

    def __init__(self, db: Database, folder: Path, *, full_sync: bool = False, shared: bool = False) -> None:
        self._db = db
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
            return Content(sha256, row["size_bytes"], row["content"], None)
        return Content(sha256, row["size_bytes"], None, self._path(sha256))

    async def read(self, content: Content, start: int = 0) -> AsyncIterator[bytes]:
        """The bytes of ``content`` from ``start``, in pieces of at most a mebibyte."""
        if content.inline is not None:
            yield content.inline[start:]
            return
        if content.path is None:
            return
        file = await asyncio.to_thread(open, content.path, "rb")
        try:
            if start:
                file.seek(start)
            while piece := await asyncio.to_thread(file.read, CHUNK_BYTES):
                yield piece
        finally:
            file.close()

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
            if spool is not None:
                now_us = self._db.clock.now_us()  # the collector must not take it for old before it has a row
                await spool.keep(self._path(sha256), full_sync=self._full_sync, at_us=now_us)
            faults.point("blob kept, not written down")
            content = None if spool is not None else bytes(head)
            return await self._db.write(lambda tx: _write_down(tx, sha256, size, content))
        finally:
            if spool is not None:
                await spool.discard()

    async def stray_files(self, now_us: int) -> list[tuple[str, int]]:
        """Content in files that no row knows, and how many bytes it has: its row is removed, or was never
        written. What came lately is not among it."""
        files = await asyncio.to_thread(lambda: list(self._old_files(now_us)))
        strays: list[tuple[str, int]] = []
        for start in range(0, len(files), FILES_AT_ONCE):
            some = files[start : start + FILES_AT_ONCE]
            there = await self._rows(sha256 for sha256, _ in some)
            strays += [one for one in some if one[0] not in there]
        return strays

    async def remove_files(self, hashes: Sequence[str], now_us: int) -> int:
        """Remove files that no row knows; returns how many are gone.

        Each is moved aside first, and put back when it turns out that somebody has just brought it again.
        """
        aside = await asyncio.to_thread(self._aside, hashes)
        there = await self._rows(aside)
        return await asyncio.to_thread(self._settle, aside, there, now_us)

    async def _rows(self, hashes: Iterable[str]) -> set[str]:
        wanted = list(hashes)
        query = sa.select(blobs.c.sha256).where(blobs.c.sha256.in_(wanted))
        return set(await self._db.read(lambda c: list(c.scalars(query)))) if wanted else set()

    def _old_files(self, now_us: int) -> Iterator[tuple[str, int]]:
        for path in self._folder.glob("[0-9a-f][0-9a-f]/[0-9a-f][0-9a-f]/*"):
            told = path.stat(follow_symlinks=False)
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


def _write_down(tx: Tx, sha256: str, size: int, content: bytes | None) -> bool:
    row = {"sha256": sha256, "size_bytes": size, "content": content, "created_us": tx.now_us}
    return _STORE.run(tx.connection, row) == 1 or use(tx, sha256) is None
