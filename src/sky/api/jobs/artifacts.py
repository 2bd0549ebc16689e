"""The files that a job wrote: where its node may put them, and where its owner may have them.

Decides: which file a job may upload, and when its list of files is whole. Never: sees a file itself, or
takes a node's word for one (the storage says what is there). Follows: a job's own token opens its uploads
and nothing else; a path outside of its mounts is refused; a file that arrived stays as it is.
"""

from __future__ import annotations

import asyncio
import hmac
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

import structlog
from litestar.response.base import ASGIResponse

from sky.api.jobs.files import checksum_of
from sky.api.jobs.route import PREFIX, JobAsk, reply, route
from sky.api.jobs.submit import found
from sky.api.selling import Storage
from sky.api.stream import Whole
from sky.domain.artifact import Arrived, StoredFile, key_of
from sky.domain.job import TERMINAL
from sky.domain.job_errors import JobRefused
from sky.kit import codec
from sky.kit.clock import SECOND_US
from sky.store.rows import artifacts as rows
from sky.store.rows import jobs
from sky.store.tx import Tx
from sky.wire import jobs as wire

ADDRESS_US = 3_600 * SECOND_US
TOKEN_SLACK_US = 2 * 3_600 * SECOND_US
"""How long after the longest time that a job may run its token is good."""
PATH_CHARS_MAX = 1_024
PATH_BYTES_MAX = 2_048
"""Of a path in UTF-8: PostgreSQL takes no more than about 2,600 into an index."""
FORM_FIELDS_MAX = 10
COMPLETE_S_MAX = 80.0
"""How long the storage may be asked what is there, in one go; files that were found stay found."""
LEFT_OUT_MAX = 1_000
"""Files of a manifest that are named because they are not there."""
INTERNAL = f"{PREFIX}/internal/jobs/{{id}}/artifacts"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_log = structlog.get_logger(__name__)


@route(
    "GET",
    f"{PREFIX}/jobs/{{id}}/artifacts",
    tag="jobs",
    answers=wire.ArtifactList,
    codes=("job_not_found", "storage_unavailable"),
)
async def list_job_artifacts(ask: JobAsk) -> ASGIResponse:
    """List the files that a job wrote

    Each with an address where it can be had for up to an hour. Empty until the upload has ended.
    """
    holder = await ask.customer()
    ask.need_store("list of artifacts")
    storage = _storage(ask)

    def read(connection: Any) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
        row = found(connection, ask.path["id"], holder)
        done = row["manifest_us"] is not None
        return row, list(rows.stored(connection, row["id"], wire.FILES_MAX)) if done else []

    row, files = await ask.unit.db.read(read)
    until_us = ask.unit.clock.now_us() + ADDRESS_US
    urls, until_us = await storage.download_urls([rows.file_of(file) for file in files], until_us)
    data = tuple(
        wire.Artifact(
            object="compute.artifact",
            path=file["path"],
            size=file["size_bytes"],
            sha256=file["sha256"],
            url=url,
            expires_at=until_us // SECOND_US,
        )
        for file, url in zip(files, urls, strict=True)
    )
    complete = row["manifest_us"] is not None
    answer = wire.ArtifactList(
        object="list", data=data, complete=complete, truncated=complete and row["truncated"]
    )
    return reply(answer, cache_control="no-store")


