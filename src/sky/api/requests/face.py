"""Everything that face 2 serves, and its document.

Decides: which operations there are. Never: puts them behind a door (``api/app`` does).
Follows: the document can be made without a database, since it is made from the declarations alone.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from litestar import get
from litestar.connection import Request
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse

from sky.api.document import document_of
from sky.api.operation import Operation
from sky.api.reading import JSON
from sky.api.requests import download, follow, logs, looks, server_logs, submit, upload, users
from sky.api.stream import Whole

ABOUT = """\
Requests: what is asked for is written down and answers under its id, for as long as it is kept.

Each `POST` of a request's name answers at once with its id; `GET /api/get` waits for its result or error,
`GET /api/stream` follows what it says, and `POST /api/cancel` ends it. Requests survive the server: after
a restart every id answers as before. A submission under an `Idempotency-Key` may be sent again: it is one
request.
"""
TAGS = {
    "Requests": "What can be asked for, and how it went.",
    "Users": "Who may ask, and by which tokens.",
}
DOCUMENT_PATH = "/api/openapi.json"
PARTS: tuple[HTTPRouteHandler, ...] = (
    *submit.ROUTES,
    *follow.ROUTES,
    *looks.ROUTES,
    *logs.ROUTES,
    *download.ROUTES,
    *upload.ROUTES,
    *server_logs.ROUTES,
    *users.ROUTES,
)


@get(DOCUMENT_PATH, include_in_schema=False)
async def serve_document(request: Request[Any, Any, Any]) -> ASGIResponse:
    """The document itself."""
    del request
    return Whole(document(), media=JSON)


ROUTES: tuple[HTTPRouteHandler, ...] = (*PARTS, serve_document)


def operations() -> tuple[Operation, ...]:
    """Every operation."""
    return tuple(handler.opt["operation"] for handler in PARTS)


@cache
def document() -> bytes:
    """The document, as it is served."""
    told = document_of(operations(), title="Skyfleet requests", about=ABOUT, tags=TAGS)
    return msgspec.json.format(msgspec.json.encode(told), indent=2)


def openapi_document() -> dict[str, Any]:
    """The document. Needs no database and no daemon."""
    return msgspec.json.decode(document())
