"""Files of a node: listed, removed, put there and fetched.

Decides: what may not be removed, and that a file that is put there is whole or not there.
Never: removes the node's own folders, or lets a slow disk keep the node from anything else.
Follows: relative paths begin in the work folder; a listing has one line an entry, whatever its name is.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import stat
import time
from pathlib import Path

from sky.agent.session import Line, Place, SessionFailed
from sky.wire.agent import Ask, Data, Eof, Exit

CHUNK_BYTES = 256 * 1024
ENTRIES_MAX = 10_000
PART_NAME_BYTES = 100
"""How much of a file's name that of its part has; a disk takes 255 bytes in all."""
_KINDS = ((stat.S_ISDIR, "d"), (stat.S_ISLNK, "l"), (stat.S_ISREG, "-"))


def resolve(place: Place, path: str | None) -> Path:
    """A path as a session means it. Raises ``SessionFailed`` for one that is none."""
    if path is None or "\0" in path:
        raise SessionFailed("a path is needed")
    return Path(os.path.normpath(place.work / path))


async def list_folder(line: Line, ask: Ask, place: Place) -> Exit:
    """One entry a line: kind (``d``, ``l``, ``-``, ``?``), size in bytes, time of change in UTC, name."""
    path = resolve(place, ask.path or ".")
    text = await asyncio.to_thread(_listing, path)
    await line.send(Data(content=text.encode("utf-8", "surrogateescape")))
    return Exit(code=0)


def _listing(path: Path) -> str:
    if not path.is_dir():
        return _entry(path, path.lstat())
    entries = sorted(path.iterdir())
    lines = [_entry(entry, entry.lstat()) for entry in entries[:ENTRIES_MAX]]
    if len(entries) > ENTRIES_MAX:
        lines.append(f"… {len(entries) - ENTRIES_MAX} more\n")
    return "".join(lines)


def _entry(path: Path, status: os.stat_result) -> str:
    kind = next((letter for test, letter in _KINDS if test(status.st_mode)), "?")
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(status.st_mtime))
    name = path.name + ("/" if kind == "d" else f" -> {path.readlink()}" if kind == "l" else "")
    return f"{kind} {status.st_size:>12} {moment} {_on_one_line(name)}\n"


def _on_one_line(name: str) -> str:
    """A name with what would break the line, or move a terminal's cursor, as Python writes it."""
    return "".join(f"\\x{ord(c):02x}" if c < " " or c == "\x7f" else c for c in name)


async def remove(line: Line, ask: Ask, place: Place) -> Exit:
    """Remove a file, or a folder with all that is in it."""
    path = resolve(place, ask.path)
    kept = Path(os.path.normpath(place.home))
    own = (place.work, place.home / "journal", place.home / "tmp")
    real = Path(os.path.realpath(path.parent)) / path.name
    if any(candidate == kept or candidate in kept.parents or candidate in own for candidate in (path, real)):
        raise SessionFailed(f"{path} is not removed: the node itself is in it")
    await asyncio.to_thread(_remove, path)
    return Exit(code=0)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


async def upload(line: Line, ask: Ask, place: Place) -> Exit:
    """Put a file there, whole or not at all; folders on the way are made."""
    path = resolve(place, ask.path)
    if path.is_dir():
        raise SessionFailed(f"{path} is a folder; name the file in it")
    path.parent.mkdir(parents=True, exist_ok=True)
    begins = os.fsencode(path.name)[:PART_NAME_BYTES].decode("utf-8", "ignore")
    part = path.with_name(f".{begins}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            while True:
                frame = await line.receive()
                if isinstance(frame, Eof):
                    break
                if isinstance(frame, Data):
                    await asyncio.to_thread(file.write, frame.content)
            await asyncio.to_thread(file.flush)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return Exit(code=0)


async def download(line: Line, ask: Ask, place: Place) -> Exit:
    """Fetch a file."""
    path = resolve(place, ask.path)
    if not stat.S_ISREG(path.stat().st_mode):
        raise SessionFailed(f"{path} is not a file; only the content of files is fetched")
    with path.open("rb") as file:
        while content := await asyncio.to_thread(file.read, CHUNK_BYTES):
            await line.send(Data(content=content))
    return Exit(code=0)
