"""Asking a container engine, over the HTTP interface that docker and podman share.

Decides: how long an answer may take, and what silence means. Never: repeats a question, keeps a connection,
or knows what a node is. Follows: an engine that accepts and never speaks delays only who asked it; what an
engine refuses is told in its own words.
"""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from sky.kit.bounded import read_up_to
from sky.providers.base import AgainLater, Refused
from sky.providers.container.place import Place

if TYPE_CHECKING:
    from aiohttp import BaseConnector, ClientResponse

CONNECT_SECONDS_MAX = 5.0
ANSWER_SECONDS_MAX = 30.0
ANSWER_BYTES_MAX = 16 * 1024 * 1024
MESSAGE_CHARS_MAX = 400
HTTP_OK_MAX = 399
GONE_WORDS = ("no such container", "no such volume")

T = TypeVar("T")


class Said(Exception):
    """The engine answered, and it was no. ``status`` is HTTP's; the message is the engine's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    @property
    def missing(self) -> bool:
        """What was named is not there.

        Podman answers 500 where a container goes while it is looked at, with the words of its 404.
        """
        return self.status == 404 or self.message.endswith(GONE_WORDS)


class Engine:
    """One engine. Raises AgainLater when it does not answer, Said when it refuses."""

    def __init__(self, place: Place) -> None:
        self.place = place

    async def get(self, path: str, kind: type[T], **query: Any) -> T:
        """What the engine knows under a path."""
        content = await self.ask("GET", path, query)
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.MsgspecError as error:
            message = f"what answers at {self.place} under {path} is no container engine: {error}"
            raise AgainLater(message) from error

    async def maybe(self, path: str, kind: type[T], **query: Any) -> T | None:
        """As ``get``; None where there is no such thing."""
        try:
            return await self.get(path, kind, **query)
        except Said as said:
            if said.missing:
                return None
            raise

    async def post(self, path: str, body: object = None, **query: Any) -> None:
        """Have the engine do something."""
        await self.ask("POST", path, query, None if body is None else json.dumps(body).encode())

    async def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        *,
        media: str = "application/json",
        seconds_max: float | None = None,
    ) -> bytes:
        """One question and the whole answer to it."""
        seconds_max = seconds_max or ANSWER_SECONDS_MAX
        async with self._answer(method, path, query, body, {"Content-Type": media}, seconds_max) as answer:
            content = await read_up_to(answer.content, ANSWER_BYTES_MAX + 1)
            if len(content) > ANSWER_BYTES_MAX:
                raise AgainLater(f"the engine at {self.place} says more than {ANSWER_BYTES_MAX} bytes")
        return content

    async def lines(
        self, path: str, query: Mapping[str, Any], headers: Mapping[str, str], seconds_max: float
    ) -> AsyncIterator[dict[str, Any]]:
        """What the engine tells while it does something."""
        async with self._answer("POST", path, query, None, headers, seconds_max) as answer:
            async for line in answer.content:
                if line.strip():
                    yield cast("dict[str, Any]", json.loads(line))

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: bytes | None,
        headers: Mapping[str, str],
        seconds_max: float,
    ) -> AsyncGenerator[ClientResponse]:
        await asyncio.to_thread(importlib.import_module, "aiohttp")
        import aiohttp

        place = self.place
        if place.path is not None:
            connector: BaseConnector = aiohttp.UnixConnector(place.path, force_close=True)
            base = "http://engine"
        else:
            connector = aiohttp.TCPConnector(ssl=place.tls or False, force_close=True)
            host = f"[{place.host}]" if ":" in (place.host or "") else place.host
            base = f"{'https' if place.tls else 'http'}://{host}:{place.port}"
        timeout = aiohttp.ClientTimeout(total=seconds_max, sock_connect=CONNECT_SECONDS_MAX)
        told = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=False) as session,
                session.request(method, base + path, params=told, data=body, headers=headers) as answer,
            ):
                if answer.status > HTTP_OK_MAX:
                    raise Said(answer.status, _message(await read_up_to(answer.content, ANSWER_BYTES_MAX)))
                yield answer
        except aiohttp.ClientConnectorCertificateError as error:
            message = f"the engine at {place} is not who ca vouches for: {error.certificate_error}"
            raise Refused(message, "unauthorized") from error
        except TimeoutError as error:
            raise AgainLater(f"the engine at {place} gave no answer within {seconds_max:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            said = str(error) or type(error).__name__
            raise AgainLater(f"the engine at {place} does not answer: {said}") from error


def _text(value: object) -> str:
    """A value as the engine reads it in a query."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value)


def _message(content: bytes) -> str:
    """The engine's own reason."""
    text = content.decode("utf-8", "replace")
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    found = cast("dict[str, Any]", told).get("message") if isinstance(told, dict) else None
    return (str(found) if found else text.strip() or "it does not say why")[:MESSAGE_CHARS_MAX]
