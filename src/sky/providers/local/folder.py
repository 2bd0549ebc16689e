"""A node's folder: the files that say what it is, and how the folder goes when the node is gone.

Decides: the name, shape and mode of every file in it. Never: looks at a process, or signals one.
Follows: files appear whole or not at all, and a folder leaves ``nodes/`` in one rename; so a daemon that
dies at any moment leaves something that the next one understands.

    nodes/<tag>/      launch.json spec.json token     written before the agent begins
                      room room.2                     what is written on a full disk takes their room
                      agent.lock agent.pid agent.log  held, written and filled by the agent
                      terminating                     its end was asked for: when, and who was signalled
                      gone                            it was found to have ended by itself: when, and why
    nodes/ended/      <tag>.log                       what the newest ended nodes have left to read
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from sky.kit import faults
from sky.providers.base import LaunchOrder
from sky.providers.local.processes import Identity

LOG_BYTES_MAX = 4 * 1024 * 1024
LOG_BYTES_KEPT = 1024 * 1024
LAST_WORDS_BYTES = 4096
LAST_WORDS_CHARS = 300
ENDED_LOGS_MAX = 50
ENDED = "ended"
ROOMS, ROOM_BYTES = ("room", "room.2"), 4_096
"""Files whose room is used for what must be written when the disk is full: that the end is wanted, and then
who was told of it."""
_REMOVING = ".removing"

T = TypeVar("T")


class Launched(msgspec.Struct, frozen=True):
    """What was bought, and when. ``gpus``: which accelerators it has; None when the computer has none.
    ``disk``: the one that it works on, which stays."""

    instance_type: str
    provider_id: str
    launched_us: int
    gpus: tuple[int, ...] | None = None
    disk: str | None = None


class Ending(msgspec.Struct, frozen=True):
    """Its end was asked for. ``signalled``: number and start time of every process that was told."""

    asked_us: int
    deadline_us: int
    signalled: tuple[tuple[int, int], ...] = ()


class GoneRecord(msgspec.Struct, frozen=True):
    """It ended by itself, was found so at ``at_us``, and why."""

    at_us: int
    reason: str


def write_whole(path: Path, content: bytes) -> None:
    """A file for the owner alone, there in full or not at all."""
    new = path.with_name(path.name + ".new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    new.replace(path)


def _write_in_room(path: Path, content: bytes) -> bool:
    """The same where there is no room but that of two files beside it; False: they are not there either.

    One of them becomes the file, and what was the file before becomes one of them.
    """
    first, second = (path.with_name(name) for name in ROOMS)
    if not first.exists():
        if not second.exists():
            return False
        second.replace(first)
    with first.open("r+b") as file:
        file.write(content)
        file.truncate()
    faults.point("local.room.written")
    if path.exists() and not second.exists():
        second.hardlink_to(path)
    faults.point("local.room.linked")
    first.replace(path)
    return True


def read_struct(path: Path, kind: type[T]) -> T | None:
    """What a file holds, or None when it is missing or was spoilt from outside."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        return None


