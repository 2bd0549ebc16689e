"""A connection between an agent and a daemon, as the network has it: late, cut, or broken on one side only.

Decides: when a message arrives, in the order in which it was sent. Never: reads one.
Follows: the daemon's end is a socket to the real code that serves agents (``api/agent/connect``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

CLOSED = 1006


class Line:
    """One connection. ``hear`` and ``lost`` are the agent's; ``cut``: nothing arrives, in no direction."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        delay_s: float,
        hear: Callable[[bytes], None],
        lost: Callable[[int], None],
    ) -> None:
        self._loop = loop
        self._delay_s = delay_s
        self._hear = hear
        self._lost = lost
        self.cut = False
        self.agent_gone = False
        self.daemon_gone = False
        self._up: deque[bytes | None] = deque()
        self._down: deque[bytes | int] = deque()
        self._inbox: deque[bytes | None] = deque()
        self._reader: asyncio.Future[None] | None = None

    # ── the network ─────────────────────────────────────────────────────────────────────────────

    def _send(self, queue: deque[Any], message: Any, deliver: Callable[[], None]) -> None:
        queue.append(message)
        if not self.cut:
            if self._delay_s:
                self._loop.call_later(self._delay_s, deliver)
            else:
                self._loop.call_soon(deliver)

    def heal(self) -> None:
        """What was sent meanwhile arrives now."""
        self.cut = False
        for _ in range(len(self._up)):
            self._loop.call_soon(self._deliver_up)
        for _ in range(len(self._down)):
            self._loop.call_soon(self._deliver_down)

    def _deliver_up(self) -> None:
        if self._up and not self.cut:
            self._inbox.append(self._up.popleft())
            if self._reader is not None and not self._reader.done():
                self._reader.set_result(None)

    def _deliver_down(self) -> None:
        if self._down and not self.cut:
            message = self._down.popleft()
            if self.agent_gone:
                return
            if isinstance(message, int):
                self.agent_gone = True
                self._lost(message)
            else:
                self._hear(message)

    # ── the agent's end ─────────────────────────────────────────────────────────────────────────

    def say(self, content: bytes) -> None:
        """Send to the daemon."""
        if not self.agent_gone:
            self._send(self._up, content, self._deliver_up)

    def leave(self) -> None:
        """The agent is gone, or has had enough of this connection."""
        if not self.agent_gone:
            self.agent_gone = True
            self._send(self._up, None, self._deliver_up)

    # ── the daemon's end ────────────────────────────────────────────────────────────────────────

    def break_off(self) -> None:
        """The daemon is gone."""
        if not self.daemon_gone:
            self.daemon_gone = True
            self._send(self._down, CLOSED, self._deliver_down)

    def hang_up(self, code: int) -> None:
        """The daemon closes, and says why."""
        if not self.daemon_gone:
            self.daemon_gone = True
            self._send(self._down, code, self._deliver_down)

    def tell(self, content: bytes) -> None:
        """Send to the agent."""
        if self.daemon_gone:
            raise ConnectionResetError("this end is closed")
        self._send(self._down, content, self._deliver_down)

    async def heard(self) -> bytes:
        """The next message of the agent."""
        while not self._inbox:
            self._reader = self._loop.create_future()
            await self._reader
        content = self._inbox.popleft()
        if content is None or self.daemon_gone:
            raise ConnectionResetError("the agent is gone")
        return content


class Socket:
    """The daemon's end as the code of its door has it: the few things that it does with a socket."""

    def __init__(self, line: Line, unit: Any, node_id: str, token: str) -> None:
        self._line = line
        headers = [(b"x-sky-node", node_id.encode()), (b"authorization", f"Bearer {token}".encode())]
        self.scope = {"headers": headers, "extensions": None}
        self.app = SimpleNamespace(state={"unit": unit})

    async def accept(self) -> None:
        """Nothing has to be agreed on."""

    async def receive_bytes(self) -> bytes:
        return await self._line.heard()

    async def send_bytes(self, content: bytes) -> None:
        self._line.tell(content)

    async def send(self, message: Any) -> None:
        self._line.hang_up(message["code"])
