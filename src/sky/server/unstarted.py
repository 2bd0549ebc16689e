"""What to say where the system keeps a daemon from starting.

Decides: which of its errors mean what to an operator, and the way out. Never: mends anything. Follows: each
names the file or folder that it is about, or the state folder where the system named none.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from sky.server.archive import FULL

IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENOTEMPTY)
OPEN_TOO_MANY = (errno.EMFILE, errno.ENFILE)
NOT_ALLOWED = (errno.EACCES, errno.EPERM)
ELSEWHERE = "set SKY_HOME, or SKY_SHARED_FOLDER, to another folder"


def told(error: OSError, folder: Path) -> str:
    """Why a daemon with that folder cannot start, and what to do."""
    where = str(error.filename2 or error.filename or folder)
    if error.errno in FULL:
        return f"there is no room on the disk of {where}: make room there, or {ELSEWHERE}"
    if error.errno == errno.EROFS:
        return f"the disk of {where} is read-only: have it mounted to be written, or {ELSEWHERE}"
    if error.errno in NOT_ALLOWED:
        may = f"the user {os.geteuid()} may not use {where}"
        return f"{may} ({error.strerror}): give it to that user (chown), or {ELSEWHERE}"
    if error.errno in IN_THE_WAY:
        where = next((str(one) for one in Path(where).parents if one.is_file()), where)
        return f"{where} is in the way: {error.strerror}; move it away, and start again"
    if error.errno in OPEN_TOO_MANY:
        return f"too many files are open ({error.strerror}): raise the limit (ulimit -n, LimitNOFILE)"
    return f"{where} cannot be used: {error.strerror or error}; see to that, and start again"
