"""One operation of the interface: a function with types, from which its route and its document follow.

Decides: how parameters, headers and bodies are read, held against their types, and handed to the function.
Never: what an operation does. Follows: what is validated and what is documented are the same declaration;
unknown query parameters and fields are refused by name before any function runs.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Annotated, Any, TypeVar, cast

import msgspec
from litestar.connection import Request
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse
from litestar.types import Method
from msgspec import Meta, Struct, field

from sky.api.reading import (
    BODY_GAP_S,
    JSON,
    Query,
    chunks,
    has_required,
    header,
    json_body,
    key_of,
    media_of,
    path_of,
    query_of,
    revision_of,
)
from sky.api.stream import Whole
from sky.api.unit import Services
from sky.domain.errors import SkyError, Unauthorized
from sky.domain.user import Caller
from sky.kit import codec
from sky.store.tx import Tx

T = TypeVar("T")

BYTES = "application/octet-stream"
BLOB = "application/vnd.skyward.blob"
FRAMES = "application/vnd.skyward.frames"
EVENTS = "text/event-stream"

Limit = Annotated[int, Meta(ge=1, le=500, description="How many items a page has at most, 1 to 500.")]
NodeChoice = Annotated[
    str, Meta(min_length=1, max_length=64, description="``all``, a rank, or the id of a node.")
]
Ordinal = Annotated[int, Meta(ge=1, le=2**31 - 1)]

_encoder = msgspec.json.Encoder()


class TrialQuery(Query, frozen=True):
    """Whether it is meant."""

    dry_run: Annotated[bool, Meta(description="Answer as if it were done, or refuse it, and do nothing.")] = (
        False
    )


class _TakenBackError(Exception):
    """What a verb answered whose writes are not to stay."""

    def __init__(self, answer: Any) -> None:
        super().__init__("this was a dry run")
        self.answer = answer


class Bytes(Struct, frozen=True):
    """Raw content, in one of these media types."""

    media: tuple[str, ...] = (BYTES, BLOB)
    description: str = "The content itself."


class Header(Struct, frozen=True):
    """A request header that an operation reads, or a response header that it sets."""

    name: str
    description: str
    required: bool = False


class Operation(Struct, frozen=True):
    """Everything that is known of an operation without running it."""

    method: str
    path: str
    name: str
    tag: str
    summary: str
    description: str
    status: int
    answers: Any
    also: tuple[int, ...] = ()
    errors: tuple[type[SkyError], ...] = ()
    path_types: dict[str, Any] = field(default_factory=dict[str, Any])
    query: type[Query] | None = None
    body: Any = None
    raw: Bytes | None = None
    keyed: bool = False
    guarded: bool = False
    headers: tuple[Header, ...] = ()
    sets: tuple[Header, ...] = ()


class Ask(Struct, frozen=True):
    """One request, held against its operation. ``revision`` None: any (the caller said ``*``)."""

    unit: Services
    request: Request[Any, Any, Any]
    operation: Operation
    path: dict[str, Any]
    key: str | None = None
    revision: int | None = None

    @property
    def head(self) -> bool:
        """Whether only the headers of the answer are wanted."""
        return self.request.scope["state"].get("head", False)

    @property
    def caller(self) -> Caller:
        """Who asks. Raises Unauthorized where anybody may ask, and whoever did does not say."""
        caller = self.somebody
        if caller is None:
            raise Unauthorized("send a token: Authorization: Bearer <token> (SKY_TOKEN for the client)")
        return caller

    @property
    def somebody(self) -> Caller | None:
        """Who asks, where they say so."""
        return self.request.scope["state"].get("caller")

    @property
    def media(self) -> str:
        """The media type of the body, in lower case and without parameters; empty when there is none."""
        return media_of(self.request)

    def header(self, name: bytes) -> str | None:
        """A request header, by its name in lower case."""
        return header(self.request, name)

    async def once(
        self, make: Callable[[Tx], Any], show: Callable[[Tx, Any], T], wanted: Any = None
    ) -> tuple[T, bool]:
        """Write, once per Idempotency-Key: what ``show`` makes of it, and whether it was done before.

        ``make`` returns what is remembered (such as an id); ``show`` reads it as it is now. ``wanted`` is
        all of the request that a retry must repeat beside its path.
        """
        key = None if self.key is None else f"{self.operation.name}:{self._whose}{self.key}"
        fingerprint = ""
        if key is not None:
            fingerprint = codec.sha256_hex(codec.canonical([self.operation.name, self.path, wanted]))

        def write(tx: Tx) -> tuple[T, bool]:
            done, replayed = tx.once(key, fingerprint, lambda: make(tx))
            return show(tx, done), replayed

        return await self.unit.db.write(write)

    async def write(self, verb: Callable[[Tx], T], *, dry_run: bool) -> T:
        """What a verb answers, or refuses; ``dry_run``: nothing of what it writes stays."""
        if not dry_run:
            return await self.unit.db.write(verb)

        def tried(tx: Tx) -> T:
            raise _TakenBackError(verb(tx))

        try:
            return await self.unit.db.write(tried)
        except _TakenBackError as done:
            return cast("T", done.answer)

    @property
    def _whose(self) -> str:
        """What keeps a user's keys apart from everybody else's."""
        caller = self.somebody
        if caller is None or caller.speaks_for_others:
            return ""
        return codec.sha256_hex(caller.name.encode())[:16] + ":"

    def body(self, *, limit_bytes: int, gap_s: float = BODY_GAP_S) -> AsyncIterator[bytes]:
        """The body as it arrives."""
        return chunks(self.request, limit_bytes=limit_bytes, gap_s=gap_s)


# ── answers ─────────────────────────────────────────────────────────────────────────────────────


def reply(value: Any, status: int = 200, **headers: str) -> ASGIResponse:
    """``value`` as JSON. Header names are written with ``_`` for ``-``."""
    return Whole(_encoder.encode(value), media=JSON, status=status, headers=_named(headers))


def nothing(status: int = 204, **headers: str) -> ASGIResponse:
    """An answer without a body."""
    return Whole(b"", media=None, status=status, headers=_named(headers))


def _named(headers: dict[str, str]) -> list[tuple[str, str]]:
    return [(name.replace("_", "-"), text) for name, text in headers.items()]


def made(value: Any, location: str, replayed: bool, **headers: str) -> ASGIResponse:
    """What a creating operation answers: 201 with where it is, or 200 when the key was seen before."""
    if replayed:
        return reply(value, 200, location=location, idempotency_replayed="true", **headers)
    return reply(value, 201, location=location, **headers)


def accepted(value: object, replayed: bool, **headers: str) -> ASGIResponse:
    """What an operation answers that goes on after its answer."""
    more = {"idempotency_replayed": "true"} if replayed else {}
    return reply(value, 202, **headers, **more)


# ── declaring an operation ──────────────────────────────────────────────────────────────────────

Function = Callable[..., Awaitable[ASGIResponse]]


def operation(
    method: str,
    path: str,
    *,
    tag: str,
    answers: Any = None,
    status: int = 200,
    also: Sequence[int] = (),
    errors: Sequence[type[SkyError]] = (),
    raw: Bytes | None = None,
    keyed: bool = False,
    guarded: bool = False,
    headers: Sequence[Header] = (),
    sets: Sequence[Header] = (),
) -> Callable[[Function], HTTPRouteHandler]:
    """Make a route of a function whose parameters are ``ask``, path parameters, ``query`` and ``body``.

    ``answers`` is the type of the answer with ``status``; ``also`` are further good statuses with the same
    answer; ``raw`` says that the function reads the body itself; ``keyed`` that it heeds Idempotency-Key;
    ``guarded`` that it demands If-Match. The first line of its docstring is its summary.
    """

    def wrap(function: Function) -> HTTPRouteHandler:
        hints = typing.get_type_hints(function, include_extras=True)
        names = re.findall(r"{(\w+)}", path)
        said = inspect.cleandoc(function.__doc__ or "").partition("\n")
        name = re.sub(r"_(\w)", lambda m: m[1].upper(), function.__name__)
        op = Operation(
            method=method,
            path=path,
            name=name,
            tag=tag,
            summary=said[0].rstrip("."),
            description=said[2].strip(),
            status=status,
            answers=answers,
            also=tuple(also),
            errors=tuple(errors),
            path_types={part: hints[part] for part in names},
            query=hints.get("query"),
            body=hints.get("body"),
            raw=raw,
            keyed=keyed,
            guarded=guarded,
            headers=tuple(headers),
            sets=tuple(sets),
        )
        return _route(op, function)

    return wrap


def routed(path: str) -> str:
    """A path of the document as the router wants it."""
    return re.sub(r"{(\w+)}", r"{\1:str}", path)


def _route(op: Operation, function: Function) -> HTTPRouteHandler:
    optional = op.body is not None and not has_required(op.body)

    async def handle(request: Request[Any, Any, Any]) -> ASGIResponse:
        unit: Services = request.app.state["unit"]
        path = path_of(request, op.path_types)
        arguments: dict[str, Any] = dict(path)
        query = query_of(request, op.query)
        if op.query is not None:
            arguments["query"] = query
        key = key_of(request) if op.keyed else None
        revision = revision_of(request) if op.guarded else None
        if op.body is not None:
            limit = unit.settings.body_bytes_max
            arguments["body"] = await json_body(request, op.body, limit, optional=optional)
        return await function(Ask(unit, request, op, path, key, revision), **arguments)

    made_route = HTTPRouteHandler(
        routed(op.path),
        http_method=cast("Method", op.method),
        status_code=200,  # what is answered says its own
        name=op.name,
        opt={"operation": op},
        include_in_schema=False,
    )
    return made_route(handle)
