"""Who may come in, and what for: the first thing that sees a request, and the last that sees its answer.

Decides: whether a request is let in: it must be addressed to us by a name of ours (else a page that the
user visits could reach us through DNS), must not come from a foreign page, must be of our own user or bring a
token, or come through a proxy that vouches for somebody; and whoever asks must have the role that it takes.
Never: reads a body; asks the database about our own user or token.
Follows: every answer carries a Request-Id; HEAD is served wherever GET is; agents are let through to their
own door, which asks for the token of their node; where others can reach us, no socket's owner is believed;
what is being told to a token ends soon after the token does.
"""

from __future__ import annotations

import hmac
import ipaddress
import itertools
import re
import secrets
from collections.abc import Callable
from typing import Any

import msgspec
import structlog
from litestar.types import ASGIApp, Message, Receive, Send

from sky.api import versions
from sky.api.callers import Callers, own_name
from sky.api.errors import body_of, headers_of
from sky.api.stream import CutShort
from sky.api.traffic import METHODS, Traffic
from sky.api.unit import ApiSettings
from sky.domain.errors import Forbidden, InvalidRequest, SkyError, Unauthorized
from sky.domain.user import ADMIN, METRICS_PATH, Caller, least_role, suffices
from sky.kit import about, spans
from sky.kit.meters import OTHER
from sky.wire import v1

AGENT_PATHS = "/agent/"
LIVE_PATH = "/v1/health/live"
PAID_PATHS = ("/compute/v1", "/healthz")
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
NOT_HERE = 4403
PROXY_HEADER = b"x-auth-request-email"
LOOK_AGAIN_S = 1.0
"""How often, while an answer goes on, it is looked whether its token still lets in."""

_log = structlog.get_logger(__name__)
_PROCESS = secrets.token_hex(6).encode()
_numbers = itertools.count(1)
_OF_A_USER = re.compile(rb"bearer +sky_", re.IGNORECASE)
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:\-]{1,128}")


def liveness(settings: ApiSettings) -> v1.Liveness:
    """What says that this process is there: the same from the door and from the route behind it."""
    return v1.Liveness(live=True, version=settings.client_release)


