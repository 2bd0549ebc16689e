"""Calls to a SkyPilot API server: requests that are handed in and asked after, and what its answers mean.

Decides: which versions are spoken to, how long a call may take, and which answer is a no and which one is not
now. Never: repeats a call, or reads a pickle that it is sent. Follows: an error's text names the call and
what the server said, and no credential.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, cast

import aiohttp

from sky.providers.answers import whole
from sky.providers.base import AgainLater, ProviderError, Refused
from sky.providers.skypilot.config import CREDENTIALS
from sky.providers.skypilot.failure import CANCELLED, clean, failure
from sky.providers.skypilot.shape import Item, every, many, mapping, number, parsed, text

SPOKEN = "0.14"
_SPOKEN: Final = re.compile(r"0\.14\.\d+\S*")
API_VERSION = "62"
CALL_S_MAX = 30.0
CONNECT_S_MAX = 5.0
ANSWER_BYTES_MAX = 64 << 20
DOWN_S = 5.0
REQUESTS_MAX = 2_000
LOG_LINES = 5
LOG_CHARS = 300
ACTIVE: Final = frozenset({"PENDING", "WAITING", "RUNNING"})
LAUNCH, STOP, DOWN = "sky.launch", "sky.stop", "sky.down"
_FIELDS: Final = ("request_id", "name", "status", "cluster_name", "status_msg", "created_at")
Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Access:
    """One server as one caller. ``user``: who the requests are by, where the server asks nobody to log in."""

    endpoint: str
    headers: Mapping[str, str] = field(repr=False)
    user: str
    workspace: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the server lists it."""

    id: str
    name: str
    status: str
    cluster: str
    said: str | None

    @property
    def active(self) -> bool:
        return self.status in ACTIVE


