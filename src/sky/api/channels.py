"""Two requests that make one connection: what goes up to a node, and what comes down from it.

Decides: how they find each other (both name the same ``cid``) and how the connection ends.
Never: looks at the bytes. Follows: each direction may end before the other, as with any connection; when
a client's half breaks, or the node hangs up, the whole is over. What cannot be opened is refused to both
halves; what breaks later is cut off for the one that receives, and refused to the one that sends.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from sky.api.meeting import Session, SessionEndedError
from sky.api.stream import CutShort
from sky.domain.errors import ComputeNotConnected, InvalidRequest, NotFound, SkyError
from sky.wire import agent

PAIR_SECONDS = 30.0
CONNECT_SECONDS = 45.0
PAIRS_MAX = 10_000
OPEN_SECONDS = 8.0
"""How long a node's word is waited for that it has opened what was asked for."""
ENDS_MAX = 10_000
"""How many connections are remembered that have ended."""

Key = tuple[str, str, str]
"""Kind of connection, id of the compute, ``cid``."""


@dataclass(slots=True)
class _Pair:
    up: asyncio.Event = field(default_factory=asyncio.Event)
    down: asyncio.Event = field(default_factory=asyncio.Event)
    made: asyncio.Event = field(default_factory=asyncio.Event)
    session: Session | None = None
    refused: SkyError | None = None
    halves: int = 0


class Channels:
    """The connections that run through this process."""

    def __init__(self, pair_s: float = PAIR_SECONDS) -> None:
        self._pair_s = pair_s
        self._pairs: dict[Key, _Pair] = {}
        self._ends: OrderedDict[Key, agent.Exit | None] = OrderedDict()
        self._turn = 0

    def __len__(self) -> int:
        return len(self._pairs)

    def turn(self, many: int) -> int:
        """Whose turn it is among ``many`` nodes."""
        self._turn += 1
        return self._turn % many

    async def up(
        self, key: Key, connect: Callable[[], Awaitable[Session]], body: AsyncIterator[bytes]
    ) -> None:
        """Carry ``body`` to the node; returns when all of it was sent or the connection is over."""
        pair = self._join(key, "up")
        try:
            await self._wait(pair.down, key, "down")
            try:
                session = await connect()
            except SkyError as error:
                pair.refused = error
                raise
            pair.session = session
            pair.made.set()
            await _carry(session, body)
        finally:
            pair.made.set()
            self._leave(key, pair)

    async def down(self, key: Key) -> AsyncIterator[bytes]:
        """What comes from the node. The connection is made before this returns."""
        pair = self._join(key, "down")
        try:
            await self._wait(pair.up, key, "up")
            async with asyncio.timeout(CONNECT_SECONDS):
                await pair.made.wait()
            if pair.refused is not None:
                raise pair.refused
            if pair.session is None:
                raise self._alone(key, "up")
            first = await self._opened(key, pair.session)
        except TimeoutError:
            self._leave(key, pair)
            raise self._alone(key, "up") from None
        except BaseException:
            self._leave(key, pair)
            raise
        return self._down(key, pair, pair.session, first)

    async def _opened(self, key: Key, session: Session) -> agent.Session | None:
        """What the node says first, if it does so soon. Raises ComputeNotConnected: it could not."""
        try:
            first = await session.receive(OPEN_SECONDS)
        except TimeoutError:
            return agent.Data(content=b"")
        if first is None or (isinstance(first, agent.Exit) and first.error is not None):
            self._over(key, session, first)
            session.close()
            raise _failed(session)
        return first

    async def _down(
        self, key: Key, pair: _Pair, session: Session, message: agent.Session | None
    ) -> AsyncIterator[bytes]:
        halved = False
        try:
            while True:
                if isinstance(message, agent.Data):
                    if message.content:
                        yield message.content
                elif isinstance(message, agent.Eof):
                    halved = pair.halves == 2
                    return
                elif message is None or isinstance(message, agent.Exit):
                    self._over(key, session, message)
                    if session.failure is not None:
                        raise CutShort
                    return
                message = await session.receive()
        finally:
            if not halved:
                session.close()
            self._leave(key, pair)

    def _over(self, key: Key, session: Session, message: agent.Exit | None) -> None:
        """The node has told how it ended, or will not any more."""
        if message is not None and message.error is not None:
            session.failure = message.error
        self._ends[key] = message
        while len(self._ends) > ENDS_MAX:
            self._ends.popitem(last=False)

    def end(self, key: Key) -> agent.Exit | None:
        """How a connection has ended: as the node says, or None when it was lost. Raises KeyError."""
        return self._ends[key]

    def session(self, key: Key) -> Session | None:
        """The connection of that name, once it is made."""
        pair = self._pairs.get(key)
        return None if pair is None else pair.session

    def _join(self, key: Key, half: str) -> _Pair:
        pair = self._pairs.get(key)
        if pair is None:
            if len(self._pairs) >= PAIRS_MAX:
                msg = f"more than {PAIRS_MAX} connections are open"
                raise InvalidRequest(msg, details={"field": "cid", "expected": "fewer connections"})
            pair = self._pairs[key] = _Pair()
            self._ends.pop(key, None)
        event = pair.up if half == "up" else pair.down
        if event.is_set():
            msg = f"cid {key[2]!r} is in use for {half}; choose another for a new connection"
            raise InvalidRequest(msg, details={"field": "cid", "value": key[2], "expected": "an unused cid"})
        event.set()
        pair.halves += 1
        return pair

    def _leave(self, key: Key, pair: _Pair) -> None:
        pair.halves -= 1
        if pair.halves > 0:
            return
        if self._pairs.get(key) is pair:
            del self._pairs[key]
        if pair.session is not None:
            pair.session.close()

    async def _wait(self, other: asyncio.Event, key: Key, half: str) -> None:
        try:
            async with asyncio.timeout(self._pair_s):
                await other.wait()
        except TimeoutError:
            raise self._alone(key, half) from None

    def _alone(self, key: Key, half: str) -> NotFound:
        return NotFound(
            f"no {key[0]}/{half} with cid {key[2]!r} came within {self._pair_s:g} s; "
            "open both halves with the same cid",
            details={"cid": key[2]},
        )


async def _carry(session: Session, body: AsyncIterator[bytes]) -> None:
    """Send ``body`` to its end or to the session's. Raises ComputeNotConnected when the node gave up."""
    over = asyncio.ensure_future(session.over.wait())
    try:
        while True:
            piece = asyncio.ensure_future(_next(body))
            await asyncio.wait({piece, over}, return_when=asyncio.FIRST_COMPLETED)
            if over.done():
                piece.cancel()
                await asyncio.gather(piece, return_exceptions=True)
                break
            content = piece.result()
            if content is None:
                await session.send(agent.Eof())
                break
            await session.send_bytes(content)
    except SessionEndedError:
        pass
    except BaseException:
        session.close()
        raise
    finally:
        over.cancel()
    if session.failure is not None:
        raise _failed(session)


def _failed(session: Session) -> ComputeNotConnected:
    why = session.failure or f"the connection to node {session.node_id} was lost"
    return ComputeNotConnected(why, details={"node": session.node_id})


async def _next(body: AsyncIterator[bytes]) -> bytes | None:
    return await anext(body, None)
