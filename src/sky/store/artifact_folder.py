"""The files of jobs in a folder: one folder for each job.

Decides: where a file is kept. Never: shares content between jobs, or with blobs: what is removed is nobody
else's. Follows: a file is there under its name only when it has the length and the hash that were announced.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from itertools import islice
from pathlib import Path

from sky.domain.artifact import StoredFile, key_of
from sky.domain.errors import HashMismatch, PayloadTooLarge
from sky.kit import faults
from sky.store.spool import Spool, prepare_folder

CHUNK_BYTES = 1024**2
DELETES_MAX = 1_000
"""Files that are removed in one go."""


class ArtifactFolder:
    """A folder in which jobs leave their files."""

    def __init__(self, folder: Path, *, full_sync: bool = False, shared: bool = False) -> None:
        self._folder = folder
        self._shared = shared
        self._incoming = folder / "incoming"
        self._full_sync = full_sync

    def prepare(self) -> None:
        """Make the folder, and remove what uploads of an ended process left half-written."""
        prepare_folder(self._incoming, shared=self._shared)

    async def put(self, file: StoredFile, chunks: AsyncIterator[bytes]) -> None:
        """Store a file. HashMismatch, PayloadTooLarge and StorageFull store nothing."""
        digest = hashlib.sha256()
        spool = await Spool.open(self._incoming)
        try:
            size, head = 0, bytearray()
            async for chunk in chunks:
                size += len(chunk)
                if size > file.size:
                    msg = f"more than the {file.size} bytes that were announced"
                    raise PayloadTooLarge(msg, details={"limit_bytes": file.size})
                head += chunk
                if len(head) >= CHUNK_BYTES:
                    await spool.take(head, digest)
                    head = bytearray()
            await spool.take(head, digest)
            await spool.settle()
            if digest.hexdigest() != file.sha256:
                msg = f"what arrived hashes to {digest.hexdigest()}; {file.sha256} was announced"
                raise HashMismatch(msg, details={"expected": file.sha256, "actual": digest.hexdigest()})
            await spool.keep(self._path(file), full_sync=self._full_sync)
            faults.point("artifact kept, not written down")
        finally:
            await spool.discard()

    async def size(self, file: StoredFile) -> int | None:
        """How many bytes a stored file has; None: it is not there."""
        try:
            return (await asyncio.to_thread(self._path(file).stat)).st_size
        except FileNotFoundError:
            return None

    async def read(self, file: StoredFile, start: int = 0) -> AsyncIterator[bytes]:
        """A stored file from a byte on, in pieces."""
        opened = await asyncio.to_thread(open, self._path(file), "rb")
        try:
            opened.seek(start)
            while piece := await asyncio.to_thread(opened.read, CHUNK_BYTES):
                yield piece
        finally:
            opened.close()

    async def delete_some(self, job_id: str) -> bool:
        """Remove some files of a job; True when nothing is left."""
        return await asyncio.to_thread(self._delete_some, self._folder / job_id)

    def _delete_some(self, folder: Path) -> bool:
        if not folder.is_dir():
            return True
        some = list(islice(folder.iterdir(), DELETES_MAX))
        for path in some:
            path.unlink(missing_ok=True)
        if len(some) == DELETES_MAX:
            return False
        folder.rmdir()
        return True

    def _path(self, file: StoredFile) -> Path:
        return self._folder / file.job_id / hashlib.sha256(key_of(file).encode()).hexdigest()
