"""Keeps background work alive: the listed place for a broad ``except``.

Decides: what happens when a background coroutine raises (it is logged and begun again, with backoff).
Never: hides a failure, or catches ``BaseException`` (a cancel, or a death that a test arranged).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from sky.kit import backoff

_log = structlog.get_logger(__name__)


async def forever(name: str, work: Callable[[], Awaitable[None]], *, longest_s: float = 5.0) -> None:
    """Run ``work`` again and again: at once when it returns, after a growing delay when it raises."""
    failures = 0
    while True:
        try:
            await work()
            failures = 0
        except Exception:
            failures += 1
            _log.exception("background.failed", work=name, failures=failures)
        await asyncio.sleep(backoff.delay_s(failures, first_s=0.1, longest_s=longest_s))
