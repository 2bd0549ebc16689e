"""Folders that are made once on a computer and used by all its nodes: environments and included files.

Decides: who makes one (one maker at a time, under its lock), when one counts as made (its mark, which comes
last), and which go when they are too many: those that no node uses, the longest unused first.
Never: takes one away that an agent holds, or knows what is in it.
Follows: a maker that is killed leaves no mark, so the next one begins anew, and only when all that the dead
one had started is gone too, since that inherits the lock.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from sky.agent.log import say

LOCK_POLL_S = 0.1
MARK = "ready"
"""The file in a folder that says it was made, and how many bytes it has. Its age tells the last use."""
LOCK_SUFFIX = ".lock"
SWEEP_LOCK = ".sweep"
ASIDE = ".gone-"
"""Follows the name of a folder that is being taken away."""

Make = Callable[[Path, int], Awaitable[None]]
"""Makes a folder that is not there. The number is a descriptor that whatever it starts should inherit."""


class _Mark(msgspec.Struct, frozen=True):
    size_bytes: int


class Shelf:
    """The folders under ``root``. What is taken stays until ``close``, or the end of this process."""

    def __init__(self, root: Path, bytes_max: int) -> None:
        """``bytes_max``: what all of them may amount to, before unused ones are taken away."""
        self._root = root
        self._bytes_max = bytes_max
        self._held: dict[str, int] = {}

    async def take(
        self,
        key: str,
        make: Make,
        on_wait: Callable[[], None],
        is_whole: Callable[[Path], bool] = lambda _folder: True,
    ) -> Path:
        """The folder of that key, made by ``make`` unless it is there. Raises what ``make`` raises, OSError.

        ``on_wait`` is told once when another process is making it. One that is there and is not ``is_whole``
        any more is made anew. The caller bounds the time.
        """
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = self._root / key
        if key in self._held:
            return folder
        lock, waiting = self._open(key), False
        try:
            while True:
                made = _is_made(folder, is_whole)
                if not _lock(lock, fcntl.LOCK_SH if made else fcntl.LOCK_EX):
                    if not waiting:
                        on_wait()
                    waiting = True
                    await asyncio.sleep(LOCK_POLL_S)
                elif not _is_file(lock, self._path(key)):
                    os.close(lock)  # It was swept away before we had it.
                    lock = self._open(key)
                elif made and _is_made(folder, is_whole):
                    (folder / MARK).touch()
                    self._held[key] = lock
                    return folder
                elif not made and not _is_made(folder, is_whole):
                    await self._make(folder, make, lock)
        except BaseException:
            os.close(lock)
            raise

    def close(self) -> None:
        """Nothing that was taken is used any more."""
        while self._held:
            os.close(self._held.popitem()[1])

    async def _make(self, folder: Path, make: Make, lock: int) -> None:
        await asyncio.to_thread(remove, folder)
        try:
            await make(folder, lock)
            size = await asyncio.to_thread(size_of, folder)
            part = folder / f"{MARK}.part"
            part.write_bytes(msgspec.json.encode(_Mark(size)))
            part.replace(folder / MARK)
        except BaseException:
            remove(folder)
            raise
        await asyncio.to_thread(self.sweep, folder.name)

    def sweep(self, fresh: str = "") -> None:
        """Take away what a dead maker left, and unused folders while there are too many bytes."""
        sweeping = os.open(self._root / SWEEP_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _lock(sweeping, fcntl.LOCK_EX):
                return
            for lock in self._root.glob(f"*{LOCK_SUFFIX}"):
                if not lock.with_suffix("").exists():
                    self._remove(lock.name.removesuffix(LOCK_SUFFIX))
            kept: list[tuple[float, int, str]] = []
            for folder in self._root.iterdir():
                if not folder.is_dir() or folder.name == fresh or folder.name in self._held:
                    continue
                mark = _mark_of(folder)
                if mark is None:
                    self._remove(folder.name)
                else:
                    kept.append(((folder / MARK).stat().st_mtime, mark.size_bytes, folder.name))
            here = (_mark_of(self._root / key) for key in {fresh, *self._held} if key)
            total = sum(size for _, size, _ in kept) + sum(mark.size_bytes for mark in here if mark)
            for _, size, key in sorted(kept):
                if total <= self._bytes_max:
                    return
                if self._remove(key):
                    say("took an unused folder away", folder=key, size_bytes=size)
                    total -= size
        finally:
            os.close(sweeping)

    def _remove(self, key: str) -> bool:
        """Take one away, unless somebody makes or uses it."""
        lock = self._open(key)
        try:
            if not _lock(lock, fcntl.LOCK_EX) or not _is_file(lock, self._path(key)):
                return False
            (self._root / key / MARK).unlink(missing_ok=True)
            remove(self._root / key)
            self._path(key).unlink(missing_ok=True)
            return True
        finally:
            os.close(lock)

    def _path(self, key: str) -> Path:
        return self._root / f"{key}{LOCK_SUFFIX}"

    def _open(self, key: str) -> int:
        return os.open(self._path(key), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder; those that are shared by hard links count too."""
    total = 0
    for root, _, files in os.walk(folder):
        total += sum(Path(root, name).lstat().st_size for name in files)
    return total


def remove(folder: Path) -> None:
    """A folder and all that is in it, if it is there. Its name is free at once. Raises OSError."""
    aside = folder.with_name(f"{folder.name}{ASIDE}{secrets.token_hex(4)}")
    try:
        folder.rename(aside)
    except FileNotFoundError:
        return
    shutil.rmtree(aside, ignore_errors=True)  # What stays, the next sweep takes away.


def _is_made(folder: Path, is_whole: Callable[[Path], bool]) -> bool:
    return _mark_of(folder) is not None and is_whole(folder)


def _mark_of(folder: Path) -> _Mark | None:
    try:
        return msgspec.json.decode((folder / MARK).read_bytes(), type=_Mark)
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        return None


def _lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_file(fd: int, path: Path) -> bool:
    """Whether a descriptor is of the file that has this path now."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    ours = os.fstat(fd)
    return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)
