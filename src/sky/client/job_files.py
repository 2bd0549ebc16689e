"""Fetches a file that a job wrote to a place on this computer.

Decides: how a file is fetched in spite of broken connections, and that it is the file that was written.
Never: leaves half a file where a whole one is expected; shows the key to where files are kept.
Follows: what is there has the size and the hash that the seller named, or the fetching has failed; what was
fetched before a break is not fetched again where the storage can begin in the middle.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from sky.client import calls_jobs as calls
from sky.client.errors import AccessDenied, DaemonUnreachable, JobRefused, TransferFailed
from sky.client.http import Http
from sky.client.request import CutShort
from sky.kit import backoff
from sky.wire import jobs as wire

TRIES_MAX = 6
PAUSE_FIRST_S = 0.1
PAUSE_LONGEST_S = 5.0
READ_BYTES = 1024 * 1024
PARTIAL = 206
EXPIRED_STATUSES = frozenset({401, 403})


def fetch(artifact: wire.Artifact, to: str | os.PathLike[str], renew: Callable[[], wire.Artifact]) -> Path:
    """Have a file at ``to``: a file's name, or a folder, which is there or ends with a slash. Returns where.

    Folders are made, and a file that is there is replaced once the new one is whole. ``renew`` gives the same
    file at a fresh address, for when the one it has is over.
    """
    goal = Path(to)
    if goal.is_dir() or os.fspath(to).endswith(os.sep):
        goal = goal / posixpath.basename(artifact.path)
    goal.parent.mkdir(parents=True, exist_ok=True)
    part = goal.with_name(f".{goal.name}.{artifact.sha256[:16]}.part")
    renewed = False
    for failures in range(1, TRIES_MAX + 1):
        try:
            _receive(artifact, part)
        except CutShort:
            time.sleep(backoff.delay_s(failures, first_s=PAUSE_FIRST_S, longest_s=PAUSE_LONGEST_S))
        except DaemonUnreachable as away:
            host = urlsplit(artifact.url).netloc
            raise TransferFailed(f"{artifact.path} is kept at {host}, which does not answer") from away
        except (AccessDenied, JobRefused) as refused:
            if refused.status not in EXPIRED_STATUSES or renewed:
                raise
            artifact, renewed = renew(), True
        else:
            if _is_whole(artifact, part):
                part.replace(goal)
                return goal
            part.unlink()
    part.unlink(missing_ok=True)
    message = f"{artifact.path} did not arrive as it was written in {TRIES_MAX} tries; nothing was kept of it"
    raise TransferFailed(message)


def below(folder: str | os.PathLike[str], path: str) -> Path:
    """Where in a folder the file that a job wrote at ``path`` belongs. It never leads out of it."""
    inside = posixpath.normpath("/" + path).lstrip("/")
    return Path(folder) / inside


def _receive(artifact: wire.Artifact, part: Path) -> None:
    """Add to the part what is missing of it. Raises CutShort when not all of it came."""
    where = urlsplit(artifact.url)
    http = Http(f"{where.scheme}://{where.netloc}")
    had = part.stat().st_size if part.is_file() else 0
    if had >= artifact.size > 0:
        return
    try:
        with (
            http.open(calls.get_file(artifact.url, had)) as stream,
            open(part, "ab" if had and stream.status == PARTIAL else "wb") as file,
        ):
            for piece in stream.pieces():
                file.write(piece)
                if file.tell() > artifact.size:
                    # Not the file that was named: the hash will say so, and there is no end to wait for.
                    return
    finally:
        http.close()


def _is_whole(artifact: wire.Artifact, part: Path) -> bool:
    if part.stat().st_size != artifact.size:
        return False
    with open(part, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == artifact.sha256
