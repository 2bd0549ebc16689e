"""Declares the operations of paid jobs, reads their requests, and answers in their own error envelope.

Decides: what is known of an operation without running it, and what each failure looks like to a customer.
Never: what an operation does.
Follows: what is declared is what the document says; nothing leaves in another shape.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, cast
from urllib.parse import parse_qsl

import msgspec
import structlog
from litestar.connection import Request
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse
from litestar.types import Method
from msgspec import UNSET, Struct

from sky.api.jobs.buckets import Buckets
from sky.api.reading import BODY_GAP_S, chunks, header
from sky.api.selling import KeyHolder, Selling
from sky.api.stream import Whole
from sky.api.unit import Services
from sky.domain.errors import Busy, InvalidRequest, PayloadTooLarge, SkyError, StorageFull
from sky.domain.job_errors import JobRefused
from sky.wire import jobs as wire

JSON = "application/json"
PREFIX = wire.PATHS_FROM
HEALTH_PATH = "/healthz"
REALM = 'Bearer realm="compute"'
Guarded = Literal["nobody", "key", "upload"]
QUERY_FIELDS_MAX = 100

_log = structlog.get_logger(__name__)
_encoder = msgspec.json.Encoder()
WITH_KEY = (
    "missing_key",
    "invalid_key",
    "account_disabled",
    "account_suspended",
    "scope_denied",
    "rate_limited",
    "owner_unresolved",
    "internal_error",
    "not_implemented",
    "console_unavailable",
)


class JobOperation(Struct, frozen=True):
    """Everything known of an operation. ``answers`` is a type, or the media type of what is no JSON."""

    method: str
    path: str
    name: str
    tag: str
    summary: str
    description: str
    guarded: Guarded
    answers: Any
    statuses: tuple[int, ...]
    codes: tuple[str, ...]
    body: Any
    form: bool
    query: tuple[dict[str, Any], ...]
    keyed: bool


class JobAsk(Struct, frozen=True):
    """One request, with the parts that serve it."""

    unit: Services
    selling: Selling
    request: Request[Any, Any, Any]
    path: dict[str, str]
    query: dict[str, list[str]]

    def header(self, name: bytes) -> str | None:
        """A request header, by its name in lower case."""
        return header(self.request, name)

    @property
    def token(self) -> str | None:
        """What the Authorization header bears; None when it bears nothing."""
        scheme, _, token = (self.header(b"authorization") or "").partition(" ")
        return token.strip() or None if scheme.lower() == "bearer" else None

    async def customer(self, *, submits: bool = False, counted: bool = True) -> KeyHolder:
        """Who asks, let in by the key, within its scope and its rate. Raises JobRefused."""
        holder = await self.selling.accounts.holder(self.token)
        if self.request.scope["method"] not in ("GET", "HEAD") and "jobs" not in holder.scopes:
            msg = "this key may read only; whatever changes something takes a key with the scope jobs"
            raise JobRefused("scope_denied", msg)
        if counted and self.selling.sells:
            buckets: Buckets = self.request.app.state["buckets"]
            after_s = buckets.take(holder.customer.key_id, submits=submits)
            if after_s:
                msg = f"this key asks more often than it may; try again in {after_s} s"
                raise JobRefused("rate_limited", msg, after_s=after_s)
        return holder

    def need_store(self, what: str) -> None:
        """Refuse what a build without a job store cannot do."""
        if not self.selling.sells:
            msg = f"this deployment keeps no jobs, so there is no {what}; its catalogue can be read"
            raise JobRefused("not_implemented", msg)

    async def body(self, kind: Any) -> Any:
        """The JSON body as ``kind``. Raises JobRefused ``malformed_body``."""
        raw = await self.raw()
        try:
            return msgspec.json.decode(raw, type=kind)
        except (ValueError, RecursionError) as error:
            said, _, path = str(error).partition(" - at `$")
            param = path.rstrip("`").lstrip(".") or None
            raise JobRefused("malformed_body", f"the body cannot be read: {said}", param=param) from None

    async def raw(self) -> bytes:
        """The body's bytes, up to the limit."""
        limit = self.selling.settings.body_bytes_max
        return b"".join([part async for part in chunks(self.request, limit_bytes=limit, gap_s=BODY_GAP_S)])

    def number(self, name: str, low: int, high: int, default: int, code: str) -> int:
        """A query parameter that is a whole number."""
        text = self.one(name)
        if text is None:
            return default
        if not re.fullmatch(r"[0-9]{1,9}", text) or not low <= int(text) <= high:
            msg = f"{name} is a whole number from {low} to {high}; it is {text[:40]!r}"
            raise JobRefused(code, msg, param=name)
        return int(text)

    def one(self, name: str) -> str | None:
        """A query parameter that is given once; None when it is not."""
        values = self.query.get(name, [])
        return values[-1] if values else None


Function = Callable[[JobAsk], Awaitable[ASGIResponse]]


