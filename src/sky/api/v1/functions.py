"""Functions: code that calls can name.

Decides: which bytes may be registered as a function: those of a codec that we know, by how they begin.
Never: unpacks them. Follows: garbage is refused when it is uploaded, rather than on a node.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from litestar.response.base import ASGIResponse

from sky.api.operation import BLOB, BYTES, JSON, Ask, Bytes, Header, Limit, operation, reply
from sky.api.reading import Query, json_body, wrong_media
from sky.api.v1.cursors import FunctionCursor
from sky.domain.errors import (
    HashMismatch,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
    StorageFull,
    UnsupportedMediaType,
)
from sky.store.tx import Tx
from sky.store.views import functions as views
from sky.store.views.paging import DEFAULT_ITEMS
from sky.verbs import functions as verbs
from sky.wire import v1

TAG = "Functions"
CODEC = "cloudpickle-lz4"
MAGIC = {CODEC: b"\x04\x22\x4d\x18"}
"""How the bytes of each codec begin."""
NAME_CHARS_MAX = 256


class FunctionFilter(Query, frozen=True):
    """Which part of the list is wanted."""

    cursor: FunctionCursor | None = None
    limit: Limit = DEFAULT_ITEMS


@operation("GET", "/v1/functions", tag=TAG, answers=v1.FunctionPage)
async def list_functions(ask: Ask, query: FunctionFilter) -> ASGIResponse:
    """List functions, newest first."""
    return reply(await ask.unit.db.read(lambda c: views.page(c, cursor=query.cursor, limit=query.limit)))


@operation("GET", "/v1/functions/{sha256}", tag=TAG, answers=v1.Function, errors=[NotFound])
async def get_function(ask: Ask, sha256: v1.Sha256) -> ASGIResponse:
    """Show what is known of a function."""
    return reply(await ask.unit.db.read(lambda c: views.get(c, sha256)))


@operation(
    "PUT",
    "/v1/functions/{sha256}",
    tag=TAG,
    answers=v1.Function,
    status=201,
    also=[200],
    raw=Bytes((BLOB, BYTES), "The packed function itself, or JSON that names the codec of a stored blob."),
    headers=[Header("X-Skyward-Function-Name", "A name for people, when the body is the function itself.")],
    errors=[NotFound, HashMismatch, PayloadTooLarge, UnsupportedMediaType, StorageFull],
)
async def put_function(ask: Ask, sha256: v1.Sha256) -> ASGIResponse:
    """Register a function under the SHA-256 of its packed form.

    The body is the packed function itself, or ``{"codec", "name"}`` for a blob that is stored already.
    """
    if ask.media == JSON:
        limit = ask.unit.settings.body_bytes_max
        body: v1.FunctionCreate = await json_body(ask.request, v1.FunctionCreate, limit)
        await _check_stored(ask, sha256, body.codec)
    elif ask.media in {"", BYTES, BLOB}:
        body = v1.FunctionCreate(codec=CODEC, name=_name(ask))
        await _store(ask, sha256)
    else:
        raise wrong_media(ask.media, (BYTES, BLOB, JSON))

    def write(tx: Tx) -> tuple[bool, v1.Function]:
        return verbs.register(tx, sha256, body), views.get(tx.connection, sha256)

    new, function = await ask.unit.db.write(write)
    return reply(function, 201 if new else 200, location=f"/v1/functions/{sha256}")


def _name(ask: Ask) -> str | None:
    name = ask.header(b"x-skyward-function-name")
    if name is not None and not (0 < len(name) <= NAME_CHARS_MAX and name.isprintable()):
        expected = f"1 to {NAME_CHARS_MAX} printable characters"
        details = {"field": "X-Skyward-Function-Name", "value": name[:80], "expected": expected}
        raise InvalidRequest(f"X-Skyward-Function-Name must be {expected}", details=details)
    return name


async def _store(ask: Ask, sha256: str) -> None:
    limit = ask.unit.settings.blob_bytes_max
    if await ask.unit.blobs.has(sha256):
        await _check_stored(ask, sha256, CODEC)
        return
    body = _checked(ask.body(limit_bytes=limit), CODEC)
    await ask.unit.blobs.put(sha256, body, limit_bytes=limit)


async def _check_stored(ask: Ask, sha256: str, codec: str) -> None:
    if codec not in MAGIC:
        known = ", ".join(MAGIC)
        details: dict[str, Any] = {"field": "codec", "value": codec, "expected": f"one of {known}"}
        raise InvalidRequest(f"codec must be one of {known}; it is {codec!r}", details=details)
    content = await ask.unit.blobs.get(sha256)
    async for _ in _checked(ask.unit.blobs.read(content), codec):
        return


async def _checked(pieces: AsyncIterator[bytes], codec: str) -> AsyncIterator[bytes]:
    """The same bytes, once it is clear that they begin as those of ``codec`` do."""
    magic, head = MAGIC[codec], b""
    async for piece in pieces:
        if len(head) < len(magic):
            head += piece
            if len(head) < len(magic):
                continue
            _check_head(head, codec)
            yield head
        else:
            yield piece
    if len(head) < len(magic):
        _check_head(head, codec)


def _check_head(head: bytes, codec: str) -> None:
    magic = MAGIC[codec]
    if not head.startswith(magic):
        shown = head[: len(magic)].hex() or "nothing"
        raise InvalidRequest(
            f"the body is no function of codec {codec}: it begins with {shown}, not with {magic.hex()}",
            details={"field": "", "value": shown, "expected": f"bytes of codec {codec}"},
        )


ROUTES = (list_functions, get_function, put_function)
