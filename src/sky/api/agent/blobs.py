"""Content to and from nodes: arguments and code go out, large results come in.

Decides: nothing that ``/v1/blobs`` does not. Never: opens content.
Follows: an agent needs no more than its node's token for it.
"""

from __future__ import annotations

from typing import Any

from litestar import get, put
from litestar.connection import Request
from litestar.params import FromPath
from litestar.response.base import ASGIResponse

from sky.api.agent.door import agent_of, unit_of
from sky.api.operation import BYTES, nothing
from sky.api.reading import BODY_GAP_S, chunks
from sky.api.stream import Streamed, Whole
from sky.domain.errors import InvalidRequest
from sky.kit import codec


def _name(sha256: str) -> str:
    if not codec.is_sha256(sha256):
        details = {"field": "sha256", "value": sha256[:80], "expected": "64 hexadecimal digits"}
        raise InvalidRequest("a blob is named by 64 hexadecimal digits", details=details)
    return sha256


@get("/agent/v1/blobs/{sha256:str}", include_in_schema=False)
async def read_blob(request: Request[Any, Any, Any], sha256: FromPath[str]) -> ASGIResponse:
    """Content by its hash."""
    await agent_of(request)
    blobs = unit_of(request).blobs
    content = await blobs.get(_name(sha256))
    if content.inline is not None:
        return Whole(content.inline, media=BYTES)
    return Streamed(await blobs.begin(content), media=BYTES, length=content.size)


@put("/agent/v1/blobs/{sha256:str}", include_in_schema=False)
async def write_blob(request: Request[Any, Any, Any], sha256: FromPath[str]) -> ASGIResponse:
    """Store content under its hash; 200 when it is there already."""
    await agent_of(request)
    unit = unit_of(request)
    limit = unit.settings.blob_bytes_max
    if await unit.blobs.has(_name(sha256)):
        return nothing(200)
    body = chunks(request, limit_bytes=limit, gap_s=BODY_GAP_S)
    return nothing(201 if await unit.blobs.put(sha256, body, limit_bytes=limit) else 200)


ROUTES = (read_blob, write_blob)
