"""Who may come in: the first thing that sees a request, and the last that sees its answer.

Decides: whether a request is let in: it must be addressed to us by a name of ours (else a page that the
user visits could reach us through DNS), must not come from a foreign page, and must be of our own user or
bring the token. Never: reads a body, or asks the database.
Follows: every answer carries a Request-Id; HEAD is served wherever GET is; agents are let through to their
own door, which asks for the token of their node.
"""

from __future__ import annotations

import hmac
import itertools
import re
import secrets
from typing import Any

import msgspec
from litestar.types import ASGIApp, Message, Receive, Send

from sky.api.errors import body_of, headers_of
from sky.api.unit import ApiSettings
from sky.domain.errors import Forbidden, InvalidRequest, SkyError, Unauthorized
from sky.wire import v1

AGENT_PATHS = "/agent/"
LIVE_PATH = "/v1/health/live"
PAID_PATHS = ("/compute/v1", "/healthz")
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
NOT_HERE = 4403

_PROCESS = secrets.token_hex(6).encode()
_numbers = itertools.count(1)
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:\-]{1,128}")


def liveness(settings: ApiSettings) -> v1.Liveness:
    """What says that this process is there: the same from the door and from the route behind it."""
    return v1.Liveness(live=True, version=settings.client_release)


class Guard:
    """The whole of the faces, behind its door."""

    def __init__(self, app: ASGIApp, settings: ApiSettings) -> None:
        self._app = app
        self._settings = settings
        self._token = settings.token.encode() if settings.token else None
        self._known: dict[int, frozenset[str]] = {}
        self._live = msgspec.json.encode(liveness(settings))
        self._live_headers = (
            (b"content-type", b"application/json"),
            (b"content-length", str(len(self._live)).encode()),
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI."""
        kind = scope["type"]
        if kind == "http":
            await self._http(scope, receive, send)
        elif kind == "websocket":
            if scope["path"].startswith(AGENT_PATHS):
                await self._app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": NOT_HERE, "reason": "no such path"})
        else:
            await self._app(scope, receive, send)

    async def _http(self, scope: Any, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        state: dict[str, Any] = scope.setdefault("state", {})
        request_id = headers.get(b"x-request-id") or headers.get(b"request-id") or b""
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = b"req_%s%012x" % (_PROCESS, next(_numbers))
        state["request_id"] = request_id.decode()
        head: bool = scope["method"] == "HEAD"
        if head:
            state["head"] = True
            scope = {**scope, "method": "GET"}  # the server keeps its own, and sends no body for it
        out = _with_id(send, request_id)
        refusal = self._refusal(scope, state, headers, head=head)
        if refusal is not None:
            await _refuse(out, refusal, state["request_id"])
        elif scope["path"] == LIVE_PATH and scope["method"] == "GET" and not scope["query_string"]:
            await out({"type": "http.response.start", "status": 200, "headers": self._live_headers})
            await out({"type": "http.response.body", "body": self._live, "more_body": False})
        else:
            await self._app(scope, receive, out)

    def _refusal(
        self, scope: Any, state: dict[str, Any], headers: dict[bytes, bytes], *, head: bool
    ) -> SkyError | None:
        if scope["path"].startswith(AGENT_PATHS):
            return None
        host = headers.get(b"host", b"").decode("latin-1").lower()
        hosts = self._hosts(scope)
        if not host:
            msg = "the Host header is missing"
            return InvalidRequest(
                msg, details={"field": "Host", "value": None, "expected": "this daemon's name"}
            )
        if host not in hosts:
            msg = f"this daemon is not {host[:120]!r}; address it as {' or '.join(sorted(hosts))}"
            return Forbidden(msg, details={"field": "Host", "value": host[:120]})
        foreign = _foreign(headers, hosts, safe=head or scope["method"] in SAFE_METHODS)
        if foreign is not None:
            return foreign
        if scope["path"].startswith(PAID_PATHS):  # they ask for a key of their own, or for none
            return None
        return self._stranger(state, headers)

    def _stranger(self, state: dict[str, Any], headers: dict[bytes, bytes]) -> SkyError | None:
        if state.get("peer_uid") == self._settings.owner_uid:
            return None
        given = headers.get(b"authorization", b"")
        scheme, _, token = given.partition(b" ")
        if self._token is not None and scheme.lower() == b"bearer":
            if hmac.compare_digest(token.strip(), self._token):
                return None
            return Unauthorized("the token is not this daemon's; its owner finds it in the daemon's folder")
        return Unauthorized(
            "send the daemon's token: Authorization: Bearer <token> (SKY_TOKEN for the client)"
        )

    def _hosts(self, scope: Any) -> frozenset[str]:
        server = scope.get("server")
        port = (server[1] if server else None) or 0
        known = self._known.get(port)
        if known is None:
            known = self._settings.hosts | {f"{name}:{port}" for name in LOOPBACK_NAMES}
            if port == 80:
                known |= frozenset(LOOPBACK_NAMES)
            self._known = {port: known}
        return known


def _foreign(headers: dict[bytes, bytes], hosts: frozenset[str], *, safe: bool) -> SkyError | None:
    """The refusal of a request that a page of another origin sent."""
    origin = headers.get(b"origin")
    if origin is not None:
        text = origin.decode("latin-1").lower()
        scheme, _, name = text.partition("://")
        if scheme not in {"http", "https"} or name not in hosts:
            msg = f"requests from pages of {text[:120]!r} are not taken"
            return Forbidden(msg, details={"field": "Origin", "value": text[:120]})
    elif not safe and headers.get(b"sec-fetch-site", b"none") not in {b"none", b"same-origin"}:
        return Forbidden(
            "requests from pages of other sites are not taken", details={"field": "Sec-Fetch-Site"}
        )
    return None


def _with_id(send: Send, request_id: bytes) -> Send:
    """``send`` with a Request-Id on the answer."""

    async def out(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"request-id", request_id)]
        await send(message)

    return out


async def _refuse(send: Send, error: SkyError, request_id: str) -> None:
    body = body_of(error, request_id)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *((name.encode(), text.encode()) for name, text in headers_of(error).items()),
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
