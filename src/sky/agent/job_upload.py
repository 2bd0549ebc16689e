"""Uploads what a paid command left in its output folders.

Decides: which files count (regular ones, by path, the first ten thousand), and what is tried again.
Never: follows a link, opens what is no file, or shows its token.
Follows: done twice, it uploads what is missing; a file that cannot be kept is named in the job's log and
fails the job, for nobody else would tell its owner.
"""

from __future__ import annotations

import hashlib
import heapq
import http.client
import json
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NoReturn, TypeVar
from urllib.parse import urlencode, urlsplit

from sky.agent.job_node import PREFIX, JobNode, tell
from sky.kit import backoff
from sky.wire.steps import Failed, Order, Outcome

FILES_MAX = 10_000
FILE_BYTES_MAX = 5 * 1024**3
UPLOADS_AT_ONCE = 4
IDLE_S = 120.0
RETRY_SECONDS_MAX = 1_800
"""How long the daemon may be away, or the storage refuse for now, until a file is given up."""
RETRY_LONGEST_S = 10.0
TOLD_MAX = 20
ANSWER_BYTES_MAX = 64 * 1024
CHUNK_BYTES = 1024 * 1024
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_AGAIN_CODES = frozenset({"ExpiredToken", "RequestTimeout"})
"""What a bucket refuses for now, with a status that says otherwise."""
_BUCKETS_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_T = TypeVar("_T")


class _Refused(Exception):
    """A file, or the whole upload, that cannot succeed. ``code`` is the daemon's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Again(Exception):
    """What failed and may succeed when tried again."""


@dataclass
class _Progress:
    """What came of the files so far."""

    kept: int = 0
    size: int = 0
    lost: list[str] = field(default_factory=list[str])
    over: _Refused | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


def upload(order: Order, node: JobNode) -> Outcome:
    """Upload every file, and say that all are there."""
    begun_s = time.monotonic()
    found = heapq.nsmallest(FILES_MAX + 1, files(order, node))
    progress = _Progress()
    waiting = iter(found)
    threads = [
        threading.Thread(target=_work, args=(order, node, waiting, progress), daemon=True)
        for _ in range(min(UPLOADS_AT_ONCE, len(found)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        if progress.over is not None:
            raise progress.over
        there = _persist(lambda: _complete(order, node))
    except (_Refused, _Again) as error:
        message = f"the outputs could not be uploaded: {error}"
        tell(message)
        return Outcome(failed=Failed("upload_failed", message), files=progress.kept)
    seconds = time.monotonic() - begun_s
    counted = "1 file" if progress.kept == 1 else f"{progress.kept} files"
    tell(f"uploaded {counted}, {progress.size} bytes, after {seconds:.1f} s")
    if len(found) > FILES_MAX:
        tell(f"only the first {FILES_MAX} files by path are kept")
    if progress.lost:
        message = f"{len(progress.lost)} of its files could not be kept: {progress.lost[0]}"
        return Outcome(failed=Failed("upload_failed", message), files=progress.kept)
    if there < progress.kept:
        message = f"{progress.kept - there} of its files did not reach the storage as they were"
        tell(message)
        return Outcome(failed=Failed("upload_failed", message), files=there)
    return Outcome(files=progress.kept)


def files(order: Order, node: JobNode) -> Iterator[tuple[str, Path]]:
    """Every regular file under the job's output folders: its path in the job, and where it is."""
    root = node.root(order)
    mounts = sorted({mount.rstrip("/") for mount in order.outputs})
    for mount in mounts:
        if any(mount.startswith(f"{other}/") for other in mounts):
            continue
        for here, _, names in os.walk(node.mounted(order, mount)):
            for name in names:
                path = Path(here, name)
                if stat.S_ISREG(path.lstat().st_mode):
                    yield f"/{path.relative_to(root)}", path


def _work(order: Order, node: JobNode, waiting: Iterator[tuple[str, Path]], progress: _Progress) -> None:
    while progress.over is None:
        with progress.lock:
            one = next(waiting, None)
        if one is None:
            return
        name, path = one
        try:
            size = _one(order, node, name, path)
        except _Refused as refused:
            if refused.code == "too_many_files":
                continue
            if refused.code in ("invalid_upload_token", "job_terminal", "job_not_found", "not_implemented"):
                progress.over = refused
                return
            _lost(progress, name, str(refused))
        except (_Again, OSError) as error:
            _lost(progress, name, str(error))
        else:
            with progress.lock:
                progress.kept += 1
                progress.size += size


def _lost(progress: _Progress, name: str, why: str) -> None:
    shown = name.encode("utf-8", "backslashreplace").decode()
    with progress.lock:
        progress.lost.append(f"{shown}: {why}")
        count = len(progress.lost)
    if count <= TOLD_MAX:
        tell(f"{shown} is not kept: {why}")