class Guard:
    """The whole of the faces, behind its door. ``served``: how the paths begin that there are."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ApiSettings,
        callers: Callers,
        served: frozenset[str],
        traffic: Traffic,
    ) -> None:
        self._app = app
        self._traffic = traffic
        self._settings = settings
        self._callers = callers
        self._served = served
        self._token = settings.token.encode() if settings.token else None
        name = own_name(settings.owner_uid)
        self._owner = Caller(name, ADMIN, "owner")
        self._daemon = Caller(name, ADMIN, "daemon")
        self._known: dict[int, frozenset[str]] = {}
        self._versions = versions.headers(settings.api_version, settings.release)
        self._live = msgspec.json.encode(liveness(settings))
        self._live_headers = (
            (b"content-type", b"application/json"),
            (b"content-length", str(len(self._live)).encode()),
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI."""
        kind = scope["type"]
        if kind == "http":
            self._traffic.open += 1
            try:
                if spans.asked_for():
                    await self._traced(scope, receive, send)
                else:
                    await self._http(scope, receive, send)
            finally:
                self._traffic.open -= 1
        elif kind == "websocket":
            if scope["path"].startswith(AGENT_PATHS):
                await self._app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": NOT_HERE, "reason": "no such path"})
        else:
            await self._app(scope, receive, send)

    async def _traced(self, scope: Any, receive: Receive, send: Send) -> None:
        """A request as a span, below the one that its client names."""
        method = scope["method"] if scope["method"] in METHODS else OTHER
        carrier = {name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]}
        with spans.span(method, {"http.request.method": method}, carrier) as span:

            async def out(message: Message) -> None:
                if message["type"] == "http.response.start":
                    route = scope.get("path_template") or OTHER
                    told = {"http.route": route, "http.response.status_code": message["status"]}
                    span.tell(f"{method} {route}", {**told, "sky.request_id": scope["state"]["request_id"]})
                await send(message)

            await self._http(scope, receive, out)

    async def _http(self, scope: Any, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        state: dict[str, Any] = scope.setdefault("state", {})
        request_id = headers.get(b"x-request-id") or headers.get(b"request-id") or b""
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = b"req_%s%012x" % (_PROCESS, next(_numbers))
        state["request_id"] = request_id.decode()
        method, began_s = scope["method"], self._callers.clock.monotonic_s()
        head: bool = method == "HEAD"
        if head:
            state["head"] = True
            scope = {**scope, "method": "GET"}  # the server keeps its own, and sends no body for it
        more = [(b"request-id", request_id)]
        if versions.speaks(scope["path"]):
            more += self._versions

        def tell() -> dict[str, str]:
            return {
                "request_id": state["request_id"],
                "route": f"{method} {scope.get('path_template') or OTHER}",
            }

        def note(status: int) -> None:
            took_s = self._callers.clock.monotonic_s() - began_s
            self._traffic.answered(method, scope.get("path_template"), status, took_s)
            _log.debug("request.answered", status=status, seconds=took_s)

        about.begin(tell)  # each request has a task of its own

        out = _with(send, more, note)
        refusal = self._misled(scope, state, headers, head=head)
        if refusal is None and not scope["path"].startswith((AGENT_PATHS, *PAID_PATHS)):
            try:
                await self._admit(scope, state, headers)
            except SkyError as refused:
                refusal = refused
        if refusal is not None:
            await _refuse(out, refusal, state["request_id"])
        elif scope["path"] == LIVE_PATH and scope["method"] == "GET" and not scope["query_string"]:
            scope["path_template"] = LIVE_PATH
            await out({"type": "http.response.start", "status": 200, "headers": self._live_headers})
            await out({"type": "http.response.body", "body": self._live, "more_body": False})
        else:
            await self._app(scope, receive, self._watched(out, state))

    # ── how it came ─────────────────────────────────────────────────────────────────────────────

    def _misled(
        self, scope: Any, state: dict[str, Any], headers: dict[bytes, bytes], *, head: bool
    ) -> SkyError | None:
        """The refusal of what was not meant for us, or by a page that is not ours, or is too old."""
        path: str = scope["path"]
        if path.startswith(AGENT_PATHS):
            return None
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if not host:
            msg = "the Host header is missing"
            return InvalidRequest(
                msg, details={"field": "Host", "value": None, "expected": "this daemon's name"}
            )
        hosts = self._hosts(scope)
        if state.get("lent") or (state.get("public") and not self._settings.hosts):
            hosts = frozenset({host})  # nobody is let in here for where they are, so no name misleads
        if host not in hosts:
            msg = f"this daemon is not {host[:120]!r}; address it as {' or '.join(sorted(hosts))}"
            return Forbidden(msg, details={"field": "Host", "value": host[:120]})
        foreign = _foreign(headers, hosts, safe=head or scope["method"] in SAFE_METHODS)
        if foreign is None and versions.VERSION in headers and versions.speaks(path):
            known = self._settings
            return versions.refusal(path, headers[versions.VERSION], known.api_version, known.api_version_min)
        return foreign

    def _hosts(self, scope: Any) -> frozenset[str]:
        server = scope.get("server")
        port = (server[1] if server else None) or 0
        known = self._known.get(port)
        if known is None:
            known = self._settings.hosts | {f"{name}:{port}" for name in LOOPBACK_NAMES}
            if port == 80:
                known |= frozenset(LOOPBACK_NAMES)
            self._known = {**self._known, port: known}
        return known

    # ── who it is ───────────────────────────────────────────────────────────────────────────────

    async def _admit(self, scope: Any, state: dict[str, Any], headers: dict[bytes, bytes]) -> None:
        """Find out who asks, and whether they may. Raises SkyError.

        Whoever brings a user's token is that user, our own user too.
        """
        if state.get("peer_uid") == self._settings.owner_uid:
            given = headers.get(b"authorization")
            if given is None or not _OF_A_USER.match(given):
                state["caller"] = self._owner
                return
        if scope["path"] == METRICS_PATH and self._reads_metrics(state, headers):
            return
        caller = state["caller"] = await self._caller(scope, state, headers)
        if caller is not None and caller.role == ADMIN:
            return
        least = least_role(scope["method"], scope["path"])
        if least is None:
            return
        if caller is None:
            raise Unauthorized(
                "send a token: Authorization: Bearer <token> (SKY_TOKEN for the client); an admin makes one "
                "with `sky token create`"
            )
        if not suffices(caller.role, least) and self._served_from(scope["path"]):
            raise _not_allowed(caller, scope["method"], scope["path"], least)

    async def _caller(self, scope: Any, state: dict[str, Any], headers: dict[bytes, bytes]) -> Caller | None:
        """Who asks; None: they do not say. Raises Unauthorized."""
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer":
            token = token.strip()
            if self._token is not None and hmac.compare_digest(token, self._token):
                return self._daemon
            state["token"] = token.decode("latin-1")
            return await self._callers.by_token(state["token"])
        if PROXY_HEADER in headers and self._vouches(scope, state):
            return await self._callers.by_proxy(headers[PROXY_HEADER].decode("latin-1"))
        if scheme:
            raise Unauthorized(
                "only tokens are known here: Authorization: Bearer <token> (SKY_TOKEN for the client)"
            )
        return None

    def _reads_metrics(self, state: dict[str, Any], headers: dict[bytes, bytes]) -> bool:
        """Whether the operator lets the numbers be read from where, or with what, this came."""
        own = self._settings.metrics_token
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if own and scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), own.encode()):
            return True
        return self._settings.metrics_open and not (state.get("public") or state.get("lent"))

    def _vouches(self, scope: Any, state: dict[str, Any]) -> bool:
        """Whether the other end is a proxy that is believed."""
        if not (self._settings.behind_proxy and state.get("public") and scope.get("client")):
            return False
        try:
            peer = ipaddress.ip_address(scope["client"][0])
        except ValueError:
            return False
        return any(peer in network for network in self._settings.proxies)

    def _served_from(self, path: str) -> bool:
        """Whether there may be such a path: what is not there is told as that, whoever asks."""
        return next((part for part in path.split("/") if part), "") in self._served

    def _watched(self, send: Send, state: dict[str, Any]) -> Send:
        """``send``, but what takes long is not told to a token that is refused meanwhile: it is answered with
        that refusal, or cut off where it is."""
        token: str | None = state.get("token")
        if token is None:
            return send
        clock = self._callers.clock
        looked_s = clock.monotonic_s()
        over = False

        async def out(message: Message) -> None:
            nonlocal looked_s, over
            if over:
                return
            if clock.monotonic_s() - looked_s > LOOK_AGAIN_S:
                try:
                    await self._callers.by_token(token)
                except Unauthorized as refused:
                    over = True
                    if message["type"] != "http.response.start":
                        raise CutShort("its token does not let in any more") from refused
                    await _refuse(send, refused, state["request_id"])
                    return
                looked_s = clock.monotonic_s()
            await send(message)

        return out


def _not_allowed(caller: Caller, method: str, path: str, least: str) -> Forbidden:
    what = f"{method} {path[:120]}"
    msg = f"{caller.name!r} has the role {caller.role}, and {what} takes the role {least}"
    if path.startswith("/v1/"):
        msg += ": a compute has no owner, so the control plane is for admins; users have clusters (/launch)"
    else:
        msg += f"; an admin gives it with `sky user role {caller.name} {least}`"
    return Forbidden(msg, details={"user": caller.name, "role": caller.role, "least_role": least})


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


def _with(send: Send, more: list[tuple[bytes, bytes]], note: Callable[[int], None]) -> Send:
    """``send`` with further headers on the answer, whose status is noted."""

    async def out(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *more]
            note(message["status"])
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
