"""The tunnel by which the nodes of a host reach a daemon that they cannot reach otherwise.

Decides: when it is made again, and that what comes through it is nobody's until it shows a token. Never:
looks into what passes through. Follows: it is there as long as somebody asks for it now and then; its address
on the host stands in a file there, so that the agents find it again wherever it is next.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from urllib.parse import urlsplit

import asyncssh
import structlog
from asyncssh.constants import OPEN_RESOURCE_SHORTAGE

from sky.kit import backoff
from sky.kit.lent import lent_connection
from sky.providers.ssh.failure import HostFailure
from sky.providers.ssh.hosts import Reached

LOOPBACK = "127.0.0.1"
CHUNK_BYTES = 64 * 1024
STREAMS_MAX = 512
CONNECT_SECONDS = 5.0
FIRST_SECONDS = 30.0
"""How long somebody waits for a tunnel that is being made."""
UNUSED_SECONDS = 300.0
"""For how long it stays when nobody has asked for it: its provider was removed."""
AGAIN_FIRST_S = 0.5
AGAIN_LONGEST_S = 10.0
Source = asyncssh.SSHReader[bytes] | asyncio.StreamReader
Target = asyncssh.SSHWriter[bytes] | asyncio.StreamWriter
_log = structlog.get_logger(__name__)
_FAILED = (OSError, asyncssh.Error, asyncssh.ChannelListenError, HostFailure, TimeoutError)


class Tunnel:
    """From a port of one host to this daemon, at ``daemon_url()``."""

    def __init__(self, host: Reached, daemon_url: Callable[[], str]) -> None:
        self._host = host
        self._daemon_url = daemon_url
        self._task: asyncio.Task[None] | None = None
        self._standing = asyncio.Event()
        self._failure: HostFailure | None = None
        self._tried = asyncio.Event()
        self._wanted_s = 0.0
        self._port = 0
        self._streams = 0
        self._telling: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where it is on the host."""
        return f"http://{LOOPBACK}:{self._port}"

    def want(self, told: str | None = None) -> None:
        """It is needed, now and for a while. ``told``: what the host has of its address."""
        self._wanted_s = asyncio.get_running_loop().time()
        if told is not None and self._standing.is_set() and f'"{self.url}"' not in told:
            self._telling = asyncio.create_task(self._tell())
        if self._task is None or self._task.done():
            self._tried.clear()
            self._task = asyncio.create_task(self._keep())

    async def stand(self) -> str:
        """Its address once it is there. Raises HostFailure when it cannot be made."""
        self.want()
        if not self._standing.is_set():
            self._tried.clear()
            waiting = [asyncio.create_task(event.wait()) for event in (self._standing, self._tried)]
            await asyncio.wait(waiting, timeout=FIRST_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()
        if self._standing.is_set():
            return self.url
        raise self._failure or HostFailure(f"host {self._host.name}: no tunnel within {FIRST_SECONDS:g} s")

    async def close(self) -> None:
        """Take it away."""
        tasks = [task for task in (self._task, self._telling) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self) -> None:
        """Make it, and make it again whenever it is lost, for as long as it is wanted."""
        loop = asyncio.get_running_loop()
        failures = 0
        while loop.time() - self._wanted_s < UNUSED_SECONDS:
            begun_s = loop.time()
            try:
                await self._once()
            except _FAILED as error:
                failure = error if isinstance(error, HostFailure) else HostFailure(self._why(error))
                if self._failure is None or self._failure.message != failure.message:
                    _log.warning("tunnel.lost", host=self._host.name, why=failure.message)
                self._failure = failure
            finally:
                self._standing.clear()
                self._tried.set()
            failures = 1 if loop.time() - begun_s > AGAIN_LONGEST_S else failures + 1
            await asyncio.sleep(backoff.delay_s(failures, first_s=AGAIN_FIRST_S, longest_s=AGAIN_LONGEST_S))

    async def _once(self) -> None:
        """One connection, from its making to its loss."""
        login = await self._host.another_login()
        try:
            listener = await self._listen(login.connection)
            self._port = listener.get_port()
            await self._host.ask(self._host.commands.tell(self.url))
            self._failure = None
            self._standing.set()
            _log.info("tunnel.stands", host=self._host.name, port=self._port)
            while asyncio.get_running_loop().time() - self._wanted_s < UNUSED_SECONDS:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(UNUSED_SECONDS / 10):
                        await login.connection.wait_closed()
                        return
        finally:
            await login.close()

    async def _listen(self, connection: asyncssh.SSHClientConnection) -> asyncssh.SSHListener:
        """At the same port as before, if that is to be had."""
        async with asyncio.timeout(FIRST_SECONDS):
            if self._port:
                with contextlib.suppress(asyncssh.ChannelListenError):
                    return await connection.start_server(self._accept, LOOPBACK, self._port, encoding=None)
            return await connection.start_server(self._accept, LOOPBACK, 0, encoding=None)

    async def _tell(self) -> None:
        """Say again where it is: another daemon, or somebody there, has said otherwise."""
        with contextlib.suppress(HostFailure):
            await self._host.ask(self._host.commands.tell(self.url))

    def _why(self, error: BaseException) -> str:
        if isinstance(error, asyncssh.ChannelListenError):
            return (
                f"host {self._host.name}: it forwards no ports ({error}); allow AllowTcpForwarding in "
                "its sshd_config, or name a daemon_url that it reaches"
            )
        return f"host {self._host.name}: the tunnel to the daemon is lost: {error}"

    def _accept(
        self, _host: str, _port: int
    ) -> Callable[[asyncssh.SSHReader[bytes], asyncssh.SSHWriter[bytes]], asyncio.Future[None]]:
        if self._streams >= STREAMS_MAX:
            raise asyncssh.ChannelOpenError(
                OPEN_RESOURCE_SHORTAGE, f"{STREAMS_MAX} connections are open already"
            )
        return lambda reader, writer: asyncio.ensure_future(self._carry(reader, writer))

    async def _carry(self, reader: asyncssh.SSHReader[bytes], writer: asyncssh.SSHWriter[bytes]) -> None:
        """One connection of somebody on the host, to the daemon and back."""
        self._streams += 1
        try:
            parts = urlsplit(self._daemon_url())
            host, port = parts.hostname or LOOPBACK, parts.port or 80
            async with lent_connection(host, port, CONNECT_SECONDS) as (answers, asks):
                try:
                    async with asyncio.TaskGroup() as both:
                        both.create_task(_pump(reader, asks))
                        both.create_task(_pump(answers, writer))
                except* _FAILED as failures:
                    raise failures.exceptions[0] from None
        except (OSError, asyncssh.Error, TimeoutError) as error:
            _log.debug("tunnel.stream_lost", host=self._host.name, why=str(error))
        finally:
            self._streams -= 1
            writer.close()


async def _pump(source: Source, target: Target) -> None:
    """All of one direction, as it comes, and then its end."""
    while content := await source.read(CHUNK_BYTES):
        target.write(content)
        await target.drain()
    if target.can_write_eof():
        target.write_eof()
