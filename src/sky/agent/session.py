"""What every kind of session has: a line to the other end, and the place it works in.

Decides: how frames are read and written. Never: acts on one.
Follows: writing waits for the other end to read, so no session buffers more than a few frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import aiohttp
import msgspec

from sky.wire.agent import Ask, Data, Eof, Exit, Resize, Session

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Session] = msgspec.msgpack.Decoder(Session)


OPENED = Data(content=b"")
"""Said once what was asked for is there (a terminal, a connection), since the other side may speak first."""


class Ended(Exception):
    """Nobody is at the other end any more."""


class SessionFailed(Exception):
    """What was asked for cannot be done; the message says why. ``missing``: the path is not there."""

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


class Place(msgspec.Struct, frozen=True):
    """Where a session works."""

    home: Path
    work: Path
    environment: Mapping[str, str]


class Line:
    """The frames of one session, both ways."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def send(self, frame: Session) -> None:
        """Write one frame. Raises ``Ended`` when nobody reads."""
        try:
            await self._socket.send_bytes(_encoder.encode(frame))
        except (aiohttp.ClientError, ConnectionError) as error:
            raise Ended from error

    async def receive(self) -> Data | Resize | Eof:
        """The next frame of the other end. Raises ``Ended``."""
        message = await self._socket.receive()
        if message.type is not aiohttp.WSMsgType.BINARY:
            raise Ended
        try:
            frame = _decoder.decode(message.data)
        except msgspec.MsgspecError as error:
            raise Ended from error
        if isinstance(frame, Ask | Exit):
            raise Ended
        return frame

    async def ask(self) -> Ask:
        """The first frame. Raises ``Ended``, ``SessionFailed``."""
        message = await self._socket.receive()
        if message.type is not aiohttp.WSMsgType.BINARY:
            raise Ended
        try:
            frame = _decoder.decode(message.data)
        except msgspec.MsgspecError as error:
            raise SessionFailed(f"the agent does not understand what is asked: {error}") from error
        if not isinstance(frame, Ask):
            raise SessionFailed("the first frame of a session must ask for something")
        return frame

    async def gone(self) -> None:
        """Returns when the other end has left; what it says meanwhile is not wanted."""
        try:
            while True:
                await self.receive()
        except Ended:
            return
