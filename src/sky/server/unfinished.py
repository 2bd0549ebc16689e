"""A restore that did not come to its end: how it is known, finished or undone.

Decides: what a restore has done by what it wrote before (a note in the folder, and in the database whether
the copy is whole): the database's word is the last step, so with it all is new and without it nothing is.
Never: removes what was there before, since a restore begins only where nothing is. Follows: a daemon starts
on neither half; the next restore undoes what the one before has left, and begins anew. One that is under way
is known by a lock, on whichever computer it is.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from sky.kit.clock import SECOND_US, SystemClock
from sky.server.settings import Settings
from sky.server.workspace import remove_dead
from sky.store import installation, transfer

NOTE = "restoring.json"
LOCK = "restoring.lock"
WORKING = ".restore-"
"""How the folder begins that a restore works in."""
BESIDE = ("", "-wal", "-shm", "-journal")
"""What a database of SQLite has in its folder."""


class Note(msgspec.Struct, frozen=True):
    """What a restore is about to do: as which installation, from which file, into which database, and what of
    the folder is put there by it. ``made``: the database's file was not there."""

    identity: str
    file: str
    database: str
    made: bool
    names: tuple[str, ...]


class UnfinishedError(Exception):
    """A restore has not ended; the message says what to do."""


class Worker(msgspec.Struct, frozen=True):
    """The process that restores a file, and since when."""

    file: str
    host: str
    pid: int
    since_us: int


@contextmanager
def alone(chosen: Settings, file: Path) -> Generator[None]:
    """No other process restores into the folder as long as the block runs, whichever computer it is on.

    Raises UnfinishedError: one does.
    """
    path = chosen.shared / LOCK
    held = _locked(path)
    if held is None:
        raise UnfinishedError(_told(chosen))
    try:
        me = Worker(str(file), socket.gethostname(), os.getpid(), SystemClock().now_us())
        with suppress(OSError):  # a full disk is told by what needs room
            os.truncate(held, 0)
            os.write(held, msgspec.json.encode(me))
        yield
    finally:
        if _is_at(held, path):  # an operator may have removed it, and another process made its own
            path.unlink(missing_ok=True)
        os.close(held)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _locked(path: Path) -> int | None:
    """The lock, held as long as that descriptor is open; None: another process has it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if _is_at(descriptor, path):
            return descriptor
        os.close(descriptor)  # whoever had it removed it at its end


def under_way(chosen: Settings) -> str | None:
    """Who restores into the folder now, since when, and what to do; None: nobody does."""
    try:
        descriptor = os.open(chosen.shared / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # Shared: of those who look at once, none takes the other for a restore.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _told(chosen)
    finally:
        os.close(descriptor)
    return None


def _told(chosen: Settings) -> str:
    lock = chosen.shared / LOCK
    try:
        who = msgspec.json.decode(lock.read_bytes(), type=Worker)
    except (msgspec.DecodeError, FileNotFoundError):  # it has just begun, or just ended
        return f"a restore into {chosen.shared} is under way; wait for its end"
    since = datetime.fromtimestamp(who.since_us / SECOND_US, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return (
        f"a restore of {who.file} into {chosen.shared} is under way, since {since} UTC, by process {who.pid} "
        f"on {who.host}; wait for its end, or end that process, and what it has begun is undone by the next "
        f"restore. If that computer is gone for good, remove {lock} and restore again"
    )


def write(chosen: Settings, note: Note) -> None:
    """Say what is about to be done, before it is."""
    path = chosen.shared / NOTE
    fresh = path.with_suffix(".new")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(msgspec.json.encode(note))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    on_disk(chosen.shared)


def on_disk(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(chosen: Settings) -> Note | None:
    """What a restore was about to do that has not ended. Raises UnfinishedError: it cannot be read."""
    path = chosen.shared / NOTE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Note)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        msg = f"{path} says that a restore was begun, and cannot be read ({error}); use another folder"
        raise UnfinishedError(msg) from error


def refuse(chosen: Settings) -> bool:
    """For the start of a daemon: let nothing be served from a half. True: all was there but the last word,
    which is said now. Raises UnfinishedError."""
    note = read(chosen)
    if note is None:
        return False
    busy = under_way(chosen)
    if busy is not None:
        raise UnfinishedError(busy)
    if _is_whole(chosen, note):
        end(chosen)
        return True
    msg = (
        f"`sky admin restore {note.file}` was begun in {chosen.shared} and did not come to its end; run it "
        "again, which begins anew, or with another backup"
    )
    raise UnfinishedError(msg)


def settle(chosen: Settings) -> Literal["finished", "undone"] | None:
    """End a restore that was ended in the middle, one way or the other; None: there was none.

    Raises UnfinishedError, TransferError, UnusableDatabaseError, OSError.
    """
    note = read(chosen)
    if note is None:
        return None
    if _is_whole(chosen, note):
        end(chosen)
        return "finished"
    there = not note.made or Path(chosen.database_url.removeprefix("sqlite:///")).exists()
    if there and not transfer.is_left_by(chosen.database_url, note.identity):
        msg = f"{note.database} has been used since a restore was begun in {chosen.shared} that did not end"
        raise UnfinishedError(
            f"{msg}; if that is right, remove {chosen.shared / NOTE}, or use another folder"
        )
    for name in note.names:
        _remove(chosen.shared / name)
    if note.made:
        for beside in BESIDE:
            Path(chosen.database_url.removeprefix("sqlite:///") + beside).unlink(missing_ok=True)
    else:
        transfer.undo(chosen.database_url)
    end(chosen)
    return "undone"


def end(chosen: Settings) -> None:
    """Nothing is under way any more, and nothing is left of a process that died of it."""
    remove_dead(chosen.shared, WORKING)
    (chosen.shared / NOTE).unlink(missing_ok=True)
    on_disk(chosen.shared)


def _is_whole(chosen: Settings, note: Note) -> bool:
    here = installation.shown_url(chosen.database_url)
    if here != note.database:
        msg = (
            f"a restore of {note.file} into {note.database} was begun in {chosen.shared} and did not come to "
            f"its end, and the database named now is {here}; name that one in SKY_DATABASE, and restore again"
        )
        raise UnfinishedError(msg)
    return installation.look(chosen.database_url) == (note.identity, True)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
