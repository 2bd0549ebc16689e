"""Whether the machine is about to be taken back, as its metadata service says some two minutes before.

Decides: how often it is asked, in the way of Amazon's second version (a token first). Never: runs where the
machine was not told to ask, or takes silence for a notice. Follows: a notice is told once, and then nobody
asks any more: it is not taken back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp
import msgspec

from sky.agent.log import say
from sky.kit.bounded import read_up_to
from sky.wire.agent import Recall

EVERY_S = 5.0
ASK_S_MAX = 3.0
TOKEN_S = 21_600
BYTES_MAX = 4096
_OK, _NOTHING = 200, 404


class _Notice(msgspec.Struct):
    action: str
    time: str


async def watch(base: str, session: aiohttp.ClientSession, told: Callable[[Recall], None]) -> None:
    """Ask at ``base`` until there is a notice, and tell it."""
    token, silent = "", False
    while True:
        try:
            async with asyncio.timeout(ASK_S_MAX):
                token = token or await _token(base, session)
                status, content = await _asked(base, session, token)
            notice = _read(content) if status == _OK else None
            if status not in (_OK, _NOTHING):
                token = ""
            silent = False
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            # ValueError: it is not to be read, or a token that no header can have.
            notice, token = None, ""
            if not silent:
                say(
                    "the machine's metadata service gives no answer that can be used",
                    url=base,
                    error=repr(error),
                )
            silent = True
        if notice is not None:
            message = f"its provider is to {notice.action} it at {notice.time}"
            say("the machine is about to be taken back", notice=message)
            told(Recall(reason="spot_interruption", message=message))
            return
        await asyncio.sleep(EVERY_S)


async def _token(base: str, session: aiohttp.ClientSession) -> str:
    headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_S)}
    async with session.put(f"{base}/latest/api/token", headers=headers) as answer:
        answer.raise_for_status()
        return (await read_up_to(answer.content, BYTES_MAX)).decode("ascii", "replace").strip()


async def _asked(base: str, session: aiohttp.ClientSession, token: str) -> tuple[int, bytes]:
    url = f"{base}/latest/meta-data/spot/instance-action"
    async with session.get(url, headers={"X-aws-ec2-metadata-token": token}) as answer:
        return answer.status, await read_up_to(answer.content, BYTES_MAX)


def _read(content: bytes) -> _Notice:
    return msgspec.json.decode(content, type=_Notice)
