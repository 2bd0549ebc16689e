"""Files for tasks, as archives under their hash.

Decides: nothing; an archive is content like any other. Never: opens it. Follows: one that is stored already
is not read again, so that the same upload costs nothing the second time.
"""

from __future__ import annotations

from litestar.response.base import ASGIResponse

from sky.api.operation import BYTES, Ask, Bytes, operation, reply
from sky.api.reading import JSON, Query, wrong_media
from sky.api.requests.versions import user_of
from sky.domain.errors import HashMismatch, PayloadTooLarge, StorageFull, UnsupportedMediaType
from sky.wire.request_answers import Uploaded
from sky.wire.requests import Sha256

TAG = "Requests"
GZIP = "application/gzip"
TAKEN = (BYTES, GZIP)


class UploadQuery(Query, frozen=True):
    """Under which hash."""

    sha256: Sha256


@operation(
    "POST",
    "/upload",
    tag=TAG,
    answers=Uploaded,
    raw=Bytes(TAKEN),
    errors=[HashMismatch, PayloadTooLarge, UnsupportedMediaType, StorageFull],
)
async def upload(ask: Ask, query: UploadQuery) -> ASGIResponse:
    """Store an archive of files, under its SHA-256.

    A task names it as `sha256` of its `files` or `storages`. One that is stored already is not read again.
    """
    user_of(ask)
    if ask.media and ask.media not in {*TAKEN, JSON}:
        raise wrong_media(ask.media, TAKEN)
    blobs, limit = ask.unit.blobs, ask.unit.settings.blob_bytes_max
    if await blobs.size(query.sha256) is None:
        await blobs.put(query.sha256, ask.body(limit_bytes=limit), limit_bytes=limit)
    return reply(Uploaded(sha256=query.sha256))


ROUTES = (upload,)
