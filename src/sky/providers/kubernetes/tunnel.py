"""The lines by which the agent of a pod reaches a daemon that it cannot dial: laid by port-forward.

Decides: how many lines wait in a pod, and when one is laid anew. Never: looks into what passes through.
Follows: what comes through a line is nobody's until it shows a token; lines are there as long as somebody
asks for them now and then, and end when there is no such pod any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from urllib.parse import urlsplit

import aiohttp
import structlog

from sky.kit import backoff
from sky.kit.lent import lent_connection
from sky.providers.base import ProviderError
from sky.providers.kubernetes.api import CONNECT_S_MAX
from sky.providers.kubernetes.relay import ANSWERS, ASKS

SPARE = 3
"""Lines that wait in a pod to be taken."""
STREAMS_MAX = 128
WAITS_S_MAX = 120.0
"""After how long a line that nobody has taken is laid anew: what stands between may have let it go."""
UNUSED_S = 300.0
AGAIN_FIRST_S = 0.5
AGAIN_LONGEST_S = 5.0
CHUNK_BYTES = 32 * 1024
DATA = b"\0"
LOOPBACK = "127.0.0.1"
_FAILED = (OSError, aiohttp.ClientError, ProviderError, TimeoutError)
_log = structlog.get_logger(__name__)
Lay = Callable[[], AbstractAsyncContextManager[aiohttp.ClientWebSocketResponse | None]]


class LineFailure(OSError):
    """A line that could not be laid, in the cluster's words."""


class Line:
    """One connection to a port of a pod: two channels in one socket, the second of them for failures."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._begun: set[int] = set()

    async def read(self) -> bytes:
        """What came next; empty when the line has ended. Raises LineFailure."""
        while True:
            message = await self._socket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                return b""
            content: bytes = message.data
            channel, rest = content[0] if content else 0, content[1:]
            if channel not in self._begun:
                # The first of each channel is the port's number alone.
                self._begun.add(channel)
                continue
            if channel == 1:
                raise LineFailure(rest.decode(errors="replace").strip() or "the cluster has ended it")
            if rest:
                return rest

    async def write(self, content: bytes) -> None:
        await self._socket.send_bytes(DATA + content)


class Tunnel:
    """The lines of one pod."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lay: Lay
        self._daemon_url: Callable[[], str]
        self._wanted_s = 0.0
        self._keeping: list[asyncio.Task[None]] = []
        self._carrying: set[asyncio.Task[None]] = set()
        self.failure: str | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing of it is left."""
        return not self._carrying and all(task.done() for task in self._keeping)

    def want(self, lay: Lay, daemon_url: Callable[[], str]) -> None:
        """It is needed, now and for a while. ``lay`` opens a line; ``daemon_url`` is where they lead. Both
        hold from now on: what opened a line before may have credentials that are taken no more."""
        self._lay, self._daemon_url = lay, daemon_url
        self._wanted_s = asyncio.get_running_loop().time()
        living = [task for task in self._keeping if not task.done()]
        more = [asyncio.create_task(self._keep()) for _ in range(SPARE - len(living))]
        self._keeping = living + more

    async def _keep(self) -> None:
        """Have one line wait, as long as it is wanted and the pod is there."""
        loop = asyncio.get_running_loop()
        failures = 0
        while loop.time() - self._wanted_s < UNUSED_S:
            if len(self._carrying) >= STREAMS_MAX:
                await asyncio.wait(self._carrying, return_when=asyncio.FIRST_COMPLETED)
                continue
            try:
                if not await self._wait():
                    return
                failures = 0
            except _FAILED as error:
                self._note(str(error) or type(error).__name__)
                failures += 1
                wait_s = backoff.delay_s(failures, first_s=AGAIN_FIRST_S, longest_s=AGAIN_LONGEST_S)
                await asyncio.sleep(wait_s)

    def _note(self, why: str) -> None:
        if why != self.failure:
            _log.warning("tunnel.lost", pod=self._name, why=why)
        self.failure = why

    async def _wait(self) -> bool:
        """Lay one line and wait until the agent wants it, which then has it; False: there is no such pod."""
        async with contextlib.AsyncExitStack() as opened:
            socket = await opened.enter_async_context(self._lay())
            if socket is None:
                return False
            line = Line(socket)
            try:
                async with asyncio.timeout(WAITS_S_MAX):
                    asked = await line.read()
            except TimeoutError:
                return True
            if asked != ASKS:
                raise LineFailure("the line has ended before anybody took it")
            self.failure = None
            task = asyncio.create_task(self._carry(line, opened.pop_all()))
            self._carrying.add(task)
            task.add_done_callback(self._carrying.discard)
        return True

    async def _carry(self, line: Line, opened: contextlib.AsyncExitStack) -> None:
        """One connection of the agent's, to the daemon and back, until either end closes."""
        parts = urlsplit(self._daemon_url())
        try:
            async with (
                opened,
                lent_connection(parts.hostname or LOOPBACK, parts.port or 80, CONNECT_S_MAX) as (
                    reader,
                    writer,
                ),
            ):
                await line.write(ANSWERS)
                both = [
                    asyncio.create_task(_up(line, writer)),
                    asyncio.create_task(_down(reader, line)),
                ]
                try:
                    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in both:
                        task.cancel()
                    await asyncio.gather(*both, return_exceptions=True)
        except _FAILED as error:
            _log.debug("tunnel.stream_lost", pod=self._name, why=str(error))


async def _up(line: Line, writer: asyncio.StreamWriter) -> None:
    while content := await line.read():
        writer.write(content)
        await writer.drain()


async def _down(reader: asyncio.StreamReader, line: Line) -> None:
    while content := await reader.read(CHUNK_BYTES):
        await line.write(content)


_Known = dict[tuple[str, str], Tunnel]
_tunnels: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Known] = weakref.WeakKeyDictionary()


def of(provider_id: str, pod_uid: str, name: str) -> Tunnel:
    """The tunnel of a pod, whichever object of its provider has made it."""
    known = _tunnels.setdefault(asyncio.get_running_loop(), {})
    for key in [key for key, tunnel in known.items() if tunnel.ended and key != (provider_id, pod_uid)]:
        del known[key]
    return known.setdefault((provider_id, pod_uid), Tunnel(name))
