"""Asks a console over HTTP: whose key that is, and to hold, charge and return money.

Decides: what counts as an answer: status 200 with a body of the right shape, in time. Never: tries again,
keeps an answer, or follows a redirect. Follows: whoever asks can say the same again, since each order carries
our own reference; an answer that was lost is had by asking once more.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from sky.domain.money import usd_text
from sky.kit.bounded import read_up_to
from sky.wire import console as wire

ANSWER_BYTES_MAX = 64 * 1024
CALLS_AT_ONCE_MAX = 64
REASON_CHARS_MAX = 200
USER_AGENT = "skyfleet-console-bridge/1"
Shape = TypeVar("Shape", bound=msgspec.Struct)


class Unavailable(Exception):
    """The console did not decide; the message says what came instead. The same may be asked again."""


class Disputed(Exception):
    """The console says of a hold what cannot be, such as that it never was. People have to look at it."""


class Bridge:
    """The console at ``url``. None: there is none, and every question says so. A call takes ``timeout_s`` at
    most, waiting for its turn included."""

    def __init__(self, url: str | None, token: str | None, timeout_s: float) -> None:
        self._url = None if url is None else url.rstrip("/")
        self._token = token or ""
        self.timeout_s = timeout_s
        self._turns = asyncio.Semaphore(CALLS_AT_ONCE_MAX)

    async def verify(self, key: str) -> wire.KeyAnswer:
        """Whose key that is. Raises Unavailable."""
        return await self._ask(wire.VERIFY, wire.KeyQuestion(key=key), wire.KeyAnswer)

    async def balance(self, owner: str) -> wire.BalanceAnswer:
        """What an account has. Raises Unavailable."""
        return await self._ask(wire.BALANCE, wire.BalanceQuestion(owner=owner), wire.BalanceAnswer)

    async def hold(self, reference: str, owner: str, amount_micro: int) -> wire.HoldAnswer:
        """Hold money of an account. Raises Unavailable."""
        order = wire.HoldOrder(reference=reference, owner=owner, amount_usd=usd_text(amount_micro))
        return await self._ask(wire.HOLDS, order, wire.HoldAnswer)

    async def extend(self, reference: str, extension: str, amount_micro: int) -> wire.HoldAnswer:
        """Hold more under a hold. Raises Unavailable."""
        order = wire.ExtendOrder(extension=extension, amount_usd=usd_text(amount_micro))
        return await self._ask(_path(reference, "extend"), order, wire.HoldAnswer)

    async def settle(self, reference: str, charge_micro: int) -> None:
        """Charge a part of a hold and return the rest. Raises Unavailable, Disputed."""
        order = wire.SettleOrder(charge_usd=usd_text(charge_micro))
        answer = await self._ask(_path(reference, "settle"), order, wire.OverAnswer)
        if answer.status != "settled" or answer.charge_usd != order.charge_usd:
            said = f"the console says of {reference}, to be charged {order.charge_usd} USD"
            raise Disputed(f"{said}: {answer.status}, {answer.charge_usd} USD")

    async def release(self, reference: str) -> None:
        """Return all of a hold; one that is not known will never be placed. Raises Unavailable, Disputed."""
        answer = await self._ask(_path(reference, "release"), None, wire.OverAnswer)
        if answer.status != "released":
            raise Disputed(f"the console says of {reference}, to be released: {answer.status}")

    async def _ask(self, path: str, question: msgspec.Struct | None, shape: type[Shape]) -> Shape:
        if self._url is None:
            raise Unavailable("no console is configured (setting console_url)")
        await asyncio.to_thread(importlib.import_module, "aiohttp")
        try:
            async with asyncio.timeout(self.timeout_s), self._turns:
                status, body = await self._post(self._url + path, question)
        except TimeoutError:
            raise Unavailable(f"no answer within {self.timeout_s:g} s") from None
        except (OSError, ValueError) as error:
            raise _unavailable(error) from error
        if status != 200:
            raise Unavailable(f"it answered with status {status}")
        try:
            return msgspec.json.decode(body, type=shape)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unavailable(f"its answer cannot be read: {error}"[:REASON_CHARS_MAX]) from error

    async def _post(self, url: str, question: msgspec.Struct | None) -> tuple[int, bytes]:
        import aiohttp

        headers = {
            "authorization": f"Bearer {self._token}",
            "content-type": "application/json",
            "user-agent": USER_AGENT,
        }
        body: Any = b"{}" if question is None else msgspec.json.encode(question)
        try:
            async with (
                aiohttp.ClientSession(trust_env=False) as session,
                session.post(url, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                content = await read_up_to(answer.content, ANSWER_BYTES_MAX + 1)
                if len(content) > ANSWER_BYTES_MAX:
                    raise ValueError(f"its answer is longer than {ANSWER_BYTES_MAX} bytes")
                return answer.status, content
        except TimeoutError:
            raise
        except aiohttp.ClientError as error:
            raise _unavailable(error) from error


def _unavailable(error: Exception) -> Unavailable:
    return Unavailable(f"{type(error).__name__}: {error}"[:REASON_CHARS_MAX])


def _path(reference: str, verb: str) -> str:
    return f"{wire.HOLDS}/{quote(reference, safe='')}/{verb}"
