"""The file of a backup: what is written into it, and what is taken out of one.

Decides: that it says at its beginning what it is, and at its end what is in it, with a hash of each part; and
that only plain files below the names that a backup has are taken out. Never: follows a link out of it, or
lets it say who may read what. Follows: one that is cut off, or of which a byte is another, is refused before
anything is changed; whoever can write all of it anew is not found out, so it is kept as safe as the keys.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import tarfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import msgspec

from sky.kit.version import VERSION
from sky.store.migrate import HEAD

ABOUT = "backup.json"
MANIFEST = "manifest.json"
DATABASE = "database.db"
BUCKETS = "buckets.json"
SECRETS = ("token", "secret")
FOLDERS = ("blobs", "artifacts")
HALF_WRITTEN = "incoming"
"""A folder in each of those, with what is not all there yet."""
OURS_ONLY = frozenset({"installation.json", "installation.lock"})
"""In each of those: whose it is, which a copy is not."""
_TOP = frozenset({ABOUT, MANIFEST, DATABASE, BUCKETS, *SECRETS, *FOLDERS})
HALF = "backup.tar"
"""One that is being written, in a folder of its own."""
INSIDE = _TOP | {HALF, *(f"{DATABASE}-{beside}" for beside in ("wal", "shm", "journal"))}
"""All that may be in a folder where one is made, or taken out."""
_BELOW = tuple(f"{name}/" for name in FOLDERS)
CHUNK_BYTES = 1024**2
ABOUT_BYTES_MAX = 1024**3
FULL = (errno.ENOSPC, errno.EDQUOT)


class BackupError(Exception):
    """It cannot be done; the message says why and what to do."""


class About(msgspec.Struct, frozen=True):
    """What a backup is: by which release, with which schema."""

    release: str
    schema: str


class Manifest(msgspec.Struct, frozen=True):
    """Every file of a backup but this one: its bytes, and their SHA-256."""

    files: dict[str, tuple[int, str]]


class _Hashing:
    """Something to read, that is hashed on its way."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(size)
        self.digest.update(piece)
        return piece


