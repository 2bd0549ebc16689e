"""Doubles of what providers speak to, beside a daemon that is another process.

Decides: that a double serves from a thread with a loop of its own, and has ended when its block has.
Never: knows which double it is.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

Double = TypeVar("Double", bound=AbstractAsyncContextManager[Any])
BEGUN_S = 30.0
ENDED_S = 30.0


@contextmanager
def running_beside(double: Double) -> Iterator[Double]:
    """The double, for as long as the block runs."""
    begun, ended = threading.Event(), threading.Event()

    async def serve() -> None:
        async with double:
            begun.set()
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="double")
    thread.start()
    try:
        assert begun.wait(BEGUN_S)
        yield double
    finally:
        ended.set()
        thread.join(ENDED_S)
