"""A folder to work in, beside what is being made, that a dead process leaves and the next one removes.

Decides: that such a folder is in use as long as its process holds a lock on a file in it, and how one without
that file is told to be nobody's: by its age, its name and what is in it. Never: removes one that is in use,
another user's, or one with anything in it that we do not put there.
Follows: whoever is killed costs room until the next one, and nothing else.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sky.kit.clock import SECOND_US, SystemClock
from sky.server.archive import INSIDE

ALIVE = ".alive"
_NEW = f"{ALIVE}.new"
_RANDOM = re.compile("[a-z0-9_]{8}")
"""How a name of ours ends."""
UNLOCKED_S = 86_400
"""After so long a folder without that file is nobody's: one of an earlier release, or hardly begun."""


@contextmanager
def workspace(parent: Path, prefix: str) -> Generator[Path]:
    """A new folder in ``parent``, removed at the end. Those that dead processes left there go first."""
    remove_dead(parent, prefix)
    folder = Path(tempfile.mkdtemp(dir=parent, prefix=prefix))
    held: int | None = None
    try:
        fresh = folder / _NEW
        held = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(held, fcntl.LOCK_EX)
        fresh.rename(folder / ALIVE)  # whoever sees it finds it locked
        yield folder
    finally:
        shutil.rmtree(folder)
        if held is not None:
            os.close(held)


def remove_dead(parent: Path, prefix: str) -> None:
    """Remove what dead processes left in ``parent``."""
    for left in sorted(parent.glob(f"{prefix}*")):
        if _is_dead(left, left.name.removeprefix(prefix)):
            shutil.rmtree(left, ignore_errors=True)  # whoever else removes it has come first


def _is_dead(folder: Path, ending: str) -> bool:
    try:
        told = folder.lstat()
        if not folder.is_dir() or folder.is_symlink() or told.st_uid != os.geteuid():
            return False
        descriptor = os.open(folder / ALIVE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        old = _changed_s(folder) < SystemClock().now_us() / SECOND_US - UNLOCKED_S
        return old and _RANDOM.fullmatch(ending) is not None and _names(folder) <= INSIDE | {_NEW}
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _names(folder: Path) -> set[str]:
    try:
        return {path.name for path in folder.iterdir()}
    except FileNotFoundError:
        return set()


def _changed_s(folder: Path) -> float:
    """When something in a folder was made or removed last, in seconds; one that is gone: never."""
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:
        return float("inf")