@route(
    "POST",
    f"{INTERNAL}/uploads",
    tag="internal",
    guarded="upload",
    answers="text/plain",
    body=wire.UploadWish,
    form=True,
    codes=(
        "malformed_body",
        "invalid_path",
        "invalid_size",
        "invalid_sha256",
        "no_outputs",
        "invalid_upload_token",
        "job_not_found",
        "job_terminal",
        "upload_conflict",
        "too_many_files",
        "file_too_large",
        "not_implemented",
        "storage_unavailable",
    ),
)
async def presign_artifact_upload(ask: JobAsk) -> ASGIResponse:
    """Ask where a file may be put

    For the node of a job. The answer is one line: the address, a space, and the checksum to send as
    `x-amz-checksum-sha256` with the PUT.
    """
    row, storage = await _job(ask)
    form = await _form(ask)
    path = _path(form.get("path"), row)
    size = _size(form.get("size"))
    sha256 = form.get("sha256", "")
    if not _SHA256.fullmatch(sha256):
        msg = "sha256 is the hash of the file in 64 lower-case hexadecimal digits"
        raise JobRefused("invalid_sha256", msg, param="sha256")

    await _settle_before(ask, storage, StoredFile(row["id"], path, size, sha256))

    def verb(tx: Tx) -> str | None:
        known = rows.find(tx.connection, row["id"], path)
        if known is None and rows.count(tx.connection, row["id"]) >= wire.FILES_MAX:
            rows.refused_one(tx, row["id"])
            return "too_many_files"
        if known is not None and known["stored_us"] is not None and known["sha256"] != sha256:
            return "upload_conflict"
        rows.allow(tx, row["id"], path, size, sha256)
        return None

    refused = await ask.unit.db.write(verb)
    if refused == "upload_conflict":
        raise JobRefused(refused, f"{path} is stored already, with other content; a file is written once")
    if refused is not None:
        msg = f"a job keeps {wire.FILES_MAX} files at most; this one is left out"
        raise JobRefused(refused, msg)
    until_us = min(ask.unit.clock.now_us() + ADDRESS_US, _token_until(row))
    url = await storage.upload_url(StoredFile(row["id"], path, size, sha256), until_us)
    return Whole(f"{url} {checksum_of(sha256)}\n".encode(), media="text/plain; charset=utf-8")


@route(
    "POST",
    f"{INTERNAL}/complete",
    tag="internal",
    guarded="upload",
    answers=wire.ManifestWritten,
    codes=("invalid_upload_token", "job_not_found", "job_terminal", "not_implemented", "storage_unavailable"),
)
async def complete_artifact_upload(ask: JobAsk) -> ASGIResponse:
    """Say that a job's files are all there

    For the node of a job. From now on its owner sees them; said again, the list is made anew.
    """
    row, storage = await _job(ask)
    try:
        async with asyncio.timeout(COMPLETE_S_MAX):
            left_out = await _take_in(ask, storage, row["id"])
    except TimeoutError:
        msg = "not every file is looked at yet; what is done is kept, so say it again"
        raise JobRefused("storage_unavailable", msg, after_s=1) from None
    if left_out:
        _log.warning("artifacts.left_out", job=row["id"], count=len(left_out), first=left_out[0])

    def read(connection: Any) -> tuple[list[Mapping[str, Any]], bool]:
        files = list(rows.stored(connection, row["id"], wire.FILES_MAX))
        return files, (jobs.find(connection, row["id"]) or row)["truncated"]

    files, truncated = await ask.unit.db.read(read)
    await storage.seal(row["id"], _manifest(row["id"], files, left_out, truncated=truncated))
    await ask.unit.db.write(lambda tx: rows.complete(tx, row["id"]))
    written = wire.ManifestWritten(object="compute.artifact_manifest", files=len(files), truncated=truncated)
    return reply(written)


async def _settle_before(ask: JobAsk, storage: Storage, file: StoredFile) -> None:
    """If other content was announced at that path, see whether it has come: then it stays."""
    before = await ask.unit.db.read(lambda c: rows.find(c, file.job_id, file.path))
    if before is None or before["stored_us"] is not None or before["sha256"] == file.sha256:
        return
    if await storage.has(rows.file_of(before)):
        await ask.unit.db.write(lambda tx: rows.arrived(tx, file.job_id, file.path, before["sha256"]))


async def _take_in(ask: JobAsk, storage: Storage, job_id: str) -> list[tuple[str, str]]:
    """Note which of a job's files have come to the storage; gives those that are left out, with why."""
    awaited = await ask.unit.db.read(lambda c: rows.awaited(c, job_id, wire.FILES_MAX))
    left_out: list[tuple[str, str]] = []
    async for part in storage.arrivals(job_id, awaited):

        def note(tx: Tx, part: Arrived = part) -> list[StoredFile]:
            return [f for f in part.good if not rows.arrived(tx, job_id, f.path, f.sha256)]

        late = await ask.unit.db.write(note) if part.good else []
        left_out += [*part.left_out, *((f.path, "it was announced anew meanwhile") for f in late)]
    return left_out


