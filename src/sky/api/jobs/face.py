"""Everything that face 3 serves: its operations, and its document.

Decides: which operations there are. Never: puts them behind a door (``api/app`` does).
Follows: the document can be made without a database, since it is made from the declarations alone.
"""

from __future__ import annotations

from functools import cache
from itertools import chain
from typing import Any

import msgspec
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse

from sky.api.jobs import artifacts, catalogue, files, read, spending, submit, webhooks
from sky.api.jobs.document import DOCUMENT_PATH, document_of
from sky.api.jobs.route import JSON, JobAsk, JobOperation, route
from sky.api.stream import Whole


@route("GET", DOCUMENT_PATH, tag="meta", guarded="nobody")
async def get_openapi(ask: JobAsk) -> ASGIResponse:
    """Read this document"""
    del ask
    return Whole(document(), media=JSON)


ROUTES: tuple[HTTPRouteHandler, ...] = tuple(
    chain(
        (get_openapi,),
        *(module.ROUTES for module in (catalogue, submit, read, spending, artifacts, files, webhooks)),
    )
)


def operations() -> tuple[JobOperation, ...]:
    """Every operation."""
    return tuple(handler.opt["job_operation"] for handler in ROUTES)


@cache
def document() -> bytes:
    """The document, as it is served."""
    return msgspec.json.format(msgspec.json.encode(document_of(operations())), indent=2)


def openapi_document() -> dict[str, Any]:
    """The document. Needs no database and no daemon."""
    return msgspec.json.decode(document())
