"""A file that is being written and not there yet.

Decides: how bytes get to the disk while more of them arrive: one piece is written and hashed in a thread
while the next comes in. Never: gives an unfinished file a name that anybody looks for.
Follows: what is kept is whole; what is not kept leaves nothing.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Protocol

from typing_extensions import Buffer

from sky.domain.errors import StorageFull
from sky.kit.clock import SECOND_US, SystemClock

UNTOUCHED_S = 3600.0
"""What nobody has written to for so long is left over: uploads that stand still are given up sooner."""


def prepare_folder(folder: Path, *, shared: bool) -> None:
    """Make a folder for files that are being written, and remove what ended processes left half-written.

    In one that is ``shared`` other processes may be writing now: there, only what was left alone for long.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    since_s = SystemClock().now_us() / SECOND_US - UNTOUCHED_S
    for left in folder.iterdir():
        try:
            if not shared or left.stat().st_mtime < since_s:
                left.unlink()
        except FileNotFoundError:
            continue


class Hash(Protocol):
    """What a running hash can do."""

    def update(self, data: Buffer, /) -> None: ...


class Spool:
    """A file that is being written, under a name that nobody looks for: one piece while the next arrives."""

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path: str | None = path
        self._writing: asyncio.Future[None] | None = None

    @classmethod
    async def open(cls, folder: Path) -> Spool:
        """An empty one in ``folder``. Raises StorageFull."""
        making = asyncio.ensure_future(asyncio.to_thread(tempfile.mkstemp, dir=folder))
        try:
            return cls(*await asyncio.shield(making))
        except asyncio.CancelledError:
            making.add_done_callback(_throw_away)
            raise
        except OSError as error:
            raise _full(error) from error

    @property
    def path(self) -> Path:
        """Where it is, until it is kept or discarded."""
        assert self._path is not None
        return Path(self._path)

    async def take(self, piece: bytearray, digest: Hash) -> None:
        """Begin to write a piece, once the one before is written."""
        await self.settle()
        self._writing = asyncio.get_running_loop().run_in_executor(None, self._take, piece, digest)

    async def settle(self) -> None:
        """Wait until all that was begun is done. Raises StorageFull."""
        writing = self._writing
        if writing is None:
            return
        # Not awaited itself: given up here, it would go on in its thread, and nobody would know of it.
        await asyncio.wait([writing])
        self._writing = None
        try:
            writing.result()
        except OSError as error:
            raise _full(error) from error

    def _take(self, piece: bytearray, digest: Hash) -> None:
        digest.update(piece)
        view = memoryview(piece)
        while view:
            view = view[os.write(self._descriptor, view) :]

    async def keep(self, path: Path, *, full_sync: bool, at_us: int | None = None) -> None:
        """Give it the name that is looked for. ``at_us``: when it came, by a clock that its readers go by.

        Raises StorageFull. Who stops waiting stops nothing: it may have that name, or is discarded.
        """
        await self.settle()
        self._writing = asyncio.get_running_loop().run_in_executor(None, self._keep, path, full_sync, at_us)
        await self.settle()

    def _keep(self, path: Path, full_sync: bool, at_us: int | None) -> None:
        if at_us is not None:
            os.utime(self._descriptor, ns=(at_us * 1000, at_us * 1000))
        if full_sync:
            os.fsync(self._descriptor)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._path is not None:
            Path(self._path).replace(path)
            self._path = None

    async def discard(self) -> None:
        if self._writing is not None:
            # Whatever comes of it: a descriptor that is closed may soon stand for another file.
            await asyncio.wait([self._writing])
        os.close(self._descriptor)
        if self._path is not None:
            await asyncio.to_thread(os.unlink, self._path)


def _throw_away(making: asyncio.Future[tuple[int, str]]) -> None:
    """Whoever wanted that file has left before it was made."""
    if not making.cancelled() and making.exception() is None:
        descriptor, path = making.result()
        os.close(descriptor)
        Path(path).unlink(missing_ok=True)


def _full(error: OSError) -> StorageFull:
    msg = (
        f"the disk that holds the blobs refused to write ({error.strerror}); nothing was stored: make room, "
        "or see that its folder can be written, and try again"
    )
    return StorageFull(msg)
