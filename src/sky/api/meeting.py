"""Where a client's request and a node's agent meet for one interactive session.

Decides: how the two are joined: a row tells the agent to dial this process, and it comes back under the
row's id. Never: looks into what they say. Follows: a session belongs to one request; when either side is
gone the other is told, and nothing of it is kept.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
from litestar.connection import WebSocket
from litestar.exceptions import WebSocketException

from sky.domain.errors import ComputeNotConnected
from sky.store.db import Database
from sky.verbs import rendezvous
from sky.wire import agent

MEET_SECONDS = 10.0
SEND_SECONDS = 600.0
"""How long a node may take nothing of what is sent to it: what it carries it to may read slowly."""
SESSION_SECONDS_MAX = 24 * 3600.0
PIECE_BYTES_MAX = 256 * 1024

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(agent.Session)


class SessionEndedError(Exception):
    """The node's side of the session is gone."""


class Session:
    """One session with a node. One reader and one writer at a time."""

    def __init__(self, socket: WebSocket[Any, Any, Any], node_id: str) -> None:
        self.node_id = node_id
        self.claimed = asyncio.Event()
        self.over = asyncio.Event()
        self.failure: str | None = None
        """Why it is over, where it did not end as it should."""
        self._socket = socket

    async def send(self, message: agent.Session) -> None:
        """Send one frame. Raises SessionEndedError."""
        if self.over.is_set():
            raise SessionEndedError
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self._socket.send_bytes(_encoder.encode(message))
        except (WebSocketException, RuntimeError, OSError, TimeoutError) as error:
            self._lost()
            raise SessionEndedError from error

    async def send_bytes(self, content: bytes) -> None:
        """Send content, in frames of a limited size."""
        for start in range(0, len(content), PIECE_BYTES_MAX):
            await self.send(agent.Data(content=content[start : start + PIECE_BYTES_MAX]))

    async def receive(self, timeout_s: float = SESSION_SECONDS_MAX) -> agent.Session | None:
        """The next frame; None when there will be no more. Raises TimeoutError."""
        if self.over.is_set():
            return None
        try:
            async with asyncio.timeout(timeout_s):
                raw = await self._socket.receive_bytes()
            return _decoder.decode(raw)
        except TimeoutError:
            raise
        except (WebSocketException, RuntimeError, OSError, msgspec.DecodeError):
            self._lost()
            return None

    def close(self) -> None:
        """Hang up."""
        self.over.set()

    def _lost(self) -> None:
        if not self.over.is_set() and self.failure is None:
            self.failure = f"the connection to node {self.node_id} was lost"
        self.over.set()


class Meetings:
    """The sessions that this process waits for."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[Session]] = {}

    async def meet(self, db: Database, url: str, node_id: str, ask: agent.Ask) -> Session:
        """Call a node's agent to this process and tell it what to do.

        Raises ComputeNotConnected when it does not come within MEET_SECONDS.
        """
        meeting_id = await db.write(lambda tx: rendezvous.begin(tx, node_id, url))
        try:
            async with asyncio.timeout(MEET_SECONDS):
                session = await self._place(meeting_id)
            session.claimed.set()
            await session.send(ask)
        except (TimeoutError, SessionEndedError):
            await db.write(lambda tx: rendezvous.close(tx, meeting_id))
            msg = f"node {node_id} did not answer within {MEET_SECONDS:g} s; try again once it is connected"
            raise ComputeNotConnected(msg, details={"node": node_id}, after_s=1.0) from None
        finally:
            self._waiting.pop(meeting_id, None)
        return session

    async def arrive(self, meeting_id: str, session: Session) -> None:
        """The agent has come: hand it over, and return when the session is over."""
        place = self._place(meeting_id)
        if place.done():
            return
        place.set_result(session)
        try:
            async with asyncio.timeout(MEET_SECONDS):
                await session.claimed.wait()
            async with asyncio.timeout(SESSION_SECONDS_MAX):
                await session.over.wait()
        except TimeoutError:
            session.close()
        finally:
            self._waiting.pop(meeting_id, None)

    def _place(self, meeting_id: str) -> asyncio.Future[Session]:
        place = self._waiting.get(meeting_id)
        if place is None:
            place = cast("asyncio.Future[Session]", asyncio.get_running_loop().create_future())
            self._waiting[meeting_id] = place
        return place
