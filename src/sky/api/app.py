"""The faces put together: one application for all of them, behind one door.

Decides: which operations there are. Never: starts a server (``server`` does).
Follows: the document can be made without a database, since it is made from the declarations alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from itertools import chain
from typing import Any

import msgspec
from litestar import Litestar, get
from litestar.connection import Request
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse

from sky.api import dashboard, errors, metrics
from sky.api.admin import accounts, sold
from sky.api.admin import catalogue as admin_catalogue
from sky.api.admin import garbage as admin_garbage
from sky.api.admin import settings as admin_settings
from sky.api.admin import webhooks as admin_webhooks
from sky.api.agent import blobs as agent_blobs
from sky.api.agent import connect, meet
from sky.api.agent import package as agent_package
from sky.api.auth import Guard
from sky.api.callers import Callers
from sky.api.docs import page_of
from sky.api.document import document_of
from sky.api.jobs import face as jobs
from sky.api.jobs.buckets import Buckets
from sky.api.jobs.route import is_ours, refused, understood
from sky.api.operation import Operation, nothing, routed
from sky.api.reading import JSON
from sky.api.requests import face as requests
from sky.api.stream import Whole
from sky.api.unit import Services
from sky.api.v1 import (
    blobs,
    computes,
    connections,
    events,
    functions,
    health,
    items,
    loops,
    machines,
    nodes,
    providers,
    tasks,
)

PUBLIC: tuple[HTTPRouteHandler, ...] = tuple(
    chain.from_iterable(
        module.ROUTES
        for module in (
            computes,
            nodes,
            machines,
            connections,
            tasks,
            items,
            functions,
            blobs,
            providers,
            events,
            loops,
            health,
        )
    )
)
STYLE_ONLY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def operations() -> tuple[Operation, ...]:
    """Every public operation."""
    return tuple(handler.opt["operation"] for handler in PUBLIC)


@cache
def _document() -> bytes:
    return msgspec.json.format(msgspec.json.encode(document_of(operations())), indent=2)


def openapi_document() -> dict[str, Any]:
    """The OpenAPI document of face 1. Needs no database and no daemon."""
    return msgspec.json.decode(_document())


@get("/v1/openapi.json", include_in_schema=False)
async def serve_document(request: Request[Any, Any, Any]) -> ASGIResponse:
    """The document itself."""
    del request
    return Whole(_document(), media=JSON)


@cache
def _page() -> bytes:
    return page_of(openapi_document())


@get("/docs", include_in_schema=False)
async def serve_page(request: Request[Any, Any, Any]) -> ASGIResponse:
    """The document as a page to read; it loads nothing."""
    del request
    return Whole(_page(), media="text/html; charset=utf-8", headers=[("content-security-policy", STYLE_ONLY)])


def _options(path: str, methods: Iterable[str]) -> HTTPRouteHandler:
    allowed = {*methods, "OPTIONS", *(("HEAD",) if "GET" in methods else ())}

    async def tell(request: Request[Any, Any, Any]) -> ASGIResponse:
        """Which methods there are."""
        del request
        return nothing(allow=", ".join(sorted(allowed)))

    route = HTTPRouteHandler(routed(path), http_method="OPTIONS", status_code=200, include_in_schema=False)
    return route(tell)


def _all_options() -> list[HTTPRouteHandler]:
    by_path: dict[str, list[str]] = defaultdict(list)
    for op in operations():
        by_path[op.path].append(op.method)
    return [_options(path, methods) for path, methods in by_path.items()]


def _buckets(unit: Services) -> Buckets:
    rates = unit.selling.settings
    return Buckets(
        unit.clock, submits_per_hour=rates.submits_per_hour, reads_per_minute=rates.reads_per_minute
    )


def _answer(request: Request[Any, Any, Any], error: Exception) -> Any:
    """A failure in the shape of the face that it happened in."""
    known = errors.settled(error)
    if not is_ours(request.scope["path"]):
        return errors.answer(request, known)
    return refused(understood(known, request.scope["state"].get("request_id")))


def build_app(unit: Services) -> Guard:
    """The application, over the parts of a daemon."""
    app = Litestar(
        route_handlers=[
            *_all_options(),  # before the others, or the router makes its own
            *PUBLIC,
            serve_document,
            serve_page,
            *jobs.ROUTES,
            *requests.ROUTES,
            *accounts.ROUTES,
            *admin_catalogue.ROUTES,
            *admin_garbage.ROUTES,
            *sold.ROUTES,
            *admin_settings.ROUTES,
            *admin_webhooks.ROUTES,
            *agent_blobs.ROUTES,
            *connect.ROUTES,
            *meet.ROUTES,
            *agent_package.ROUTES,
            *dashboard.ROUTES,
            *metrics.ROUTES,
        ],
        exception_handlers={Exception: _answer},
        after_exception=[errors.note_socket],
        openapi_config=None,
        logging_config=None,
        state=State({"unit": unit, "lines": connect.Lines(), "buckets": _buckets(unit)}),
    )
    callers = Callers(unit.db, unit.clock, unit.settings.default_role)
    served = frozenset(part for route in app.routes for part in route.path.split("/")[1:2])
    return Guard(app, unit.settings, callers, served, unit.traffic)
