"""Logs as files on this computer: those of jobs that are copied here, and our own server's.

Decides: where each job's files go. Never: writes outside the folder it was given, whatever an archive says.
Follows: a log is there whole or not at all, and takes the place of an older copy.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

SPOOLED_BYTES = 8 * 1024 * 1024
LOOK_S = 0.2


def follow_file(path: Path, *, follow: bool, tail: int | None) -> Iterator[str]:
    """The lines of a file, with their ends; those that are added later too where ``follow`` says so.

    ``tail``: only so many of those that are there. A file that shrinks is read from its beginning again.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        yield from file if tail is None else deque(file, maxlen=tail)
        while follow:
            line = file.readline()
            if line:
                yield line
                continue
            time.sleep(LOOK_S)
            if path.stat().st_size < file.tell():
                file.seek(0)


def unpack_logs(pieces: Iterable[bytes], target: Path) -> dict[str, str]:
    """Unpack an archive of logs into ``target``; the folder of each job by its number.

    The archive's folders are called after the number, as ``1`` or ``1-train``. Raises OSError.
    """
    target.mkdir(parents=True, exist_ok=True)
    found: dict[str, str] = {}
    with tempfile.SpooledTemporaryFile(SPOOLED_BYTES) as whole:
        for piece in pieces:
            whole.write(piece)
        whole.seek(0)
        with (
            tempfile.TemporaryDirectory(dir=target, prefix=".new-") as fresh,
            tarfile.open(fileobj=whole, mode="r:gz") as archive,
        ):
            archive.extractall(fresh, filter="data")
            for folder in sorted(Path(fresh).iterdir()):
                place = target / folder.name
                if place.is_dir():
                    shutil.rmtree(place)
                folder.replace(place)
                found[folder.name.partition("-")[0]] = str(place)
    return found
