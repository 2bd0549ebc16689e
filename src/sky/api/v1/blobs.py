"""Content by its hash: arguments, results, code.

Decides: how content goes in and out: by streaming, hashed as it arrives, in parts if asked for.
Never: opens it. Follows: a body that does not hash to its name is refused, and nothing of it is kept.
"""

from __future__ import annotations

from litestar.response.base import ASGIResponse

from sky.api.operation import BLOB, BYTES, JSON, Ask, Bytes, Header, nothing, operation, reply
from sky.api.ranges import until, wanted_range
from sky.api.reading import wrong_media
from sky.api.stream import Streamed, Whole
from sky.domain.errors import HashMismatch, NotFound, PayloadTooLarge, StorageFull, UnsupportedMediaType
from sky.store.blobs import Content
from sky.wire.v1 import Sha256

TAG = "Content"
TAKEN = (BYTES, BLOB)
ETAG = Header("ETag", "The hash, since content never changes.")


def media_for(ask: Ask) -> str:
    """The media type to serve content as: the one that was asked for, or plain bytes."""
    accept = (ask.header(b"accept") or "").lower()
    return BLOB if BLOB in accept else BYTES


def check_media(ask: Ask) -> None:
    """Refuse a body that was meant as something else than bytes.

    Several common clients call any body that is piped into them JSON; the hash tells what it is.
    """
    if ask.media and ask.media not in {*TAKEN, JSON}:
        raise wrong_media(ask.media, TAKEN)


@operation(
    "PUT",
    "/v1/blobs/{sha256}",
    tag=TAG,
    status=201,
    also=[200],
    raw=Bytes(TAKEN),
    errors=[HashMismatch, PayloadTooLarge, UnsupportedMediaType, StorageFull],
)
async def put_blob(ask: Ask, sha256: Sha256) -> ASGIResponse:
    """Store content under its SHA-256.

    200 when it was stored before; then nothing is done, and the body need not be sent to its end.
    """
    check_media(ask)
    blobs, limit = ask.unit.blobs, ask.unit.settings.blob_bytes_max
    if await blobs.has(sha256):
        return nothing(200)
    new = await blobs.put(sha256, ask.body(limit_bytes=limit), limit_bytes=limit)
    return reply(None, 201, location=f"/v1/blobs/{sha256}") if new else nothing(200)


@operation(
    "GET",
    "/v1/blobs/{sha256}",
    tag=TAG,
    answers=Bytes((BLOB, BYTES)),
    sets=[ETAG],
    errors=[NotFound],
)
async def get_blob(ask: Ask, sha256: Sha256) -> ASGIResponse:
    """Read stored content, or a range of its bytes."""
    content = await ask.unit.blobs.get(sha256)
    return await serve(ask, content)


async def serve(ask: Ask, content: Content) -> ASGIResponse:
    """The answer that carries ``content``."""
    tag = f'"{content.sha256}"'
    headers = {"etag": tag, "accept-ranges": "bytes"}
    if ask.header(b"if-none-match") in {tag, "*"}:
        return Whole(b"", media=None, status=304, headers=headers.items())
    start, end = wanted_range(ask.header(b"range"), content.size)
    status = 200
    if end - start != content.size:
        status = 206
        headers["content-range"] = f"bytes {start}-{end - 1}/{content.size}"
    media = media_for(ask)
    if content.inline is not None:
        body = content.inline[start:end]
        return Whole(body, media=media, status=status, headers=headers.items())
    pieces = until(await ask.unit.blobs.begin(content, start), end - start)
    return Streamed(pieces, media=media, status=status, headers=headers, length=end - start)


ROUTES = (put_blob, get_blob)