def headers_of(credentials: Mapping[str, str]) -> dict[str, str]:
    """How a call says who it is by. Raises Refused where the credentials do not go together."""
    given = {name: credentials[name] for name in CREDENTIALS if credentials.get(name)}
    headers = {"X-SkyPilot-API-Version": API_VERSION, "X-SkyPilot-Version": f"{SPOKEN}.1"}
    for name, value in given.items():
        if not value.isprintable() or (name != "password" and not value.isascii()):
            raise _wrong(name, "it is more than one line, or not ASCII; give it without a line's end")
    if "token" in given and "username" in given:
        raise _wrong("token", "give a token, or username and password, not both")
    if ("username" in given) != ("password" in given):
        raise _wrong("password", "username and password go together; give both or neither")
    if "token" in given:
        headers |= {"Authorization": f"Bearer {given['token']}"}
    elif "username" in given:
        pair = f"{given['username']}:{given['password']}".encode()
        headers |= {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    if "cookies" in given:
        headers |= {"Cookie": given["cookies"]}
    return headers


class Api:
    """The server within one call to the provider."""

    def __init__(self, session: aiohttp.ClientSession, access: Access) -> None:
        self._session = session
        self._access = access

    async def check(self) -> None:
        """Raises Refused unless it is a SkyPilot server of a version that is spoken, which knows us."""
        status, raw = await self._call("GET", "/api/health")
        told = mapping(parsed(raw))
        if status != 200 or "status" not in told:
            said = f"it answers GET /api/health with HTTP {status}"
            msg = f"{self._access.endpoint} is no SkyPilot API server: {said}"
            raise Refused(f"{msg}; set config.endpoint", "invalid_request", field="config.endpoint")
        if told.get("status") == "needs_auth":
            raise self._unknown_here("GET /api/health")
        version = text(told.get("version")) or "no version"
        if _SPOKEN.fullmatch(version) is None:
            msg = f"{self._access.endpoint} runs SkyPilot {version}, and {SPOKEN} is spoken here"
            todo = f"install 'skypilot>={SPOKEN},<0.15' there, or set config.endpoint to a server that has it"
            raise Refused(f"{msg}; {todo}", "invalid_request", field="config.endpoint")

    async def submit(self, path: str, body: Mapping[str, Any]) -> str:
        """Hand a request in; its id, under which it is known from then on."""
        return (await self._submitted("POST", path, body))[0]

    async def ask(self, path: str, body: Mapping[str, Any] | None = None) -> object:
        """What a short request returns. Without a body it is one that takes none."""
        method = "GET" if body is None else "POST"
        request_id, where = await self._submitted(method, path, body)
        return await self.result(request_id, where)

    async def result(self, request_id: str, where: str) -> object:
        """What a request has returned, once it has ended. Raises what it has failed with."""
        status, raw = await self._call("GET", "/api/get", query=(("request_id", request_id),))
        told = mapping(parsed(raw))
        if status == 404:
            raise AgainLater(f"{where}: the server has forgotten the request {request_id}", 1.0)
        if status == 500 and isinstance(told.get("detail"), dict):
            told = mapping(told["detail"])
        elif status != 200:
            raise self._failed(status, raw, f"{where} (GET /api/get)")
        error = mapping(parsed(told.get("error")))
        if error:
            raise failure(where, error)
        if told.get("status") != "SUCCEEDED":
            raise AgainLater(f"{where}: the request {request_id} is {told.get('status')}", DOWN_S)
        return parsed(told.get("return_value"))

    async def error(self, request_id: str, where: str) -> ProviderError:
        """What a request has failed with, and the end of what it wrote."""
        status, raw = await self._call("GET", "/api/get", query=(("request_id", request_id),))
        if status == 404:
            return AgainLater(f"{where}: the server has forgotten the request {request_id}", 1.0)
        told = mapping(mapping(parsed(raw)).get("detail") if status == 500 else parsed(raw))
        error = mapping(parsed(told.get("error")))
        if not error and told.get("status") == "CANCELLED":
            error = {"type": CANCELLED, "message": f"the request {request_id} was cancelled"}
        if not error:
            return self._failed(status, raw, f"{where} (GET /api/get)")
        return failure(where, error, await self.log(request_id), launch=True)

    async def requests(self, **query: str) -> list[Asked]:
        """Requests that have not ended, or with ``request_ids`` that one; the newest first."""
        return [_asked(one) for one in await self._listed(query)]

    async def task(self, request_id: str) -> str:
        """The task that a request was handed in with; empty where the server does not say."""
        for one in await self._listed({"request_ids": request_id}):
            return text(mapping(parsed(one.get("request_body"))).get("task")) or ""
        return ""

    async def log(self, request_id: str) -> str:
        """The end of what a request has written; nothing where the server keeps no log of it."""
        query = (
            ("request_id", request_id),
            ("follow", "false"),
            ("tail", str(LOG_LINES)),
            ("format", "plain"),
        )
        status, raw = await self._call("GET", "/api/stream", query=query)
        return clean(raw.decode("utf-8", "replace"), LOG_CHARS) if status == 200 else ""

    async def clusters(self, names: list[str]) -> list[Item]:
        """The clusters of these names, in which ``*`` stands for anything, as the server knows them now."""
        body = {"cluster_names": names, "all_users": True, "include_credentials": False, "refresh": "NONE"}
        return _listing(await self.ask("/status", body), self._named("POST", "/status"))

    async def hourly_usd(self, cluster: str) -> float | None:
        """What the cluster costs an hour, after the server's own count; None where it has none."""
        told = many(await self.ask("/cost_report", {"cluster_names": [cluster], "days": 1}))
        reports = [one for one in told if one.get("status") is not None] or told
        total, seconds = (
            number(reports[0].get(key)) if reports else None for key in ("total_cost", "duration")
        )
        return round(total * 3600 / seconds, 6) if total and seconds else None

    # ── how a call is made ──────────────────────────────────────────────────────────────────────

    async def _listed(self, query: Mapping[str, str]) -> list[Item]:
        told = list(query.items())
        if "request_ids" not in query:
            told += [("fields", name) for name in _FIELDS] + [("limit", str(REQUESTS_MAX))]
        status, raw = await self._call("GET", "/api/status", query=told)
        if status != 200:
            raise self._failed(status, raw, self._named("GET", "/api/status"))
        return _listing(parsed(raw), self._named("GET", "/api/status"))

    async def _submitted(self, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[str, str]:
        where = self._named(method, path)
        status, raw, request_id = await self._sent(
            method, path, (), None if body is None else self._body(body)
        )
        if status != 200:
            raise self._failed(status, raw, where)
        if not request_id:
            raise AgainLater(
                f"{where}: the answer names no request; a proxy may take its headers away", DOWN_S
            )
        return request_id, where

    def _body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        place = self._access.workspace
        return {
            "env_vars": {"SKYPILOT_USER_ID": self._access.user, "SKYPILOT_USER": "skyfleet"},
            "entrypoint": "skyfleet",
            "entrypoint_command": "skyfleet",
            "using_remote_api_server": True,
            "override_skypilot_config": {} if place is None else {"active_workspace": place},
            **body,
        }

    async def _call(self, method: str, path: str, query: Query = ()) -> tuple[int, bytes]:
        status, raw, _ = await self._sent(method, path, query, None)
        return status, raw

    async def _sent(
        self, method: str, path: str, query: Query, body: Mapping[str, Any] | None
    ) -> tuple[int, bytes, str]:
        headers = {**self._access.headers, "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        where = self._named(method, path)
        try:
            async with self._session.request(
                method,
                self._access.endpoint + path,
                params=list(query) or None,
                data=None if body is None else json.dumps(body).encode(),
                headers=headers,
                allow_redirects=False,
            ) as answer:
                raw = await whole(answer, where, ANSWER_BYTES_MAX)
                status, request_id = answer.status, answer.headers.get("X-SkyPilot-Request-ID", "")
        except aiohttp.ClientConnectorCertificateError as error:
            msg = f"{where}: the server's certificate is not trusted here: {error.certificate_error}"
            raise Refused(msg, "unauthorized", field="config.endpoint") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = str(error) or f"no answer within {CALL_S_MAX:g} s"
            raise AgainLater(f"{where}: {why}", DOWN_S) from error
        if status in (301, 302, 303, 307, 308, 401, 403):
            raise self._unknown_here(
                where, clean(raw.decode("utf-8", "replace"), 200) if status == 403 else ""
            )
        return status, raw, request_id

    def _unknown_here(self, where: str, said: str = "") -> Refused:
        told = said or "the server wants to know who asks, and does not take these credentials"
        todo = "give token, or username and password, or cookies among the provider's credentials"
        return Refused(f"{where}: {told}; {todo}", "unauthorized", field="credentials")

    def _failed(self, status: int, raw: bytes, where: str) -> ProviderError:
        detail = mapping(parsed(raw)).get("detail")
        faults = [f"{'.'.join(map(str, every(one.get('loc'))))}: {one.get('msg')}" for one in many(detail)]
        said = clean("; ".join(faults) or detail or raw.decode("utf-8", "replace"), 500)
        if status in (400, 404, 405, 413, 422):
            return Refused(f"{where}: HTTP {status}: {said}", "invalid_request")
        return AgainLater(f"{where}: HTTP {status}: {said}", DOWN_S)

    def _named(self, method: str, path: str) -> str:
        return f"SkyPilot at {self._access.endpoint} ({method} {path})"


@asynccontextmanager
async def calling(access: Access) -> AsyncGenerator[Api]:
    """The server for the calls of one call to a provider, which share a connection."""
    timeout = aiohttp.ClientTimeout(total=CALL_S_MAX, connect=CONNECT_S_MAX)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as session:
        yield Api(session, access)


def _listing(found: object, where: str) -> list[Item]:
    """What the server has listed. Raises AgainLater for no list: that there is nothing must be said."""
    if not isinstance(found, list):
        raise AgainLater(f"{where}: the answer is no list; something may stand between", DOWN_S)
    return many(cast("list[object]", found))


def _asked(item: Item) -> Asked:
    return Asked(
        id=str(item.get("request_id")),
        name=str(item.get("name")),
        status=str(item.get("status")),
        cluster=text(item.get("cluster_name")) or "",
        said=text(item.get("status_msg")),
    )


def _wrong(name: str, what: str) -> Refused:
    return Refused(f"credentials.{name}: {what}", "invalid_request", field=f"credentials.{name}")