def _one(order: Order, node: JobNode, name: str, path: Path) -> int:
    """Upload a file; gives its size. Raises _Refused, _Again, OSError."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise _Refused("invalid_path", "its name is not UTF-8") from None
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        size = os.fstat(fd).st_size
        if size > FILE_BYTES_MAX:
            raise _Refused("file_too_large", f"it has {size} bytes; a file may have {FILE_BYTES_MAX} at most")
        sha256 = _hashed(file)
        _persist(lambda: _put(order, node, name, file, size, sha256))
    return size


def _hashed(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def _persist(do: Callable[[], _T]) -> _T:
    """What it gives, once it succeeds. Raises _Refused, and _Again when that took too long."""
    deadline_s = time.monotonic() + RETRY_SECONDS_MAX
    failures = 0
    while True:
        try:
            return do()
        except _Again:
            failures += 1
            if time.monotonic() > deadline_s:
                raise
        time.sleep(backoff.delay_s(failures, longest_s=RETRY_LONGEST_S))


def _put(order: Order, node: JobNode, name: str, file: BinaryIO, size: int, sha256: str) -> None:
    form = urlencode({"path": name, "size": size, "sha256": sha256})
    status, text = _call(
        "POST",
        f"{_internal(order, node)}/uploads",
        {
            "Authorization": f"Bearer {order.upload_token}",
            "Content-Type": "application/x-www-form-urlencoded",
        },
        form.encode(),
    )
    # What was put before stays: by an earlier try of ours, or by the command itself.
    if _code(text) == "upload_conflict":
        return
    if status != http.client.OK:
        _told(status, text)
    url, checksum = text.split()
    file.seek(0)
    headers = {"x-amz-checksum-sha256": checksum, "Content-Length": str(size)}
    status, text = _call("PUT", url, headers, _Exactly(file, size))
    stored = status == http.client.PRECONDITION_FAILED or _code(text) == "upload_conflict"
    if status >= http.client.BAD_REQUEST and not stored:
        _told(status, text)


def _complete(order: Order, node: JobNode) -> int:
    """Say that all are there; gives how many the storage has."""
    headers = {"Authorization": f"Bearer {order.upload_token}"}
    status, text = _call("POST", f"{_internal(order, node)}/complete", headers, b"")
    if status != http.client.OK:
        _told(status, text)
    return int(json.loads(text)["files"])


def _internal(order: Order, node: JobNode) -> str:
    return f"{node.daemon_url()}{PREFIX}/internal/jobs/{order.job}/artifacts"


# ── one request ─────────────────────────────────────────────────────────────────────────────────


class _Lines(threading.local):
    """The connections of a thread, by where they lead."""

    def __init__(self) -> None:
        self.open: dict[tuple[str, str], http.client.HTTPConnection] = {}

    def to(self, scheme: str, place: str) -> http.client.HTTPConnection:
        """A connection to there, the one before if it is good."""
        known = self.open.get((scheme, place))
        if known is None:
            kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
            known = self.open[scheme, place] = kind(place, timeout=IDLE_S)
        return known

    def drop(self, scheme: str, place: str) -> None:
        """A connection is good for nothing any more."""
        known = self.open.pop((scheme, place), None)
        if known is not None:
            known.close()


_lines = _Lines()


class _Exactly:
    """The content of a file as it was hashed: never more bytes, and an error for fewer."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._left = size

    def __iter__(self) -> Iterator[bytes]:
        while self._left:
            chunk = self._file.read(min(CHUNK_BYTES, self._left))
            if not chunk:
                raise _Refused("changed", "it became shorter while it was uploaded")
            self._left -= len(chunk)
            yield chunk


def _call(method: str, url: str, headers: dict[str, str], body: bytes | _Exactly) -> tuple[int, str]:
    """The status and the text of an answer. Raises _Again, _Refused."""
    parts = urlsplit(url)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    good = False
    try:
        line = _lines.to(parts.scheme, parts.netloc)
        try:
            line.request(method, path, body=body, headers=headers)
        except (BrokenPipeError, ConnectionResetError):
            # It was refused before it was sent whole; the answer says why, if it came through.
            answer = line.getresponse()
        else:
            answer = line.getresponse()
            good = not answer.will_close
        text = answer.read(ANSWER_BYTES_MAX).decode("utf-8", "replace")
        good = good and answer.isclosed()
    except (OSError, http.client.HTTPException) as error:
        raise _Again(f"{parts.hostname} cannot be reached: {error or type(error).__name__}") from error
    finally:
        if not good:
            _lines.drop(parts.scheme, parts.netloc)
    return answer.status, text


def _told(status: int, text: str) -> NoReturn:
    """Raises what a refusal means."""
    code = _code(text)
    try:
        message = str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        # A bucket's own words may repeat what was signed; this is printed where others read.
        message = f"the storage answered {status} {code}".rstrip()
    if status in _AGAIN or code in _AGAIN_CODES:
        raise _Again(message)
    raise _Refused(code, message)


def _code(text: str) -> str:
    """The code of a refusal, by the daemon or by a bucket."""
    try:
        return str(json.loads(text)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        found = _BUCKETS_CODE.search(text)
        return "" if found is None else found[1]