class Folder:
    """One node's folder under ``nodes``."""

    def __init__(self, nodes: Path, tag: str) -> None:
        self.tag = tag
        self.path = nodes / tag
        self._ended = nodes / ENDED

    @property
    def log(self) -> Path:
        return self.path / "agent.log"

    @property
    def ended_log(self) -> Path:
        """Where its log lies once it is gone; that it exists means that this tag had a machine."""
        return self._ended / f"{self.tag}.log"

    def exists(self) -> bool:
        return self.path.is_dir()

    def prepare(self, order: LaunchOrder, launched: Launched, spec: bytes) -> None:
        """Make the folder and everything that the agent reads."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._ended.mkdir(mode=0o700, exist_ok=True)
        for name in ROOMS:
            write_whole(self.path / name, b" " * ROOM_BYTES)
        write_whole(self.path / "spec.json", spec)
        write_whole(self.path / "token", order.agent.token.encode())
        write_whole(self.path / "launch.json", msgspec.json.encode(launched))

    def launched(self) -> Launched | None:
        return read_struct(self.path / "launch.json", Launched)

    def identity(self) -> Identity | None:
        """Who the agent is, from the moment in which it begins."""
        return read_struct(self.path / "agent.pid", Identity)

    def ending(self) -> Ending | None:
        return read_struct(self.path / "terminating", Ending)

    def write_ending(self, ending: Ending) -> None:
        """Write it down, on a full disk in the room that was taken for it at the beginning."""
        path, content = self.path / "terminating", msgspec.json.encode(ending)
        try:
            write_whole(path, content)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or len(content) > ROOM_BYTES:
                raise
            path.with_name(path.name + ".new").unlink(missing_ok=True)
            if not _write_in_room(path, content):
                raise

    def gone(self) -> GoneRecord | None:
        return read_struct(self.path / "gone", GoneRecord)

    def write_gone(self, record: GoneRecord) -> None:
        write_whole(self.path / "gone", msgspec.json.encode(record))

    def take_lock(self) -> int | None:
        """The locked file, whose lock lives as long as a process has it open; None when it is held."""
        handle = os.open(self.path / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        return handle

    def is_locked(self) -> bool:
        """Whether an agent, or what is about to become one, holds the lock."""
        handle = self.take_lock()
        if handle is None:
            return True
        os.close(handle)
        return False

    def open_log(self) -> int:
        return os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def cap_log(self) -> None:
        """Keep the log's last part beside it and begin it anew, once it is too long."""
        try:
            size = self.log.stat().st_size
        except FileNotFoundError:
            return
        if size <= LOG_BYTES_MAX:
            return
        write_whole(self.log.with_name("agent.log.1"), self._tail(LOG_BYTES_KEPT))
        os.truncate(self.log, 0)

    def last_words(self) -> str:
        """The last line of the log that says anything."""
        lines = self._tail(LAST_WORDS_BYTES).decode("utf-8", errors="replace").splitlines()
        words = [line.strip() for line in lines if line.strip()]
        return words[-1][:LAST_WORDS_CHARS] if words else ""

    def _tail(self, length: int) -> bytes:
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - length))
                return file.read(length)
        except FileNotFoundError:
            return b""

    def remove(self) -> None:
        """The folder goes; the log of a node that had begun stays among the ended."""
        self._ended.mkdir(mode=0o700, exist_ok=True)
        begun = self.identity() is not None
        aside = self._ended / f"{self.tag}{_REMOVING}"
        if aside.exists():
            remove_tree(aside)
        if begun:
            # Linked before the folder goes, so that the tag is never without a trace.
            self.log.touch(mode=0o600)
            with contextlib.suppress(FileExistsError):
                self.ended_log.hardlink_to(self.log)
        self.path.rename(aside)
        faults.point("local.remove.renamed")
        remove_tree(aside)
        _prune(self._ended)


def folders(nodes: Path) -> Iterator[Folder]:
    """The folders of all nodes, in the order of their tags; leftovers of removals are cleared away."""
    for aside in (nodes / ENDED).glob(f"*{_REMOVING}"):
        remove_tree(aside)
    if not nodes.is_dir():
        return
    for path in sorted(nodes.iterdir()):
        if path.is_dir() and path.name != ENDED:
            yield Folder(nodes, path.name)


def remove_tree(path: Path) -> None:
    """As much of it as can be removed; folders that users made read-only are opened first."""
    shutil.rmtree(path, ignore_errors=True)
    if not path.exists():
        return
    for root, names, _ in os.walk(path):
        for name in names:
            inner = Path(root, name)
            if not inner.is_symlink():
                with contextlib.suppress(OSError):
                    inner.chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)


def _prune(ended: Path) -> None:
    """Keep the newest logs only."""
    logs = sorted(ended.glob("*.log"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in logs[ENDED_LOGS_MAX:]:
        path.unlink(missing_ok=True)
