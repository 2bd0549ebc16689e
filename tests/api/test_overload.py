"""More than a daemon can take: it says so at once, with a time to come back, and is well again by itself.

Decides: what is answered while as many writes wait as may. Never: opens a socket; it is the application of a
daemon, called from inside of this process, whose writer the test keeps busy.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import httpx2
from tests.api.conftest import idle_spec
from tests.proof import record
from tests.store.test_db import hold

from sky.api.app import build_app
from sky.kit.clock import SteadyClock, SystemClock
from sky.providers.registry import standard
from sky.server import settings, wiring
from sky.store.line import WRITES_WAITING_MAX
from sky.store.migrate import upgrade

ASKED = 20
HOST = "http://127.0.0.1:7590"
DEADLINE_S = 60.0


async def test_more_writes_than_may_wait_are_told_when_to_come_back(tmp_path: Path) -> None:
    chosen = settings.load({"home": str(tmp_path)}, {})
    upgrade(chosen.database_url)
    daemon = wiring.build(chosen, SteadyClock(SystemClock()), standard(), lambda: HOST)
    daemon.db.start()
    app: Any = build_app(daemon.services)
    await daemon.runner.stop()

    async def of_owner(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "state": {"peer_uid": os.getuid()}}, receive, send)

    try:
        async with (
            asyncio.timeout(DEADLINE_S),
            httpx2.AsyncClient(transport=httpx2.ASGITransport(of_owner), base_url=HOST) as http,
        ):
            held, first = await hold(daemon.db)
            waiting = [
                asyncio.create_task(daemon.db.write(lambda tx: None)) for _ in range(WRITES_WAITING_MAX)
            ]
            await asyncio.sleep(0)
            began = time.monotonic()
            spec = {"spec": idle_spec()}
            refused = [await http.post("/v1/computes", json=spec) for _ in range(ASKED)]
            took_s = time.monotonic() - began
            for answer in refused:
                told = answer.json()
                assert (answer.status_code, told["code"], told["retryable"]) == (503, "busy", True)
                assert int(answer.headers["retry-after"]) >= 1
            read = await http.get("/v1/computes")
            assert (read.status_code, read.json()["items"]) == (200, []), (
                "reads go on, and nothing is written"
            )
            held.go.set()
            await asyncio.gather(first, *waiting)
            taken = [await http.post("/v1/computes", json=spec) for _ in range(ASKED)]
            assert [answer.status_code for answer in taken] == [201] * ASKED
    finally:
        daemon.db.close()
    record(
        writes_waiting=WRITES_WAITING_MAX, refused_503=ASKED, refused_each_in_ms=round(took_s * 1e3 / ASKED)
    )
