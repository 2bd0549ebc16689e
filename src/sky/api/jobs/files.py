"""Files of jobs behind addresses that we sign ourselves.

Decides: what an address is good for: one file of one job, one method, until a moment. Never: takes a file
whose length or hash is not what was signed. Follows: a folder of this daemon is the storage; whoever has an
address needs no key, and whoever changes one has none.
"""

from __future__ import annotations

import base64
import hmac
import posixpath
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Literal
from urllib.parse import quote

import msgspec
from litestar.response.base import ASGIResponse

from sky.api.jobs.route import PREFIX, JobAsk, reply, route
from sky.api.ranges import until, wanted_range
from sky.api.reading import BODY_GAP_S, chunks
from sky.api.stream import Streamed
from sky.domain.artifact import NEVER_CAME, Arrived, StoredFile
from sky.domain.errors import HashMismatch, PayloadTooLarge
from sky.domain.job import TERMINAL
from sky.domain.job_errors import JobRefused
from sky.store.artifact_folder import ArtifactFolder
from sky.store.rows import artifacts, jobs

TAG = "internal"
ROOT = f"{PREFIX}/files"
CHECKSUM = b"x-amz-checksum-sha256"


class Grant(msgspec.Struct, frozen=True, array_like=True):
    """What an address allows."""

    method: Literal["PUT", "GET"]
    job_id: str
    path: str
    size: int
    sha256: str
    until_us: int

    @property
    def file(self) -> StoredFile:
        """The file that it is about."""
        return StoredFile(self.job_id, self.path, self.size, self.sha256)


class SignedFiles:
    """Addresses into our own storage."""

    def __init__(
        self, folder: ArtifactFolder, sign: Callable[[bytes], str], base_url: Callable[[], str]
    ) -> None:
        self.folder = folder
        self._sign = sign
        self._base_url = base_url

    async def upload_url(self, file: StoredFile, until_us: int) -> str:
        """Where that file may be PUT, once, until then."""
        return self._url("PUT", file, until_us)

    async def download_urls(self, files: Sequence[StoredFile], until_us: int) -> tuple[list[str], int]:
        """Where those files may be had until then."""
        return [self._url("GET", file, until_us) for file in files], until_us

    async def has(self, file: StoredFile) -> bool:
        """Nothing comes without our knowing."""
        del file
        return False

    async def arrivals(self, job_id: str, awaited: Sequence[StoredFile]) -> AsyncIterator[Arrived]:
        """Whatever came is known: it came through here."""
        del job_id
        yield Arrived((), tuple((file.path, NEVER_CAME) for file in awaited))

    async def seal(self, job_id: str, manifest: bytes) -> None:
        """The rows are the list."""
        del job_id, manifest

    def _url(self, method: Literal["PUT", "GET"], file: StoredFile, until_us: int) -> str:
        grant = Grant(method, file.job_id, file.path, file.size, file.sha256, until_us)
        body = base64.urlsafe_b64encode(msgspec.msgpack.encode(grant)).rstrip(b"=")
        name = quote(posixpath.basename(file.path), safe="") or "file"
        return f"{self._base_url()}{ROOT}/{body.decode()}.{self._sign(body)}/{name}"

    def grant(self, token: str, now_us: int) -> Grant | None:
        """What a token allows now; None: it is not ours, or over."""
        body, _, signature = token.partition(".")
        if not token.isascii() or not hmac.compare_digest(self._sign(body.encode()), signature):
            return None
        padded = body + "=" * (-len(body) % 4)
        grant = msgspec.msgpack.decode(base64.urlsafe_b64decode(padded), type=Grant)
        return grant if now_us < grant.until_us else None


def checksum_of(sha256: str) -> str:
    """A hexadecimal hash as the checksum header wants it."""
    return base64.b64encode(bytes.fromhex(sha256)).decode()


