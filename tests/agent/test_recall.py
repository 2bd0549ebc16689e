"""Whether the machine is about to be taken back, as a metadata service says that does not always say it well.

Decides: what is asked again, and what is told. Never: runs an agent; ``providers/test_aws_node`` does.
Follows: whatever the service answers, the node goes on.
"""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web

from sky.agent import recall
from sky.wire.agent import Recall

NOTICE = '{"action": "terminate", "time": "2026-11-30T21:00:00Z"}'
TOKENS = ["<html>\r\nlog in\r\n</html>", "", "token"]
NOTICES = [(500, "down"), (200, "<html>"), (200, "\xff"), (200, "[]"), (401, ""), (404, ""), (200, NOTICE)]


async def test_whatever_is_answered_it_is_asked_again_until_there_is_a_notice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recall, "EVERY_S", 0.01)
    tokens, notices = iter(TOKENS), iter(NOTICES)

    async def token(_: web.Request) -> web.Response:
        return web.Response(text=next(tokens, "token"))

    async def notice(request: web.Request) -> web.Response:
        if request.headers["X-aws-ec2-metadata-token"] != "token":
            return web.Response(status=401)
        status, text = next(notices)
        return web.Response(status=status, body=text.encode("latin-1"))

    app = web.Application()
    app.router.add_put("/latest/api/token", token)
    app.router.add_get("/latest/meta-data/spot/instance-action", notice)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    told: list[Recall] = []
    try:
        async with aiohttp.ClientSession() as session, asyncio.timeout(30):
            host, port = runner.addresses[0][:2]
            await recall.watch(f"http://{host}:{port}", session, told.append)
    finally:
        await runner.cleanup()
    assert [one.reason for one in told] == ["spot_interruption"]
    assert told[0].message == "its provider is to terminate it at 2026-11-30T21:00:00Z"
