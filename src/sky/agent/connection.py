"""The one WebSocket to a daemon: made, used, lost, made again, for as long as the agent lives.

Decides: when to connect again and what is said first on every connection.
Never: keeps anything of its own; what must be told is the reporter's, what must be done the agent's.
Follows: losing the connection means nothing. Everything a daemon says counts as having heard from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Protocol

import aiohttp
import msgspec

from sky.agent.log import say
from sky.agent.reporter import Reporter
from sky.agent.settings import Settings
from sky.kit import backoff
from sky.wire.agent import FromDaemon, Heard, Hello, Ping, Stop, Welcome

HTTP_FORBIDDEN = 403
CLOSED_OVER = 4403
OVER_TIMES = 2
"""So often in a row a daemon must say that this node is over, for its agent to end."""
RECONNECT_FIRST_S = 0.05
RECONNECT_LONGEST_S = 2.0
LASTING_S = 2.0
"""A connection that ends sooner was no success: the next one waits longer, however well this one began."""
CONNECT_S = 10.0
WELCOME_S = 10.0
HEARTBEAT_S = 10.0
CLOSE_S = 1.0
MESSAGE_BYTES_MAX = 256 * 1024 * 1024
PING_SECONDS_MIN = 0.05

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[FromDaemon] = msgspec.msgpack.Decoder(FromDaemon)
_FAILURES = (aiohttp.ClientError, OSError, TimeoutError, msgspec.MsgspecError)


class Over(aiohttp.ClientError):
    """A daemon says that this node has ended."""


class Listener(Protocol):
    """Who is told what a daemon says. ``handle`` never waits."""

    def hello(self) -> Hello: ...

    def ping(self) -> Ping: ...

    def welcome(self, message: Welcome) -> None: ...

    def handle(self, message: FromDaemon) -> None: ...


class Connection:
    """The agent's line to whichever daemon is there."""

    def __init__(
        self,
        settings: Settings,
        session: Callable[[], aiohttp.ClientSession],
        reporter: Reporter,
        listener: Listener,
    ) -> None:
        self._settings = settings
        self._session = session
        self._reporter = reporter
        self._listener = listener
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._others: tuple[str, ...] = ()
        self._tries = 0
        self.heard_at_s = time.monotonic()

    async def run(self) -> None:
        """Connect, serve, and connect again; never returns."""
        failures = over = 0
        while True:
            begun = time.monotonic()
            try:
                await self._serve()
                over, ended = 0, "the daemon hung up"
            except _FAILURES as error:
                over, ended = over + 1 if _says_over(error) else 0, _words(error)
                if over >= OVER_TIMES:
                    self._listener.handle(Stop(reason="the daemon says that this node is over"))
            finally:
                self._socket = None
            failures = 1 if time.monotonic() - begun > LASTING_S else failures + 1
            if failures in (1, 10):
                say("no connection to the daemon", url=self._settings.daemon_url(), error=ended)
            await asyncio.sleep(
                backoff.delay_s(failures, first_s=RECONNECT_FIRST_S, longest_s=RECONNECT_LONGEST_S)
            )

    async def renew(self) -> None:
        """Say hello again, on a new connection."""
        if self._socket is not None:
            await close(self._socket)

    async def _serve(self) -> None:
        """One connection, from hello to its loss. Each try goes to the next of the addresses there are."""
        known = self._settings.addresses(self._others)
        url = known[self._tries % len(known)]
        self._tries += 1
        async with asyncio.timeout(CONNECT_S):
            socket = await self._session().ws_connect(
                f"{url}/agent/v1/connect",
                headers={
                    "Authorization": f"Bearer {self._settings.token()}",
                    "X-Sky-Node": self._settings.node,
                },
                heartbeat=HEARTBEAT_S,
                max_msg_size=MESSAGE_BYTES_MAX,
            )
        try:
            await socket.send_bytes(_encoder.encode(self._listener.hello()))
            async with asyncio.timeout(WELCOME_S):
                welcome = self._decoded(await socket.receive())
            if socket.close_code == CLOSED_OVER:
                raise Over("the daemon hung up: this node is over")
            if not isinstance(welcome, Welcome):
                raise aiohttp.ClientError("the daemon did not say welcome")
            self._socket = socket
            self._tries, self._others = 0, welcome.daemons
            self._settings.note_connected(url)
            self._listener.welcome(welcome)
            self._reporter.heard(welcome.heard)
            await self._converse(socket, welcome)
        finally:
            await close(socket)

    async def _converse(self, socket: aiohttp.ClientWebSocketResponse, welcome: Welcome) -> None:
        tasks = (
            asyncio.create_task(self._send_reports(socket)),
            asyncio.create_task(self._send_pings(socket, max(PING_SECONDS_MIN, welcome.ping_seconds))),
        )
        try:
            while True:
                message = self._decoded(await socket.receive())
                if message is None:
                    return
                if isinstance(message, Heard):
                    self._reporter.heard(message.number)
                else:
                    self._listener.handle(message)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _decoded(self, received: aiohttp.WSMessage) -> FromDaemon | None:
        """What was said; None when the connection has ended."""
        if received.type is not aiohttp.WSMsgType.BINARY:
            return None
        self.heard_at_s = time.monotonic()
        return _decoder.decode(received.data)

    async def _send_reports(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        reporter = self._reporter
        content = reporter.again()
        while True:
            if content is not None:
                await socket.send_bytes(content)
            reporter.wake.clear()
            content = reporter.next()
            if content is None:
                await reporter.wake.wait()

    async def _send_pings(self, socket: aiohttp.ClientWebSocketResponse, seconds: float) -> None:
        while True:
            await socket.send_bytes(_encoder.encode(self._listener.ping()))
            await asyncio.sleep(seconds)


async def close(socket: aiohttp.ClientWebSocketResponse) -> None:
    """Close politely, and in any case soon."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            await socket.close()


def _says_over(error: BaseException) -> bool:
    """Whether a daemon that knows this node says that it has ended."""
    if isinstance(error, Over):
        return True
    return isinstance(error, aiohttp.WSServerHandshakeError) and error.status == HTTP_FORBIDDEN


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