def route(
    method: str,
    path: str,
    *,
    tag: str,
    guarded: Guarded = "key",
    answers: Any = None,
    statuses: Sequence[int] = (200,),
    codes: Sequence[str] = (),
    body: Any = None,
    form: bool = False,
    query: Sequence[dict[str, Any]] = (),
    keyed: bool = False,
) -> Callable[[Function], HTTPRouteHandler]:
    """Make a route of a function. ``codes`` are its refusals beside those that follow from its key."""

    def wrap(function: Function) -> HTTPRouteHandler:
        said = (function.__doc__ or "").strip().partition("\n")
        op = JobOperation(
            method=method,
            path=path,
            name=re.sub(r"_(\w)", lambda m: m[1].upper(), function.__name__),
            tag=tag,
            summary=said[0].rstrip("."),
            description=re.sub(r"\s+", " ", said[2]).strip(),
            guarded=guarded,
            answers=answers,
            statuses=tuple(statuses),
            codes=(*(WITH_KEY if guarded == "key" else ()), *codes),
            body=body,
            form=form,
            query=tuple(query),
            keyed=keyed,
        )

        async def handle(request: Request[Any, Any, Any]) -> ASGIResponse:
            unit: Services = request.app.state["unit"]
            unit.db.asked()
            known = {str(parameter["name"]) for parameter in op.query}
            ask = JobAsk(unit, unit.selling, request, request.scope["path_params"], _query(request, known))
            return await function(ask)

        made = HTTPRouteHandler(
            re.sub(r"{(\w+)}", r"{\1:str}", path),
            http_method=cast("Method", method),
            status_code=200,  # what is answered says its own
            name=f"jobs.{op.name}",
            opt={"job_operation": op},
            include_in_schema=False,
        )
        return made(handle)

    return wrap


def _query(request: Request[Any, Any, Any], known: set[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    try:
        text = request.scope["query_string"].decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX, errors="strict")
    except ValueError as error:
        raise JobRefused("invalid_parameter", f"the query cannot be read: {error}") from None
    for name, value in pairs:
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            msg = f"there is no query parameter {name[:40]!r} here; there is {there}"
            raise JobRefused("invalid_parameter", msg, param=name[:40])
        found.setdefault(name, []).append(value)
    return found


# ── answers ─────────────────────────────────────────────────────────────────────────────────────


def reply(value: Any, status: int = 200, **headers: str) -> ASGIResponse:
    """``value`` as JSON. Header names are written with ``_`` for ``-``."""
    named = [(name.replace("_", "-"), text) for name, text in headers.items()]
    return Whole(_encoder.encode(value), media=JSON, status=status, headers=named)


def is_ours(path: str) -> bool:
    """Whether a path belongs to this face, so that its failures have this face's shape."""
    return path in (HEALTH_PATH, PREFIX) or path.startswith(PREFIX + "/")


def refused(error: JobRefused) -> ASGIResponse:
    """A refusal as it is answered."""
    headers: dict[str, str] = {}
    if error.after_s is not None:
        headers["retry_after"] = str(max(1, round(error.after_s)))
    if error.status == 401:
        headers["www_authenticate"] = REALM
    return reply(envelope(error), error.status, **headers)


def envelope(error: JobRefused) -> wire.ErrorEnvelope:
    """A refusal as JSON shows it."""
    quotas = tuple(
        wire.QuotaViolation(
            limit=cast("wire.LimitName", v.limit),
            max=v.maximum,
            used=v.used,
            requested=v.requested,
            headroom=v.headroom,
            tier=UNSET if v.tier is None else cast("wire.Tier", v.tier),
        )
        for v in error.quotas
    )
    return wire.ErrorEnvelope(
        error=wire.Error(
            type=cast("wire.ErrorType", error.type),
            code=error.code,
            message=error.message,
            param=UNSET if error.param is None else error.param,
            quotas=quotas or UNSET,
        )
    )


def understood(error: Exception, request_id: str | None) -> JobRefused:
    """Any failure as a refusal of this face. What is none of ours is a bug, and logged here."""
    match error:
        case JobRefused():
            return error
        case PayloadTooLarge():
            return JobRefused("body_too_large", error.message)
        case InvalidRequest():
            return JobRefused("malformed_body", error.message)
        case Busy():
            msg = "the daemon is busy; try again"
            return JobRefused("upstream_unavailable", msg, after_s=error.after_s or 1)
        case StorageFull():
            return JobRefused("storage_unavailable", error.message)
        case SkyError():
            _log.error("job_request.failed", request_id=request_id, code=error.code, exc_info=error)
        case _:
            status = getattr(error, "status_code", 500)
            if status == 404:
                return JobRefused("not_found", "there is no such path; /compute/v1/openapi.json lists them")
            if status == 405:
                return JobRefused("method_not_allowed", "this path does not take that method")
            _log.error("job_request.failed", request_id=request_id, exc_info=error)
    return JobRefused("internal_error", f"the service failed; its log has the reason under {request_id}")
