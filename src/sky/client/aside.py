"""Blocking work beside an event loop, and telling when a blocking call would stop one.

Decides: that such work has a thread of its own (the loop's pool is small, and others may have filled it), and
what is said to who blocks a loop. Never: ends a thread; who gives up waiting leaves it to end by itself.
Follows: nothing here waits for a thread at exit, so a program that is interrupted ends.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def aside(work: Callable[[], T]) -> T:
    """Do ``work`` in a thread, and wait for it without blocking the loop. Raises what it raises."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if ended.done():
            return
        if error is not None:
            ended.set_exception(error)
        else:
            ended.set_result(value)

    def run() -> None:
        value: Any = None
        failed: BaseException | None = None
        try:
            value = work()
        except BaseException as error:
            failed = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, value, failed)

    threading.Thread(target=run, name="sky-aside", daemon=True).start()
    return await ended


def warn_if_blocking(what: str, instead: str) -> None:
    """Warn who is about to block a running event loop. A notebook's is always running, and may be blocked."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if "ipykernel" not in sys.modules:
        message = f"{what} waits, and the event loop that runs here stands still meanwhile: {instead}"
        warnings.warn(message, RuntimeWarning, stacklevel=_frames_of_ours())


def _frames_of_ours() -> int:
    """How far above who asks the caller's own line is, as ``warnings`` counts."""
    frame, depth = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("sky.client."):
        frame, depth = frame.f_back, depth + 1
    return depth
