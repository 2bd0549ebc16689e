"""Experiments that take longer than a test of every run may: ``scripts/prove`` runs them.

Decides: what the real clock must show: a thousand readers at once, a stream that outlives its key by seconds.
Never: runs with the other tests; its name is none that pytest looks for.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from tests.conftest import RunningDaemon, free_port
from tests.jobs.conftest import SETTINGS
from tests.jobs.shop import CATALOGUE, ROOT, Shop, body
from tests.proof import record

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

READERS = 1_000
AT_ONCE = 50
EVENTS = 20
CREATED = b"event: compute.created"
DEADLINE_S = 60.0
REVOKED_S_MAX = 30.0


@pytest.fixture
def selling(tmp_path: Path) -> Iterator[RunningDaemon]:
    """A daemon that sells."""
    (tmp_path / "catalogue.yaml").write_text(CATALOGUE)
    settings = {**SETTINGS, "SKY_CATALOGUE": str(tmp_path / "catalogue.yaml")}
    running = RunningDaemon(tmp_path, free_port(), environment=settings)
    running.start()
    yield running
    running.stop()


def test_a_stream_ends_when_its_key_is_revoked(selling: RunningDaemon) -> None:
    shop = Shop(selling.url)
    customer = shop.customer()
    command = ["sh", "-c", "while true; do echo still; sleep 0.5; done"]
    job = customer.submit(body(spec__command=command, spec__max_runtime_seconds=600)).json()["id"]
    headers = {"authorization": f"Bearer {customer.key}"}
    url = f"{ROOT}/jobs/{job}/logs"
    with httpx2.stream(
        "GET", f"{selling.url}{url}", params={"follow": "true"}, headers=headers, timeout=DEADLINE_S
    ) as answer:
        lines = answer.iter_lines()
        while next(lines) != "data: still":
            continue
        [key] = shop.operate("GET", f"/accounts/{customer.account}/keys")["items"]
        shop.operate("DELETE", f"/keys/{key['id']}")
        since = time.monotonic()
        told = sum(line == "data: still" for line in lines)
        took_s = time.monotonic() - since
    assert took_s <= REVOKED_S_MAX
    assert customer("GET", f"/jobs/{job}").status_code == 401
    record(stream_ended_after_s=round(took_s, 1), lines_meanwhile=told)


class Reader:
    """One reader of the event stream, which counts."""

    def __init__(self) -> None:
        self.told = 0
        self.there = asyncio.Event()
        self.all = asyncio.Event()

    async def run(self, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"GET /v1/events?types=compute.created HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"
        writer.write(head.encode())
        await reader.readuntil(b"\r\n\r\n")
        self.there.set()
        try:
            while line := await reader.readline():
                self.told += line.startswith(CREATED)
                if self.told >= EVENTS:
                    self.all.set()
        finally:
            writer.close()


async def crowd(daemon: RunningDaemon) -> tuple[list[int], float]:
    """What each of a thousand readers is told, and how long the last one waited for the last event."""
    readers = [Reader() for _ in range(READERS)]
    running: list[asyncio.Task[None]] = []
    async with asyncio.timeout(4 * DEADLINE_S):
        for first in range(0, READERS, AT_ONCE):
            some = readers[first : first + AT_ONCE]
            running += [asyncio.create_task(one.run(daemon.port)) for one in some]
            for one in some:
                await one.there.wait()
        spec = {"specs": [{"provider": {"kind": "local"}}], "nodes": {"desired": 0, "min": 0, "max": 1}}
        async with httpx2.AsyncClient(base_url=daemon.url, timeout=DEADLINE_S, trust_env=False) as http:
            for _ in range(EVENTS):
                assert (await http.post("/v1/computes", json={"spec": spec})).status_code == 201
        since = time.monotonic()
        for one in readers:
            await one.all.wait()
        took_s = time.monotonic() - since
    for task in running:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*running, return_exceptions=True)
    return [one.told for one in readers], took_s


def test_a_thousand_readers_are_told_everything(own_daemon: RunningDaemon) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))
    told, took_s = asyncio.run(crowd(own_daemon))
    assert set(told) == {EVENTS}
    record(readers=READERS, events_each=EVENTS, missed=0, last_one_told_after_ms=round(took_s * 1000))
