"""Calls to a cluster's API: JSON over HTTP, and what its answers mean to a provider.

Decides: how long a call may take, and which answer is a no, which one is not now, and which one is gone.
Never: repeats a call, or knows what a pod is for. Follows: an error's text names the call and what the API
said, and no credential.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import quote

import aiohttp

from sky.providers.answers import whole
from sky.providers.base import AgainLater, ProviderError, Refused
from sky.providers.kubernetes.access import Access
from sky.providers.kubernetes.shape import Item, at, is_mapping, many, mapping
from sky.providers.kubernetes.tokens import Tokens

CALL_S_MAX = 15.0
CONNECT_S_MAX = 5.0
FORWARD_PROTOCOL = "v4.channel.k8s.io"
PAGE = 250
PAGES_MAX = 400
ANSWER_BYTES_MAX = 64 << 20
BUSY_S = 5.0
DOWN_S = 5.0
TOLD_CHARS_MAX = 500
_QUOTA = re.compile(r"quota", re.IGNORECASE)
_LIMIT = re.compile(r"(maximum|minimum) (cpu|memory|\S+) usage per", re.IGNORECASE)
_POLICY = re.compile(
    r"PodSecurity|admission webhook|denied the request|ServiceAccount.*not found", re.IGNORECASE
)


class Conflict(ProviderError):
    """There is one of that name already, or it has changed since it was read."""


class Api:
    """The API within one provider's call."""

    def __init__(self, session: aiohttp.ClientSession, access: Access, tokens: Tokens) -> None:
        self._session = session
        self._access = access
        self._tokens = tokens

    async def get(self, path: str) -> Item | None:
        """What is at ``path``; None when there is nothing."""
        return await self._call("GET", path)

    async def create(self, path: str, item: Item) -> Item:
        """Make one. Raises Conflict when there is one of that name."""
        made = await self._call("POST", path, body=item)
        if made is None:
            # Only what surrounds it can be missing: the namespace, or the kind itself.
            raise Refused(f"{self._named('POST', path)}: there is no such place", "invalid_request")
        return made

    async def change(self, path: str, item: Item) -> Item | None:
        """Merge ``item`` into what is at ``path``. Raises Conflict where it was changed by somebody else."""
        return await self._call("PATCH", path, body=item, kind="application/merge-patch+json")

    async def remove(self, path: str, options: Item | None = None) -> bool:
        """Ask for the end of what is at ``path``; whether there was something."""
        told = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        return await self._call("DELETE", path, body={**told, **(options or {})}) is not None

    async def all(self, path: str, **query: str) -> list[Item]:
        """All items of a listing, page by page. Raises AgainLater when it was too old to go on with."""
        found: list[Item] = []
        token = ""
        for _ in range(PAGES_MAX):
            more = {"continue": token} if token else {}
            page = await self._call("GET", path, query={**query, "limit": str(PAGE), **more})
            if page is None:
                raise Refused(f"{self._named('GET', path)}: there is no such place", "invalid_request")
            found += many(page, "items")
            token = str(at(page, "metadata", "continue") or "")
            if not token:
                return found
        raise AgainLater(f"{self._named('GET', path)}: the listing has more than {PAGES_MAX} pages")

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Item | None = None,
        kind: str = "application/json",
    ) -> Item | None:
        """The answer; None where the path leads to nothing."""
        headers = {"Accept": "application/json"}
        word = await self._tokens.header()
        if word is not None:
            headers["Authorization"] = word
        if body is not None:
            headers["Content-Type"] = kind
        tls = self._tokens.tls
        try:
            async with self._session.request(
                method,
                self._access.server + path,
                params=query,
                data=None if body is None else json.dumps(body).encode(),
                headers=headers,
                ssl=tls if tls is not None else True,
                server_hostname=self._access.server_name if tls is not None else None,
                proxy=self._access.proxy,
                allow_redirects=False,
            ) as answer:
                raw = await whole(answer, str(answer.url.origin()), ANSWER_BYTES_MAX)
                status, after = answer.status, answer.headers.get("Retry-After")
        except aiohttp.ClientConnectorCertificateError as error:
            msg = f"{self._access.server} is not who the kubeconfig says: {error.certificate_error}"
            raise Refused(msg, "unauthorized") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = str(error) or f"no answer within {CALL_S_MAX:g} s"
            raise AgainLater(f"{self._named(method, path)}: {why}", DOWN_S) from error
        told = _json(raw)
        if 200 <= status < 300 and told is not None:
            return told
        if status == 404 and (told or {}).get("kind") != "Status":
            # Not the API: a proxy, or another server at its address, that knows of nothing at all.
            raise AgainLater(f"{self._named(method, path)}: HTTP 404 without a cluster's words", DOWN_S)
        if status == 404 and method != "POST":
            return None
        raise self._failed(status, told or {}, self._named(method, path), after)

    def _failed(self, status: int, told: Item, where: str, after: str | None) -> ProviderError:
        said = str(told.get("message") or told.get("reason") or "")[:TOLD_CHARS_MAX]
        text = f"{where}: {said or f'HTTP {status}'}"
        if status == 401:
            if self._tokens.forget():
                return AgainLater(
                    f"{where}: the credentials are no longer taken; they are asked for anew", 1.0
                )
            return Refused(
                f"{where}: the credentials are not taken ({said or 'unauthorized'})", "unauthorized"
            )
        if status == 403:
            if _QUOTA.search(said):
                return Refused(text, "quota")
            if _LIMIT.search(said):
                return Refused(text, "capability_mismatch")
            return Refused(text, "invalid_request" if _POLICY.search(said) else "unauthorized")
        if status == 409:
            return Conflict(text)
        if status in (400, 404, 405, 413, 415, 422):
            return Refused(text, "invalid_request", field=_cause(told))
        if status == 429:
            return AgainLater(text, _seconds(after))
        return AgainLater(text, _seconds(after) if after else DOWN_S)

    def _named(self, method: str, path: str) -> str:
        return f"{self._access.server} ({method} {path})"


