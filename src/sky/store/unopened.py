"""Why a SQLite cannot be opened or written, where SQLite itself does not say it.

Decides: what is looked at, and in which order. Never: opens the database. Follows: what is told shows no
path, since customers may see it; whoever names a database adds that.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from sky.domain.errors import Busy, SkyError, StorageFull

NOTHING = "nothing was written"


def why(file: str | None, said: str) -> SkyError:
    """What is wrong with a database of which SQLite ``said`` that it cannot be opened, or not be written."""
    if _no_descriptor_left():
        limit = "raise the limit of open files (ulimit -n, LimitNOFILE)"
        msg = f"too many files are open, and so the database cannot be; try again, and {limit}"
        return Busy(msg, after_s=1.0)
    told = None if file is None else _of_file(Path(file))
    return StorageFull(f"{told or f'the database cannot be opened or written ({said})'}; {NOTHING}")


def _no_descriptor_left() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    return False


def _of_file(file: Path) -> str | None:
    folder = file.parent
    try:
        disk = os.statvfs(folder)
        if not folder.is_dir():
            return "a file is where the folder of the database should be"
        if file.is_dir():
            return "a folder is where the file of the database should be"
        there = file.exists()
    except FileNotFoundError:
        return "the folder of the database is not there: make it, or bring it back"
    except NotADirectoryError:
        return "a file is where the folder of the database should be"
    except OSError as error:
        return f"the folder of the database cannot be used ({error.strerror}): let the daemon's user in"
    if disk.f_flag & os.ST_RDONLY:
        return "the disk that holds the database is read-only: have it mounted to be written"
    if not os.access(folder, os.W_OK | os.X_OK) or (there and not os.access(file, os.R_OK | os.W_OK)):
        return "the daemon's user may not write the database, or not in its folder: let it"
    if disk.f_bavail == 0 or (disk.f_files > 0 and disk.f_favail == 0):
        return "the disk that holds the database is full: make room there"
    return None
