"""Files for tasks, as archives under their hash.

Decides: nothing; an archive is content like any other. Never: opens it. Follows: one that its user has
brought already is not read again, so that the same upload costs nothing the second time; who only knows the
hash of what others have brought has to show that they have it.
"""

from __future__ import annotations

from litestar.response.base import ASGIResponse

from sky.api.operation import BYTES, Ask, Bytes, operation, reply
from sky.api.reading import JSON, Query, wrong_media
from sky.api.requests.versions import user_of
from sky.domain.errors import HashMismatch, PayloadTooLarge, StorageFull, UnsupportedMediaType
from sky.store.rows import storages
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

    A task names it as `sha256` of its `files` or `storages`. One that the caller has brought already is not
    read again.
    """
    user, admin, sha256 = user_of(ask), ask.caller.admin, query.sha256
    if ask.media and ask.media not in {*TAKEN, JSON}:
        raise wrong_media(ask.media, TAKEN)
    blobs, limit = ask.unit.blobs, ask.unit.settings.blob_bytes_max
    stored = await blobs.has(sha256)
    if stored and (admin or await ask.unit.db.read(lambda c: storages.brought(c, user, sha256))):
        return reply(Uploaded(sha256=sha256))
    await blobs.put(sha256, ask.body(limit_bytes=limit), limit_bytes=limit)
    await ask.unit.db.write(lambda tx: storages.bring(tx, user, sha256))
    return reply(Uploaded(sha256=sha256))


ROUTES = (upload,)
