"""Named knocks inside one process: "look again at this".

Decides: nothing. Never: carries a value, or promises that a knock is not lost.
Follows: whoever waits checks the truth first, waits with a deadline, and checks the truth again.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Listener:
    """One place that waits for one key. Use as a context manager, and check the truth after entering."""

    __slots__ = ("_event", "_key", "_signals")

    def __init__(self, signals: Signals, key: str) -> None:
        self._signals = signals
        self._key = key
        self._event = asyncio.Event()

    def __enter__(self) -> Self:
        self._signals.add(self._key, self._event)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._signals.remove(self._key, self._event)

    async def wait(self, timeout_s: float) -> bool:
        """Whether a knock came (since the last ``wait`` returned) within ``timeout_s`` seconds."""
        if not self._event.is_set():
            try:
                async with asyncio.timeout(timeout_s):
                    await self._event.wait()
            except TimeoutError:
                return False
        self._event.clear()
        return True


class Signals:
    """All the keys of a process, and who waits for each."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def listen(self, key: str) -> Listener:
        """A place to wait for ``key``."""
        return Listener(self, key)

    def fire(self, key: str) -> None:
        """Wake everybody who waits for ``key``."""
        for event in self._waiting.get(key, ()):
            event.set()

    def fire_all(self) -> None:
        """Wake everybody."""
        for key in list(self._waiting):
            self.fire(key)

    def add(self, key: str, event: asyncio.Event) -> None:
        """Called by a ``Listener`` as it begins to wait."""
        self._waiting.setdefault(key, set()).add(event)

    def remove(self, key: str, event: asyncio.Event) -> None:
        """Called by a ``Listener`` as it stops waiting."""
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.discard(event)
            if not waiting:
                del self._waiting[key]
