"""Interactive sessions: the agent dials a rendezvous and serves there what it is asked for.

Decides: how many at once, what each kind is served by, and that nothing of a session outlives it.
Never: keeps a session alive that nobody is at the other end of, or ends one that is only read slowly.
Follows: a session that fails says why in its last frame and harms no call and no other session. Pings keep a
silent one open; that its peer is gone is left to the kernel to find out, because a peer that is held up by
its own reader does not answer pings.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Awaitable, Callable, Mapping

import aiohttp
import msgspec

from sky.agent import session_commands, session_files, session_forward
from sky.agent.connection import close
from sky.agent.log import say
from sky.agent.session import Ended, Line, Place, SessionFailed
from sky.agent.settings import Settings
from sky.wire.agent import Ask, Dial, Exit

SESSIONS_MAX = 512
REFUSALS_MAX = 64
"""How many are told at once that there are too many; others find out by waiting."""
CONNECT_S = 10.0
ASK_S = 10.0
PING_S = 15.0
KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
CLOSE_S = 2.0
MESSAGE_BYTES_MAX = 64 * 1024 * 1024

Serve = Callable[[Line, Ask, Place], Awaitable[Exit]]
_KINDS: Mapping[str, Serve] = {
    "exec": session_commands.execute,
    "shell": session_commands.shell,
    "list": session_files.list_folder,
    "remove": session_files.remove,
    "upload": session_files.upload,
    "download": session_files.download,
    "forward": session_forward.forward,
}


class Sessions:
    """The sessions of the node."""

    def __init__(
        self, settings: Settings, session: Callable[[], aiohttp.ClientSession], environment: Mapping[str, str]
    ) -> None:
        self._settings = settings
        self._session = session
        self._tasks: set[asyncio.Task[None]] = set()
        self._place = Place(home=settings.home, work=settings.work, environment=environment)

    def set_environment(self, environment: Mapping[str, str]) -> None:
        """From now on commands get these variables."""
        self._place = msgspec.structs.replace(self._place, environment=environment)

    def dial(self, message: Dial) -> None:
        """Go to a rendezvous, if only to say that too many are under way."""
        if len(self._tasks) >= SESSIONS_MAX + REFUSALS_MAX:
            say("too many sessions; one is not served", rendezvous=message.rendezvous, most=SESSIONS_MAX)
            return
        task = asyncio.create_task(self._meet(message, full=len(self._tasks) >= SESSIONS_MAX))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """End every session."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)

    async def _meet(self, message: Dial, *, full: bool) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                connection = await self._session().ws_connect(
                    f"{self._settings.meeting(message.url)}/agent/v1/rendezvous/{message.rendezvous}",
                    headers={
                        "Authorization": f"Bearer {self._settings.token()}",
                        "X-Sky-Node": self._settings.node,
                    },
                    max_msg_size=MESSAGE_BYTES_MAX,
                )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            say("a rendezvous cannot be reached", rendezvous=message.rendezvous, error=str(error))
            return
        line = Line(connection)
        _keep_alive(connection)
        pings = asyncio.create_task(_ping(connection))
        try:
            await line.send(await self._serve(line, full=full))
        except (aiohttp.ClientError, ConnectionError, Ended):
            return
        finally:
            pings.cancel()
            await close(connection)

    async def _serve(self, line: Line, *, full: bool) -> Exit:
        try:
            async with asyncio.timeout(ASK_S):
                ask = await line.ask()
            if full:
                raise SessionFailed(f"the node serves {SESSIONS_MAX} sessions already; end some first")
            return await _KINDS[ask.kind](line, ask, self._place)
        except SessionFailed as error:
            return Exit(code=1, error=str(error), missing=error.missing)
        except FileNotFoundError as error:
            return Exit(code=1, error=f"there is no {error.filename}", missing=True)
        except (OSError, TimeoutError) as error:
            if isinstance(error, ConnectionError):
                raise
            if getattr(error, "errno", None) == errno.ENAMETOOLONG:
                told = "the path, or a name in it, is too long for the disk of the node; choose a shorter one"
                return Exit(code=1, error=told)
            return Exit(code=1, error=str(error) or type(error).__name__)


def _keep_alive(connection: aiohttp.ClientWebSocketResponse) -> None:
    """Have the kernel find out when the other end is gone."""
    raw = connection.get_extra_info("socket")
    if raw is None:
        return
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        if hasattr(socket, name):
            raw.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def _ping(connection: aiohttp.ClientWebSocketResponse) -> None:
    """Say something now and then, for proxies on the way that end what is silent."""
    with contextlib.suppress(aiohttp.ClientError, ConnectionError):
        while True:
            await asyncio.sleep(PING_S)
            await connection.ping()
