"""Sends a signed event to an address that a customer named, and trusts that address with nothing.

Decides: where a connection may go: https to public addresses, each address of a name looked at, connected
to the one that was looked at. Never: follows a redirect, reads a long answer, or waits for ever.
Follows: an address that turns into a private one between two looks is never connected to.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from sky.kit import addresses

TIMEOUT_S = 15.0
ANSWER_BYTES_MAX = 64 * 1024
ANSWER_S = 1.0
"""How long is read what comes after a status. The status is the answer; the rest is read so that the receiver
can end properly, and its end is not waited for."""
REASON_CHARS_MAX = 200
USER_AGENT = "skyfleet-webhooks/1"


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a try: the status that came back, or why none did. ``hung``: nothing came in time."""

    status: int | None
    error: str | None
    hung: bool = False

    @property
    def taken(self) -> bool:
        """Whether the receiver has it."""
        return self.status is not None and 200 <= self.status < 300


class NotPublicError(OSError):
    """A name leads to an address that nothing is sent to."""


class PublicResolver(AbstractResolver):
    """Looks names up, and refuses one of whose addresses any is not public."""

    def __init__(self, *, loopback: bool) -> None:
        self._loopback = loopback
        self._inner = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a name. Raises NotPublicError, OSError."""
        found = await self._inner.resolve(host, port, family)
        for one in found:
            check_address(one["host"], loopback=self._loopback)
        return found

    async def close(self) -> None:
        """Let go of what looks names up."""
        await self._inner.close()


def check_address(text: str, *, loopback: bool) -> None:
    """Refuse an address that is not public. Raises NotPublicError."""
    if loopback and ipaddress.ip_address(text.partition("%")[0]).is_loopback:
        return
    if not addresses.is_public(text):
        raise NotPublicError(f"{text} is no public address")


def signature(secrets: Sequence[str], message_id: str, timestamp: int, body: bytes) -> str:
    """The signatures of a message, one per secret, as Standard Webhooks spells them."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return " ".join(
        "v1,"
        + base64.b64encode(
            hmac.new(base64.b64decode(secret.removeprefix("whsec_")), signed, hashlib.sha256).digest()
        ).decode()
        for secret in secrets
    )


def _reason(error: Exception) -> str:
    """Why a message could not be sent, as its sender may know it."""
    for one in (error, error.__cause__, getattr(error, "os_error", None)):
        if isinstance(one, NotPublicError):
            return str(one)
    return f"{type(error).__name__}: {error}"[:REASON_CHARS_MAX]


class Sender:
    """Sends messages, each over a connection of its own."""

    def __init__(self, *, loopback: bool) -> None:
        self._loopback = loopback

    async def send(
        self, url: str, message_id: str, timestamp: int, body: bytes, secrets: Sequence[str]
    ) -> Sent:
        """POST a message; says what became of it, and raises nothing that the receiver can cause."""
        headers = {
            "content-type": "application/json",
            "user-agent": USER_AGENT,
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature(secrets, message_id, timestamp, body),
        }
        try:
            connector = aiohttp.TCPConnector(
                resolver=PublicResolver(loopback=self._loopback),
                force_close=True,
                use_dns_cache=False,
                socket_factory=self._socket,
            )
            timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
            async with (
                aiohttp.ClientSession(
                    connector=connector, timeout=timeout, trust_env=False, auto_decompress=False
                ) as session,
                session.post(url, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
                    async with asyncio.timeout(ANSWER_S):
                        await answer.content.read(ANSWER_BYTES_MAX)
                return Sent(answer.status, None if answer.status < 300 else f"answered {answer.status}")
        except TimeoutError:
            return Sent(None, f"no answer within {TIMEOUT_S:g} s", hung=True)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Sent(None, _reason(error))

    def _socket(self, info: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
        """A socket for one address, which is looked at here whoever named it: one that is written in digits,
        of whatever script, is asked of no resolver."""
        family, kind, protocol, _, where = info
        check_address(str(where[0]), loopback=self._loopback)
        return socket.socket(family, kind, protocol)