@asynccontextmanager
async def calling(access: Access, tokens: Tokens) -> AsyncGenerator[Api]:
    """An API for the calls of one call to a provider, which share a connection."""
    timeout = aiohttp.ClientTimeout(total=CALL_S_MAX, connect=CONNECT_S_MAX)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as session:
        yield Api(session, access, tokens)


@asynccontextmanager
async def laying(
    access: Access, tokens: Tokens, path: str, port: int
) -> AsyncGenerator[aiohttp.ClientWebSocketResponse | None]:
    """A socket that leads to a port of the pod at ``path``; None: it is not there. Raises ProviderError."""
    word = await tokens.header()
    where = f"{access.server} (port-forward {path})"
    timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_S_MAX)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as session:
        try:
            async with asyncio.timeout(CALL_S_MAX):
                socket = await session.ws_connect(
                    f"{access.server}{path}/portforward",
                    params={"ports": str(port)},
                    protocols=(FORWARD_PROTOCOL,),
                    headers={} if word is None else {"Authorization": word},
                    ssl=tokens.tls if tokens.tls is not None else True,
                    server_hostname=access.server_name if tokens.tls is not None else None,
                    proxy=access.proxy,
                )
        except aiohttp.WSServerHandshakeError as error:
            if error.status == 404:
                yield None
                return
            if error.status == 401:
                tokens.forget()
            may = "; allow it pods/portforward (get, create)" if error.status in (401, 403) else ""
            raise AgainLater(f"{where}: HTTP {error.status}{may}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = str(error) or f"no answer within {CALL_S_MAX:g} s"
            raise AgainLater(f"{where}: {why}", DOWN_S) from error
        async with socket:
            yield socket


def part(text: str) -> str:
    """A name as one part of a path."""
    return quote(text, safe="")


def _json(raw: bytes) -> Item | None:
    try:
        told: object = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return mapping(told) if is_mapping(told) else None


def _cause(told: Item) -> str | None:
    """Which part of a manifest the API does not take."""
    fields = [cause.get("field") for cause in many(told, "details", "causes")]
    return next((str(field) for field in fields if field), None)


def _seconds(text: str | None) -> float:
    try:
        return min(max(float(text or BUSY_S), 1.0), 120.0)
    except ValueError:
        return BUSY_S
