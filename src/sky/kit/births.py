"""When a file was made, where the system tells.

Decides: nothing. Never: opens the file, since closing it would drop the locks that a SQLite in this process
holds on it. Follows: a copy of a file has another birth, whatever else was copied along; one that is renamed
keeps it.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

AT_FDCWD = -100
STATX_BTIME = 0x800
STATX_BYTES = 256
BIRTH_AT = 80
"""Where ``struct statx`` has the birth: seconds (8 bytes), nanoseconds (4). The first 4 say what it has."""
NANOSECONDS = 1_000_000_000


def born_ns(path: Path) -> int | None:
    """When a file was made, in nanoseconds since 1970; None where the system or the file system has no such
    time, or there is no such file."""
    statx = getattr(ctypes.CDLL(None), "statx", None)  # Linux; Python tells it of other systems only
    if statx is None:
        return getattr(path.stat(), "st_birthtime_ns", None)
    told = ctypes.create_string_buffer(STATX_BYTES)
    if statx(AT_FDCWD, os.fsencode(path), 0, STATX_BTIME, told) != 0:
        return None
    (has,) = struct.unpack_from("=I", told)
    seconds, nanoseconds = struct.unpack_from("=qI", told, BIRTH_AT)
    return seconds * NANOSECONDS + nanoseconds if has & STATX_BTIME else None