@route(
    "PUT",
    f"{ROOT}/{{token}}/{{name}}",
    tag=TAG,
    guarded="nobody",
    codes=(
        "invalid_sha256",
        "invalid_size",
        "invalid_upload_token",
        "job_not_found",
        "job_terminal",
        "upload_conflict",
        "storage_unavailable",
        "not_implemented",
        "internal_error",
    ),
)
async def put_file(ask: JobAsk) -> ASGIResponse:
    """Store a file of a job

    At the address that was given for it, with the checksum that came along; once.
    """
    grant = _granted(ask, "PUT")
    if ask.header(CHECKSUM) != checksum_of(grant.sha256):
        msg = f"send {CHECKSUM.decode()}: {checksum_of(grant.sha256)}, which came with this address"
        raise JobRefused("invalid_sha256", msg, param=CHECKSUM.decode())
    length = ask.header(b"content-length")
    if length is not None and length != str(grant.size):
        msg = f"the file has {length[:20]} bytes; {grant.size} were announced for this address"
        raise JobRefused("invalid_size", msg, param="Content-Length")
    row = await ask.unit.db.read(lambda c: jobs.find(c, grant.job_id))
    if row is None:
        raise JobRefused("job_not_found", "the job of this address is gone")
    if row["state"] in TERMINAL:
        raise JobRefused("job_terminal", "the job has ended, and takes no more files")
    known = await ask.unit.db.read(lambda c: artifacts.find(c, grant.job_id, grant.path))
    if known is None or known["stored_us"] is not None:
        raise JobRefused("upload_conflict", f"{grant.path} is stored already; a file is written once")
    body = chunks(ask.request, limit_bytes=grant.size, gap_s=BODY_GAP_S)
    try:
        await _folder(ask).put(grant.file, body)
    except HashMismatch:
        msg = "what arrived does not hash to what was announced; nothing was stored"
        raise JobRefused("invalid_sha256", msg) from None
    except PayloadTooLarge:
        msg = f"more than the {grant.size} bytes that were announced arrived; nothing was stored"
        raise JobRefused("invalid_size", msg) from None
    if not await ask.unit.db.write(lambda tx: artifacts.arrived(tx, grant.job_id, grant.path, grant.sha256)):
        msg = f"{grant.path} is stored already, or its job ended meanwhile; a file is written once"
        raise JobRefused("upload_conflict", msg)
    return reply({"object": "compute.upload", "path": grant.path, "size": grant.size})


@route(
    "GET",
    f"{ROOT}/{{token}}/{{name}}",
    tag=TAG,
    guarded="nobody",
    answers="application/octet-stream",
    statuses=(200, 206),
    codes=("invalid_upload_token", "not_found", "not_implemented", "internal_error"),
)
async def get_file(ask: JobAsk) -> ASGIResponse:
    """Have a file of a job, or a range of its bytes, at the address that was given for it"""
    grant = _granted(ask, "GET")
    folder = _folder(ask)
    size = await folder.size(grant.file)
    if size is None:
        raise JobRefused("not_found", "this file is no longer kept")
    name = quote(posixpath.basename(grant.path), safe="")
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{name}",
        "x-content-type-options": "nosniff",
        "accept-ranges": "bytes",
        CHECKSUM.decode(): checksum_of(grant.sha256),
    }
    start, end = wanted_range(ask.header(b"range"), size)
    status = 200
    if end - start != size:
        status = 206
        headers["content-range"] = f"bytes {start}-{end - 1}/{size}"
    return Streamed(
        until(folder.read(grant.file, start), end - start),
        media="application/octet-stream",
        status=status,
        headers=headers,
        length=end - start,
    )


def _storage(ask: JobAsk) -> SignedFiles:
    storage = ask.selling.storage
    if not isinstance(storage, SignedFiles):
        raise JobRefused("not_implemented", "this deployment keeps no files of jobs at addresses of its own")
    return storage


def _folder(ask: JobAsk) -> ArtifactFolder:
    return _storage(ask).folder


def _granted(ask: JobAsk, method: str) -> Grant:
    grant = _storage(ask).grant(ask.path["token"], ask.unit.clock.now_us())
    if grant is None or grant.method != method:
        msg = "this address is not good for that, or no longer; ask for another one"
        raise JobRefused("invalid_upload_token", msg)
    return grant


ROUTES = (put_file, get_file)
