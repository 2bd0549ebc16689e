"""Content by its hash: small in a row, large in a file of the blob folder.

Decides: where content is kept. Never: opens it; bytes go in and out unread.
Follows: content is stored under the SHA-256 that it really has, or not at all; the same content is stored
once; the row is written after the file is whole, so a row always has its content. With ``full_sync`` the
file is on the disk before its row is.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from sky.domain.errors import HashMismatch, NotFound, PayloadTooLarge
from sky.kit import faults
from sky.store.db import Database
from sky.store.prepared import Prepared, places, prepared
from sky.store.schema import blobs
from sky.store.spool import Spool
from sky.store.sql import insert_ignore
from sky.store.tx import Tx

ROW_BYTES_MAX = 64 * 1024
CHUNK_BYTES = 1024 * 1024
INLINE_BYTES_MAX = 256 * 1024


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
        _STORE.run(tx.connection, *rows)


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
_IN_ROWS = sa.select(blobs.c.sha256, blobs.c.content).where(blobs.c.content.is_not(None))
_INLINE = Prepared(lambda _, count: _IN_ROWS.where(blobs.c.sha256.in_(places("hashes", count))), "hashes")
_STORE = Prepared(lambda dialect, _: insert_ignore(dialect, blobs, [column.name for column in blobs.columns]))


class Blobs:
    """The blobs of one database and one folder."""

    def __init__(self, db: Database, folder: Path, *, full_sync: bool = False) -> None:
        self._db = db
        self._folder = folder
        self._full_sync = full_sync
        self._incoming = folder / "incoming"

    def prepare(self) -> None:
        """Make the folder, and remove what uploads of an ended process left half-written."""
        self._incoming.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in self._incoming.iterdir():
            left.unlink(missing_ok=True)

    async def size(self, sha256: str) -> int | None:
        """Bytes of the stored content of that hash; None when it is not stored."""
        return await self._db.read(lambda c: known(c, sha256))

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
                await spool.keep(self._path(sha256), full_sync=self._full_sync)
            faults.point("blob kept, not written down")
            content = None if spool is not None else bytes(head)
            return await self._db.write(lambda tx: _write_down(tx, sha256, size, content))
        finally:
            if spool is not None:
                await spool.discard()

    def _path(self, sha256: str) -> Path:
        return self._folder / sha256[:2] / sha256[2:4] / sha256


def _write_down(tx: Tx, sha256: str, size: int, content: bytes | None) -> bool:
    row = {"sha256": sha256, "size_bytes": size, "content": content, "created_us": tx.now_us}
    return _STORE.run(tx.connection, row) == 1
