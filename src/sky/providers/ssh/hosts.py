"""One host: the connection to it, and what it was last seen to have.

Decides: when a connection is made anew, and for how long a host that did not answer is not asked again.
Never: waits for another host, or knows what a command does. Follows: every call ends in time, in an answer
or a ``HostFailure``; a connection that is lost means nothing to the nodes, which work on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import asyncssh

from sky.kit import backoff
from sky.providers.ssh.access import Access, Login
from sky.providers.ssh.commands import Answer, Commands, Facts, Seen
from sky.providers.ssh.failure import HostFailure
from sky.wire.hosts import Host, Place

ANSWER_BYTES_MAX = 8 * 1024 * 1024
BRING_SECONDS_MAX = 90.0
AGAIN_FIRST_S = 1.0
AGAIN_LONGEST_S = 15.0

T = TypeVar("T")
_LOST = (OSError, asyncssh.Error, TimeoutError)


@dataclass
class Remembered:
    """What a host was last seen to have."""

    facts: Facts | None = None
    nodes: dict[str, Seen] = field(default_factory=dict[str, Seen])


@dataclass
class _Silence:
    """Failures in a row, and until when the last of them stands for all further ones."""

    failures: int = 0
    until_s: float = 0.0
    last: HostFailure | None = None


@dataclass
class Reached:
    """A host of a pool, ``way`` being the places that lead to it, itself the last."""

    host: Host
    way: tuple[Place, ...]
    commands: Commands
    access: Access
    call_seconds: float
    remembered: Remembered = field(default_factory=Remembered)
    _login: Login | None = None
    _silence: _Silence = field(default_factory=_Silence)
    _connecting: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def address(self) -> str:
        """Where its nodes are."""
        return self.way[-1].address

    @property
    def fingerprint(self) -> str:
        """Of the key that it has shown; empty while there is no connection."""
        return self._login.fingerprint if self._login is not None else ""

    async def ask(self, text: str) -> Answer:
        """Have its shell read ``text``. Raises HostFailure; ``sent``: it may have been carried out."""
        return Answer(self.name, await self._run("sh -s", text.encode(), self.call_seconds))

    async def bring(self, path: str, content: bytes, *, runs: bool = False) -> None:
        """Write a file below our folder there. Raises HostFailure."""
        await self._run(self.commands.bring(path, runs=runs), content, BRING_SECONDS_MAX)

    async def another_login(self) -> Login:
        """A connection for something that lasts. Raises HostFailure."""
        return await self._guarded(lambda: self.access.connect(self.way))

    async def close(self) -> None:
        """Let go of the connection."""
        login, self._login = self._login, None
        if login is not None:
            await login.close()

    async def _run(self, command: str, given: bytes, seconds: float) -> str:
        login = await self._logged_in()
        try:
            async with asyncio.timeout(seconds):
                done = await login.connection.run(command, input=given, encoding=None)
        except _LOST as error:
            # Whether it was carried out is not known, and nothing more is heard on this connection.
            await self._lost(login)
            said = (
                f"does not answer within {seconds:g} s"
                if isinstance(error, TimeoutError)
                else f"is lost: {error}"
            )
            raise HostFailure(f"host {self.way[-1].shown} {said}", sent=True) from error
        out, err = _text(done.stdout), _text(done.stderr)
        if len(out) > ANSWER_BYTES_MAX:
            raise HostFailure(f"host {self.name}: its answer is too long ({len(out)} bytes)", sent=True)
        if done.exit_status != 0:
            words = (err.strip() or out.strip()).splitlines()
            last = words[-1][:300] if words else f"exit code {done.exit_status}"
            raise HostFailure(f"host {self.name}: a command failed: {last}", code="capacity", sent=True)
        return out

    async def _logged_in(self) -> Login:
        """The connection, made if there is none. Nothing was sent when this raises HostFailure."""
        async with self._connecting:
            if self._login is not None and not self._login.is_closed():
                return self._login
            await self.close()
            self._login = await self._guarded(lambda: self.access.connect(self.way))
            return self._login

    async def _lost(self, login: Login) -> None:
        if self._login is login:
            await self.close()
        else:
            await login.close()

    async def _guarded(self, connect: Callable[[], Awaitable[T]]) -> T:
        """A host that has just failed is not tried again at once: nobody waits for it twice."""
        now_s = asyncio.get_running_loop().time()
        silence = self._silence
        if silence.last is not None and now_s < silence.until_s:
            last = silence.last
            raise HostFailure(last.message, code=last.code, field=last.field)
        try:
            made = await connect()
        except HostFailure as failure:
            silence.failures += 1
            silence.last = failure
            wait_s = backoff.delay_s(silence.failures, first_s=AGAIN_FIRST_S, longest_s=AGAIN_LONGEST_S)
            silence.until_s = asyncio.get_running_loop().time() + wait_s
            raise
        self._silence = _Silence()
        return made


async def each(hosts: list[Reached], ask: Callable[[Reached], Awaitable[T]]) -> list[T | HostFailure]:
    """The same of every host, all at once."""

    async def one(host: Reached) -> T | HostFailure:
        try:
            return await ask(host)
        except HostFailure as failure:
            return failure

    return list(await asyncio.gather(*(one(host) for host in hosts)))


async def first(
    hosts: list[Reached], ask: Callable[[Reached], Awaitable[T | None]]
) -> tuple[T | None, list[HostFailure]]:
    """The first answer that is one, without waiting for the others; else who has failed."""
    failures: list[HostFailure] = []

    async def one(host: Reached) -> T | None:
        try:
            return await ask(host)
        except HostFailure as failure:
            failures.append(failure)
            return None

    asked = [asyncio.create_task(one(host)) for host in hosts]
    try:
        for done in asyncio.as_completed(asked):
            found = await done
            if found is not None:
                return found, failures
    finally:
        for task in asked:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*asked, return_exceptions=True)
    return None, failures


def _text(value: object) -> str:
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value or "")