def _manifest(
    job_id: str,
    files: Sequence[Mapping[str, Any]],
    left_out: Sequence[tuple[str, str]],
    *,
    truncated: bool,
) -> bytes:
    """The list of a job's files, for whoever reads the storage without us."""
    return codec.dumps(
        {
            "object": "compute.artifact_manifest",
            "job": job_id,
            "truncated": truncated,
            "files": [
                {
                    "path": file["path"],
                    "size": file["size_bytes"],
                    "sha256": file["sha256"],
                    "key": key_of(rows.file_of(file)),
                }
                for file in files
            ],
            "left_out": [{"name": name, "reason": why} for name, why in left_out[:LEFT_OUT_MAX]],
            "left_out_count": len(left_out),
        }
    ).encode()


def _storage(ask: JobAsk) -> Storage:
    if ask.selling.storage is None:
        raise JobRefused("not_implemented", "this deployment keeps no artifacts")
    return ask.selling.storage


async def _job(ask: JobAsk) -> tuple[Mapping[str, Any], Storage]:
    """The job whose token was sent, while it may upload."""
    ask.need_store("upload of artifacts")
    storage = _storage(ask)
    row = await ask.unit.db.read(lambda c: jobs.find(c, ask.path["id"]))
    known = ask.selling.token_of(ask.path["id"])
    good = ask.token is not None and hmac.compare_digest(ask.token.encode(), known.encode())
    if not good or (row is not None and ask.unit.clock.now_us() >= _token_until(row)):
        raise JobRefused("invalid_upload_token", "this is not the token of this job, or it is over")
    if row is None:
        raise JobRefused("job_not_found", "there is no such job")
    if row["state"] in TERMINAL:
        raise JobRefused("job_terminal", "the job has ended, and its token with it")
    return row, storage


def _token_until(row: Mapping[str, Any]) -> int:
    # Counted from the start of the command: who waited long for a machine has no less time for its files.
    return (row["started_us"] or row["created_us"]) + row["max_runtime_seconds"] * SECOND_US + TOKEN_SLACK_US


async def _form(ask: JobAsk) -> dict[str, str]:
    try:
        text = (await ask.raw()).decode("utf-8")
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX, errors="strict")
    except ValueError as error:
        raise JobRefused("malformed_body", f"the form cannot be read: {error}") from None
    return dict(pairs)


def _path(path: str | None, row: Mapping[str, Any]) -> str:
    mounts = [str(output["mount"]).rstrip("/") for output in row["spec"].get("outputs") or ()]
    if not mounts:
        raise JobRefused("no_outputs", "this job declared no outputs, so it uploads nothing")
    good = (
        path is not None
        and 1 < len(path) <= PATH_CHARS_MAX
        and len(path.encode("utf-8", "replace")) <= PATH_BYTES_MAX
        and posixpath.normpath(path) == path
        and "\0" not in path
        and any(path.startswith(f"{mount}/") for mount in mounts)
    )
    if not good or path is None:
        msg = (
            f"path is the absolute path of a file under {' or '.join(mounts)}, written plainly, in "
            f"{PATH_CHARS_MAX} characters and {PATH_BYTES_MAX} bytes of UTF-8 at most"
        )
        raise JobRefused("invalid_path", msg, param="path")
    return path


def _size(text: str | None) -> int:
    if text is None or not re.fullmatch(r"[0-9]{1,15}", text):
        raise JobRefused("invalid_size", "size is the file's length in bytes, a whole number", param="size")
    if int(text) > wire.FILE_BYTES_MAX:
        msg = f"the file has {text} bytes; a file may have {wire.FILE_BYTES_MAX} at most"
        raise JobRefused("file_too_large", msg, param="size")
    return int(text)


ROUTES = (list_job_artifacts, presign_artifact_upload, complete_artifact_upload)
