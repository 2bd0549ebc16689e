"""Room that is kept back on the database's disk, for ends.

Decides: how much room that is, and that it is given back piece by piece. Never: decides for whom.
Follows: while it is not whole, the disk is full; it is made whole again as soon as there is room.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import structlog

RESERVE_BYTES = 8 * 1024 * 1024
"""Room for some two hundred ends, and for any number once SQLite's log could be folded into the file."""
PIECE_BYTES = 512 * 1024
"""Small, since whoever else writes to the disk may be quicker to take it."""
SHARE = 4
"""Of the room that is there at first, at most one part in so many is kept back."""

_log = structlog.get_logger(__name__)


class Reserve:
    """A file whose room is somebody else's when it is needed. Used by one thread at a time."""

    def __init__(self, path: Path, size: int = RESERVE_BYTES) -> None:
        self._path = path
        self._had = path.stat().st_size if path.exists() else 0
        self._wanted = self._had
        room = shutil.disk_usage(path.parent).free // SHARE
        while size > max(self._had, room):
            size //= 2
        if size > self._had and self._allocate(size):
            self._wanted = size
        if self._wanted < PIECE_BYTES:
            _log.warning("reserve.none", path=str(path), free_bytes=room * SHARE)

    @classmethod
    def of(cls, url: str) -> Reserve | None:
        """The reserve beside a SQLite in a file; None: the database is elsewhere, and so is its disk."""
        path = url.removeprefix("sqlite:///")
        return None if path in (url, "") else cls(Path(path + "-reserve"))

    @property
    def whole(self) -> bool:
        """Whether nothing of it was given back."""
        return self._had == self._wanted

    def refill(self) -> bool:
        """Take back what was given; False: there is no room yet."""
        return self._allocate(self._wanted)

    def give(self) -> bool:
        """Let go of a piece; False: there is none left."""
        left = max(0, self._had - PIECE_BYTES)
        try:
            os.truncate(self._path, left)
        except OSError as error:
            _log.warning("reserve.not_given", path=str(self._path), error=str(error))
            return False
        given, self._had = self._had > 0, left
        return given

    def _allocate(self, size: int) -> bool:
        """Grow to a size, or stay as it is."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return False
        try:
            _fill(descriptor, self._had, size)
        except OSError:
            os.ftruncate(descriptor, self._had)
            return False
        finally:
            os.close(descriptor)
        self._had = size
        return True


def _fill(descriptor: int, start: int, end: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, start, end - start)
        return
    while start < end:  # macOS has no such call
        start += os.pwrite(descriptor, bytes(min(PIECE_BYTES, end - start)), start)
