"""Files that go along with an image: fetched once by this node, unpacked once for its computer.

Decides: what may be unpacked (plain files and folders, below the folder they go to, within the limits of
``wire/included``), and where calls find it. Never: follows or makes a link that an archive names, or leaves
half of an archive looking whole.
Follows: the folder is shared by the nodes of a computer, so its files are not writable; each node's work
folder has a link to everything at its top, so relative paths lead to it as they do where it came from.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import tarfile
import threading
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from sky.agent.blobs import Blobs, Refused
from sky.agent.installer import Console, Unbuildable
from sky.agent.shelf import Shelf
from sky.kit.codec import is_sha256
from sky.wire.included import (
    BYTES_MAX,
    FILES_MAX,
    GZIP,
    LEVELS_MAX,
    LIST_BYTES_MAX,
    PARTS_MAX,
    PATH_BYTES_MAX,
    Parts,
)

HASH_CHARS = 20
FILES = "files"
"""The folder within one on the shelf that has nothing but what was unpacked."""
CHUNK_BYTES = 256 * 1024
OVERHEAD_BYTES = 4096
"""What an archive may have beside the content of each file."""
NAME_BYTES_MAX = 255


async def prepare(
    sha256: str | None, shelf: Shelf, blobs: Blobs, work: Path, console: Console
) -> Path | None:
    """The folder with the image's included files, and links to them in ``work``; None without any.

    Raises ``Unbuildable``, OSError. The caller bounds the time.
    """
    if sha256 is None:
        return None

    async def make(folder: Path, _lock: int) -> None:
        try:
            await _make(sha256, folder, blobs)
        except Refused as refused:
            raise Unbuildable(f"the included files cannot be fetched: {refused}") from refused

    def on_wait() -> None:
        console("stdout", "waiting for another node that unpacks the same files\n")

    folder = await shelf.take(f"files-{sha256[:HASH_CHARS]}", make, on_wait)
    files = folder / FILES
    for entry in sorted(files.iterdir()):
        place = work / entry.name
        if place.is_symlink():
            place.unlink()
        elif place.exists():
            console("stderr", f"{entry.name} of the included files is hidden by one that is in {work}\n")
            continue
        place.symlink_to(entry)
    return files


async def _make(sha256: str, folder: Path, blobs: Blobs) -> None:
    files = folder / FILES
    files.mkdir(parents=True)
    whole = await blobs.fetch(sha256)
    names = [sha256]
    try:
        if not _is_archive(whole):
            names = _parts_of(whole)
        unpacking = Unpacking(files)
        for name in names:
            path = await blobs.fetch(name)
            try:
                await unpacking.add(path)
            finally:
                blobs.unpin(name)
    finally:
        blobs.unpin(sha256)


def _is_archive(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(GZIP)) == GZIP


def _parts_of(path: Path) -> list[str]:
    size = path.stat().st_size
    if size > LIST_BYTES_MAX:
        raise Unbuildable(f"the list of included parts has {size} bytes; at most {LIST_BYTES_MAX} are read")
    try:
        parts = msgspec.json.decode(path.read_bytes(), type=Parts).parts
    except msgspec.MsgspecError as error:
        raise Unbuildable(
            f"includes_sha256 names neither a gzipped tar nor a list of them: {error}; the client that made "
            "the compute stored something else"
        ) from error
    wrong = next((part for part in parts if not is_sha256(part)), None)
    if wrong is not None:
        raise Unbuildable(f"the list of included parts names {wrong[:80]!r}, which is no hash")
    if len(parts) > PARTS_MAX:
        raise Unbuildable(f"{len(parts)} included parts; at most {PARTS_MAX} are unpacked")
    return list(parts)


class Unpacking:
    """Archives that are unpacked into one folder, within the limits of all of them together."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._bytes = 0
        self._files = 0
        self._stopped = threading.Event()

    async def add(self, archive: Path) -> None:
        """Unpack one more. Raises ``Unbuildable``, OSError. When it is cancelled, nothing goes on behind."""
        working = asyncio.ensure_future(asyncio.to_thread(self._unpack, archive))
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError:
            self._stopped.set()
            await asyncio.wait([working])
            raise

    def _unpack(self, archive: Path) -> None:
        try:
            with _opened(archive) as tar:
                for info in tar:
                    if self._stopped.is_set():
                        return
                    self._one(tar, info)
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise Unbuildable(f"an archive of included files is damaged: {error}") from error

    def _one(self, tar: tarfile.TarFile, info: tarfile.TarInfo) -> None:
        path = self._target / _inside(info)
        if info.isdir():
            self._folder(path, info)
            return
        self._files += 1
        self._bytes += info.size
        if self._files > FILES_MAX:
            raise Unbuildable(f"more than {FILES_MAX} included files; leave some out with excludes")
        if self._bytes > BYTES_MAX:
            raise Unbuildable(
                f"the included files unpack to more than {BYTES_MAX} bytes; leave some out with excludes"
            )
        source = tar.extractfile(info)
        assert source is not None, "a plain file has content"
        self._folder(path.parent, info)
        try:
            with path.open("xb") as file:
                while not self._stopped.is_set() and (content := source.read(CHUNK_BYTES)):
                    file.write(content)
                os.fchmod(file.fileno(), 0o555 if info.mode & 0o100 else 0o444)
        except (FileExistsError, IsADirectoryError) as error:
            raise _refused(info, "is there twice") from error

    def _folder(self, path: Path, info: tarfile.TarInfo) -> None:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise _refused(info, "needs a folder where a file is") from error


class _Bounded(gzip.GzipFile):
    """A stream that ends with an error where an archive of the allowed size would have ended long before."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rb")
        self._left = BYTES_MAX + FILES_MAX * OVERHEAD_BYTES

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        self._left -= len(content)
        if self._left < 0:
            raise Unbuildable(f"an archive of included files unpacks to more than {BYTES_MAX} bytes")
        return content


@contextmanager
def _opened(archive: Path) -> Generator[tarfile.TarFile, None, None]:
    with (
        _Bounded(archive) as stream,
        tarfile.open(fileobj=stream, mode="r|", bufsize=CHUNK_BYTES) as tar,
    ):
        yield tar


def _inside(info: tarfile.TarInfo) -> str:
    """The path of a member below the folder it goes to. Raises ``Unbuildable`` for what leads elsewhere."""
    name = info.name.removeprefix("./").rstrip("/")
    levels = name.split("/")
    if info.issparse() or not (info.isreg() or info.isdir()):
        raise _refused(info, "is a link, a device or the like; only plain files and folders go along")
    if info.isdir() and name in ("", "."):
        return "."
    if name.startswith("/") or "\0" in name or any(level in ("", ".", "..") for level in levels):
        raise _refused(info, "does not lie below the folder it is unpacked to")
    encoded = [os.fsencode(level) for level in levels]
    if len(levels) > LEVELS_MAX or any(len(level) > NAME_BYTES_MAX for level in encoded):
        raise _refused(info, f"is deeper than {LEVELS_MAX} folders or has too long a name")
    if sum(map(len, encoded)) + len(levels) > PATH_BYTES_MAX:
        raise _refused(info, f"has a path of more than {PATH_BYTES_MAX} bytes")
    return name


def _refused(info: tarfile.TarInfo, why: str) -> Unbuildable:
    return Unbuildable(f"the included file {info.name[:200]!r} {why}")