@dataclass
class Writing:
    """An archive that is being written."""

    archive: tarfile.TarFile
    files: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])

    def add_text(self, folder: Path, name: str, content: Any) -> None:
        """Add something that is said, by way of a file in ``folder``."""
        path = folder / name
        path.write_bytes(msgspec.json.encode(content) + b"\n")
        self.add_file(path, name)

    def add_file(self, path: Path, name: str) -> None:
        """Add a file, or what a link leads to. Raises BackupError: it is no file."""
        if not stat.S_ISREG(path.stat().st_mode):
            raise BackupError(f"{path} is no file, and a backup holds nothing else; put it elsewhere")
        with path.open("rb") as file:
            told = os.fstat(file.fileno())
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = told.st_size, 0o600, int(told.st_mtime)
            hashing = _Hashing(file)
            self.archive.addfile(info, cast("IO[bytes]", hashing))
        self.files[name] = (told.st_size, hashing.digest.hexdigest())

    def add_folder(self, folder: Path, name: str) -> None:
        """Add a folder that is in use. What is half-written is left out, and so is what is removed meanwhile:
        nothing names it any more."""

        def unless_gone(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise error

        folder = folder.resolve()  # it may be a link to another disk
        for top, folders, files in os.walk(folder, onerror=unless_gone):
            under = PurePosixPath(name) / Path(top).relative_to(folder).as_posix()
            folders[:] = sorted(one for one in folders if Path(top, one) != folder / HALF_WRITTEN)
            for one in folders:
                if Path(top, one).is_symlink():
                    msg = f"{Path(top, one)} is a link to a folder, which a backup would miss"
                    raise BackupError(f"{msg}; link all of {folder} instead, or none of it")
            for one in sorted(files):
                if Path(top) == folder and one in OURS_ONLY:
                    continue
                with suppress(FileNotFoundError):
                    self.add_file(Path(top, one), str(under / one))

    def begin(self, folder: Path) -> None:
        """Say what it is."""
        self.add_text(folder, ABOUT, About(VERSION, HEAD))

    def end(self, folder: Path) -> None:
        """Say what is in it, and close it."""
        self.add_text(folder, MANIFEST, Manifest(dict(self.files)))
        self.archive.close()


# ── taking out ──────────────────────────────────────────────────────────────────────────────────


def take_out(file: Path, into: Path) -> None:
    """Take all of a backup out, into an empty folder, and compare it with what it says that it holds.

    Raises BackupError.
    """
    try:
        with tarfile.open(file, "r|") as archive:
            found = _all_of(archive, file, into)
    except tarfile.TarError as error:
        msg = f"{file} cannot be read to its end as a backup: {error}; nothing was put back, use another copy"
        raise BackupError(msg) from error
    except OSError as error:
        if error.errno not in FULL:
            raise
        msg = f"the disk of {into.parent} has no room for what is in {file}; nothing was put back: make room"
        raise BackupError(f"{msg} there, or name a folder on another disk with SKY_HOME") from error
    missing = [name for name in (DATABASE, *SECRETS) if name not in found]
    if missing and ABOUT not in found:
        raise BackupError(f"{file} is no backup of ours: {', '.join(missing)} is not in it")
    if ABOUT in found:  # an earlier release wrote none, and no hashes
        _compare(file, into, found)


def _all_of(archive: tarfile.TarFile, file: Path, into: Path) -> dict[str, tuple[int, str]]:
    found: dict[str, tuple[int, str]] = {}
    for info in archive:
        parts = PurePosixPath(info.name).parts
        in_folder = info.name.startswith(_BELOW)
        if not (in_folder or info.name in _TOP) or ".." in parts or info.name in found:
            raise BackupError(
                f"{file} is no backup of ours: {info.name!r} is not in one; nothing was put back"
            )
        path = into.joinpath(*parts)
        if info.isdir() and (in_folder or info.name in FOLDERS):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        elif info.isreg() and not info.issparse() and info.name not in FOLDERS:
            found[info.name] = _take(archive, info, path)
        else:
            msg = f"{file} is no backup of ours: {info.name!r} in it is a link, or no plain file"
            raise BackupError(f"{msg}; nothing was put back")
    return found


def _take(archive: tarfile.TarFile, info: tarfile.TarInfo, path: Path) -> tuple[int, str]:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    source = archive.extractfile(info)
    assert source is not None, "it is a plain file"
    digest, size = hashlib.sha256(), 0
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as out:
        while piece := source.read(CHUNK_BYTES):
            digest.update(piece)
            size += len(piece)
            out.write(piece)
    return size, digest.hexdigest()


def _compare(file: Path, into: Path, found: dict[str, tuple[int, str]]) -> None:
    """See that a backup has all that it says, and nothing else."""
    why = None
    if MANIFEST not in found or found[MANIFEST][0] > ABOUT_BYTES_MAX:
        why = "its end is missing"
    else:
        try:
            said = msgspec.json.decode((into / MANIFEST).read_bytes(), type=Manifest).files
        except msgspec.DecodeError as error:
            why = f"what it says of itself cannot be read ({error})"
        else:
            have = {name: told for name, told in found.items() if name != MANIFEST}
            other = sorted(name for name in said.keys() | have.keys() if said.get(name) != have.get(name))
            if other:
                why = f"{len(other)} of its files are missing or not as they were written: {other[0]}"
            elif missing := [name for name in (DATABASE, *SECRETS) if name not in have]:
                why = f"{', '.join(missing)} is not in it"
    if why is not None:
        raise BackupError(f"{file} is damaged: {why}; nothing was put back, use another copy of it")


def told_full(error: Exception, doing: str, where: Path) -> str | None:
    """What to say of a disk that is full; None: it is something else."""
    if not isinstance(error, OSError) or error.errno not in FULL:
        return None
    return f"{doing}, and there is no room on the disk of {where}; make room there, or use another disk"
