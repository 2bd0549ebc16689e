"""The logs of jobs, as files on this computer.

Decides: where each job's files go. Never: writes outside the folder it was given, whatever an archive says.
Follows: a log is there whole or not at all, and takes the place of an older copy.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

SPOOLED_BYTES = 8 * 1024 * 1024


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
