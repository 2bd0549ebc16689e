"""Parts of a folder as archives: equal files give equal bytes, and what was packed before is not read again.

Decides: the form of an archive (a gzipped tar without times and owners), and when a name that was worked out
before still stands. Never: keeps more than a piece of a file in memory.
Follows: whether a part changed is asked of the disk's own marks of its files; files that changed in the last
seconds are read again, since such marks are coarse.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from sky.client.tasks.tree import Entry, Unreadable
from sky.kit.clock import SystemClock

FORM = "1"
"""Changed with whatever changes the bytes of an archive."""
LEVEL = 1
PIECE_BYTES = 1024 * 1024
SETTLED_NS = 2_000_000_000
"""A file that changed more recently than this may change again without a mark of it."""
KEPT_MAX = 4096

_clock = SystemClock()


@dataclass(slots=True)
class Built:
    """An archive in a file without a name."""

    sha256: str
    size: int
    file: IO[bytes]

    def __call__(self) -> Iterator[bytes]:
        """Its bytes from the beginning, in pieces."""
        self.file.seek(0)
        while piece := self.file.read(PIECE_BYTES):
            yield piece

    def close(self) -> None:
        """Give its room back."""
        self.file.close()


class _Hashed:
    """A file that is hashed as it is written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.hash = hashlib.sha256()
        self.size = 0

    def write(self, content: bytes) -> int:
        self.hash.update(content)
        self.size += len(content)
        return self._file.write(content)

    def flush(self) -> None:
        self._file.flush()


def build(entries: Sequence[Entry]) -> Built:
    """Pack some entries. Raises Unreadable. Whoever has it closes it."""
    with contextlib.ExitStack() as undone:
        file = cast("IO[bytes]", undone.enter_context(tempfile.TemporaryFile()))
        hashed = _Hashed(file)
        out = cast("IO[bytes]", hashed)
        with (
            gzip.GzipFile("", "wb", LEVEL, out, mtime=0) as squeezed,
            tarfile.open(fileobj=squeezed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for entry in entries:
                _add(tar, entry)
        undone.pop_all()
    return Built(hashed.hash.hexdigest(), hashed.size, file)


def _add(tar: tarfile.TarFile, entry: Entry) -> None:
    info = tarfile.TarInfo(entry.name)
    info.mode = entry.mode
    if entry.kind == "link":
        info.type, info.linkname = tarfile.SYMTYPE, entry.link
        tar.addfile(info)
    elif entry.kind == "folder":
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    else:
        try:
            with entry.path.open("rb") as content:
                info.size = os.fstat(content.fileno()).st_size
                tar.addfile(info, content)
        except OSError as error:
            reason = error.strerror or f"it changed while it was read ({error})"
            raise Unreadable(str(entry.path), reason) from error


# ── names that are known ────────────────────────────────────────────────────────────────────────


class Names:
    """The names of archives by what is in them, kept in a file between programs."""

    def __init__(self, home: Path) -> None:
        self._file = home / "cache" / "archives.json"
        self._known: dict[str, str] | None = None

    def find(self, entries: Sequence[Entry]) -> str | None:
        """The name of the archive of these entries, when it is known."""
        return self._read().get(_key(entries))

    def note(self, entries: Sequence[Entry], sha256: str) -> None:
        """Keep a name, unless a file may have changed while it was worked out."""
        limit_ns = _clock.now_us() * 1000 - SETTLED_NS
        if any(mark > limit_ns for entry in entries for mark in entry.mark[:2]):
            return
        known = self._read()
        known.pop(_key(entries), None)
        known[_key(entries)] = sha256
        while len(known) > KEPT_MAX:
            del known[next(iter(known))]
        self._write(known)

    def _read(self) -> dict[str, str]:
        if self._known is None:
            try:
                told: Any = json.loads(self._file.read_bytes())
            except (OSError, ValueError):
                told = {}
            given = cast("dict[Any, Any]", told) if isinstance(told, dict) else {}
            self._known = {
                str(key): name for key, name in given.items() if isinstance(name, str) and len(name) == 64
            }
        return self._known

    def _write(self, known: dict[str, str]) -> None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.NamedTemporaryFile("w", dir=self._file.parent, delete=False) as file:
                json.dump(known, file)
            Path(file.name).replace(self._file)
        except OSError:
            # Without it the same is worked out again: slower, and nothing else.
            return


def _key(entries: Sequence[Entry]) -> str:
    running = hashlib.sha256(FORM.encode())
    for entry in entries:
        running.update(entry.identity() + b"\n")
    return running.hexdigest()
