"""Who stops in the middle: a submit that is interrupted before its answer, and a seller who is not there."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from tests import waiting
from tests.conftest import RunningDaemon, free_port
from tests.jobs.shop import Customer
from tests.jobs.test_sdk import Between

import sky

WAIT_S = 60.0
JOB = {"sku": "cpu", "image": "local", "command": ["sleep", "600"], "max_runtime_seconds": 600}
SUBMITS = f"""
import sys, sky
sky.Jobs(sys.argv[1], sys.argv[2]).submit(**{JOB!r}, idempotency_key=sys.argv[3] or None)
"""


class Held(Between):
    """The same wire, which keeps the first answer for itself until it may ``go``."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.held, self.go = threading.Event(), threading.Event()

    def _pump(self, source: Any, target: Any, answers: bool) -> None:
        if answers and not self.held.is_set():
            self.held.set()
            self.go.wait(WAIT_S)
        super()._pump(source, target, answers)


@pytest.fixture
def held(selling: RunningDaemon) -> Iterator[Held]:
    with Held(selling.port) as between:
        yield between
        between.go.set()


def states(customer: Customer) -> list[str]:
    return [job["status"] for job in customer("GET", "/jobs").json()["data"]]


@pytest.mark.parametrize("key", ["", "mine"])
def test_a_submit_that_is_interrupted_is_taken_back_unless_its_key_is_the_callers(
    customer: Customer, held: Held, key: str
) -> None:
    script = subprocess.Popen(
        [sys.executable, "-c", SUBMITS, held.url, customer.key, key],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SKY_HOME": "nowhere"},
    )
    try:
        waiting.until(lambda: states(customer), "the seller has it", WAIT_S)
        script.send_signal(signal.SIGINT)
        told = script.communicate(timeout=WAIT_S)[1]
    finally:
        script.kill()
        script.wait()
    assert script.returncode == -signal.SIGINT, told
    if key:
        [state] = states(customer)
        assert state not in {"cancelled", "failed"}, "the same key finds it again"
        customer("POST", f"/jobs/{customer('GET', '/jobs').json()['data'][0]['id']}/cancel")
    waiting.until(lambda: states(customer) == ["cancelled"], "it is cancelled, and there is no other", WAIT_S)


async def test_an_awaited_submit_that_is_cancelled_is_taken_back(customer: Customer, held: Held) -> None:
    async with sky.AsyncJobs(held.url, customer.key) as jobs:
        asking = asyncio.create_task(jobs.submit(**JOB))
        await asyncio.to_thread(waiting.until, lambda: states(customer), "the seller has it", WAIT_S)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        assert asking.cancelled()
    await asyncio.to_thread(
        waiting.until, lambda: states(customer) == ["cancelled"], "it is cancelled", WAIT_S
    )


def test_a_seller_who_never_answered_is_not_waited_for() -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    began_s = time.monotonic()
    with pytest.raises(sky.DaemonUnreachable, match="SKY_URL"):
        sky.Jobs(nowhere, "key").balance()

    async def awaited() -> None:
        async with sky.AsyncJobs(nowhere, "key") as jobs:
            await jobs.balance()

    with pytest.raises(sky.DaemonUnreachable, match="SKY_URL"):
        asyncio.run(awaited())
    assert time.monotonic() - began_s < 45, "one alone waits for a minute where it has patience"
