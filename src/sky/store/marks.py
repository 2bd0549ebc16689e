"""The mark of an installation on what it keeps outside of its database, and that of a folder: a small file.

Decides: what a mark says, and that of two who write one at once one has it: the folder is locked for a
moment. Never: says what a mark allows (``tenure``). Follows: a mark is there whole or not at all; one that
cannot be read is somebody's, and nobody knows whose. Buckets are in ``marked_bucket``, which loads more.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

import msgspec

NAME = "installation.json"
LOCK = "installation.lock"
WORKING = frozenset({NAME, LOCK, "incoming", "going"})
"""What is in a folder before anything is kept there."""
SOME = 1_000
"""As many as tell whose they are; a bucket tells as many at once."""


class Mark(msgspec.Struct, frozen=True):
    """Whose it is, and since when; ``before``: who had it until then."""

    installation: str
    since_us: int
    before: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found: ``version`` None: no mark; ``mark`` None beside a version: one that cannot be read."""

    mark: Mark | None
    version: str | None


class Place(Protocol):
    """Something that content or files are kept in. Each raises Busy, or OSError."""

    @property
    def where(self) -> str:
        """What people call it."""
        ...

    async def read(self) -> Seen:
        """The mark that it carries."""
        ...

    async def write(self, mark: Mark, over: Seen) -> bool:
        """Have it carry that mark, if it still carries what was seen; False: somebody was earlier."""
        ...

    async def some(self) -> Sequence[str]:
        """Keys or paths of some of what is kept there; empty: nothing is."""
        ...


class MarkedFolder:
    """A folder that is a place."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def where(self) -> str:
        return str(self._folder)

    async def read(self) -> Seen:
        return await asyncio.to_thread(self._read)

    async def write(self, mark: Mark, over: Seen) -> bool:
        return await asyncio.to_thread(self._write, mark, over)

    async def some(self) -> Sequence[str]:
        return await asyncio.to_thread(lambda: list(islice(self._files(), SOME)))

    def put(self, mark: Mark) -> None:
        """Mark a folder that nobody else knows yet."""
        (self._folder / NAME).write_bytes(msgspec.json.encode(mark))

    def _read(self) -> Seen:
        try:
            body = (self._folder / NAME).read_bytes()
        except FileNotFoundError:
            return Seen(None, None)
        return Seen(decoded(body), body.hex())

    def _write(self, mark: Mark, over: Seen) -> bool:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._locked():
            if self._read().version != over.version:
                return False
            fresh = self._folder / f"{NAME}.{secrets.token_hex(4)}"
            try:
                with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(msgspec.json.encode(mark))
                    file.flush()
                    os.fsync(file.fileno())
                fresh.replace(self._folder / NAME)
            finally:
                fresh.unlink(missing_ok=True)
        return True

    @contextmanager
    def _locked(self) -> Generator[None]:
        descriptor = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _files(self) -> Iterator[str]:
        for top, folders, names in os.walk(self._folder, onerror=_unless_gone):
            if top == str(self._folder):
                folders[:] = [name for name in folders if name not in WORKING]
                names = [one for one in names if one not in WORKING and not one.startswith(f"{NAME}.")]
            yield from (str((Path(top) / name).relative_to(self._folder)) for name in names)


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def decoded(body: bytes) -> Mark | None:
    """The mark that was written so; None: it cannot be read."""
    try:
        return msgspec.json.decode(body, type=Mark)
    except msgspec.DecodeError:
        return None
