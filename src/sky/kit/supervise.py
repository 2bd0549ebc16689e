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


async def forever(
    name: str,
    work: Callable[[], Awaitable[None]],
    *,
    expected: type[Exception] | None = None,
    longest_s: float = 5.0,
) -> None:
    """Run ``work`` again and again: at once when it returns, after a growing delay when it raises.

    ``expected``: what it may raise without a defect, such as on a full disk; told in one line.
    """
    failures = 0
    while True:
        try:
            await work()
            failures = 0
        except Exception as error:
            failures += 1
            if expected is not None and isinstance(error, expected):
                _log.warning("background.failed", work=name, failures=failures, error=str(error))
            else:
                _log.exception("background.failed", work=name, failures=failures)
        await asyncio.sleep(backoff.delay_s(failures, first_s=0.1, longest_s=longest_s))
