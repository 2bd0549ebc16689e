"""Commands on a node: one that runs to its end, and a shell at a real terminal.

Decides: what a command is run by, and what its exit code is (127: not found; 128 + n: ended by signal n).
Never: leaves a process of a session behind. Follows: Ctrl-C, job control and window size work in a shell
because the kernel's terminal does them.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import pty
import struct
import termios
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Literal

from sky.agent.leftovers import kill_session
from sky.agent.session import OPENED, Ended, Line, Place, SessionFailed
from sky.wire.agent import Ask, Data, Eof, Exit, Resize

READ_BYTES = 32 * 1024
LAST_OUTPUT_S = 0.25
"""How long output may stand still after a command has ended, when something it started holds the pipe."""
LAST_OUTPUT_MAX_S = 60.0
"""How long output is still read then, however much of it comes."""
SIDE_MAX = 10_000
_ON_TERMINAL = 'exec <>"$0" >&0 2>&0; exec "$@"'
"""A session leader that opens a terminal gets it as its own: no code of ours runs between fork and exec."""


def _exit(code: int) -> Exit:
    return Exit(code=code if code >= 0 else 128 - code)


async def _until(work: Awaitable[Exit], gone: Awaitable[None]) -> Exit:
    """The end of ``work``, or ``Ended`` if the other end leaves before."""
    tasks = (asyncio.ensure_future(work), asyncio.ensure_future(gone))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise Ended
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Flow:
    """Output on its way: how many pieces have gone, and how many wait for the other end to take them."""

    def __init__(self) -> None:
        self._gone = 0
        self._going = 0

    async def send(self, line: Line, frame: Data) -> None:
        """Send a piece."""
        self._going += 1
        try:
            await line.send(frame)
        finally:
            self._going -= 1
            self._gone += 1

    async def rest(self, readers: Iterable[asyncio.Future[None]]) -> None:
        """Until what was written before the end has been sent; a slow other end is waited for."""
        waiting = set(readers)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_OUTPUT_MAX_S):
                gone = -1
                while waiting and (self._going or gone != self._gone):
                    gone = self._gone
                    done, waiting = await asyncio.wait(waiting, timeout=LAST_OUTPUT_S)
                    for reader in done:
                        reader.result()


async def execute(line: Line, ask: Ask, place: Place) -> Exit:
    """Run a command without input; its output is sent as it comes."""
    if ask.command is None:
        raise SessionFailed("a command is needed")
    async with _pipe() as (stdout, stdout_end), _pipe() as (stderr, stderr_end):
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            ask.command,
            stdin=DEVNULL,
            stdout=stdout_end,
            stderr=stderr_end,
            env=dict(place.environment),
            cwd=place.work,
            start_new_session=True,
        )
        os.close(stdout_end)
        os.close(stderr_end)
        try:
            return await _until(_follow(line, process, stdout, stderr), line.gone())
        finally:
            kill_session(process.pid)
            await process.wait()


@asynccontextmanager
async def _pipe() -> AsyncGenerator[tuple[asyncio.StreamReader, int], None]:
    """A pipe of which we read one end and close the other ourselves.

    Not a pipe of asyncio's own, for which a process has not ended while anybody holds its output.
    """
    read_end, write_end = os.pipe()
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", 0)
    )
    try:
        yield reader, write_end
    finally:
        transport.close()


async def _follow(
    line: Line, process: Process, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader
) -> Exit:
    flow = _Flow()
    relays = [
        asyncio.ensure_future(_relay(line, stdout, "stdout", flow)),
        asyncio.ensure_future(_relay(line, stderr, "stderr", flow)),
    ]
    try:
        code = await process.wait()
        kill_session(process.pid)
        await flow.rest(relays)
        return _exit(code)
    finally:
        for relay in relays:
            relay.cancel()
        await asyncio.gather(*relays, return_exceptions=True)


async def _relay(
    line: Line, pipe: asyncio.StreamReader, name: Literal["stdout", "stderr"], flow: _Flow
) -> None:
    while content := await pipe.read(READ_BYTES):
        await flow.send(line, Data(content=content, stream=name))


class _Terminal:
    """A pseudo-terminal: ``leader`` is our side, ``name`` the path of the other."""

    def __init__(self, columns: int, rows: int) -> None:
        self.leader, self._follower = pty.openpty()
        self.name = os.ttyname(self._follower)
        os.set_blocking(self.leader, False)
        self.resize(columns, rows)

    def resize(self, columns: int, rows: int) -> None:
        """It has another size now."""
        size = (max(1, min(SIDE_MAX, side)) for side in (rows, columns))
        fcntl.ioctl(self.leader, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))

    def hang_up(self) -> None:
        """Nobody of ours holds the other side: reading ends when what was written is read."""
        if self._follower >= 0:
            os.close(self._follower)
            self._follower = -1

    def close(self) -> None:
        """Give it back."""
        self.hang_up()
        os.close(self.leader)


async def shell(line: Line, ask: Ask, place: Place) -> Exit:
    """A command, or the user's shell, at a terminal of its own."""
    command = ["/bin/sh", "-c", ask.command] if ask.command else [_login_shell(), "-i"]
    terminal = _Terminal(ask.columns, ask.rows)
    try:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            _ON_TERMINAL,
            terminal.name,
            *command,
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
            env={**place.environment, "TERM": ask.term},
            cwd=place.work,
            start_new_session=True,
        )
        try:
            await line.send(OPENED)
            return await _until(_show(line, process, terminal), _type(line, terminal))
        finally:
            kill_session(process.pid)
            await process.wait()
    finally:
        terminal.close()


def _login_shell() -> str:
    for candidate in (os.environ.get("SHELL", ""), "/bin/bash"):
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    return "/bin/sh"


async def _show(line: Line, process: Process, terminal: _Terminal) -> Exit:
    """Send what the terminal shows until the shell has ended and all of it was sent."""
    flow = _Flow()
    reading = asyncio.ensure_future(_screen(line, terminal.leader, flow))
    try:
        code = await process.wait()
        kill_session(process.pid)
        terminal.hang_up()
        await flow.rest([reading])
        return _exit(code)
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _screen(line: Line, leader: int, flow: _Flow) -> None:
    while True:
        await _able(leader, reading=True)
        try:
            content = os.read(leader, READ_BYTES)
        except BlockingIOError:
            continue
        except OSError as error:
            if error.errno == errno.EIO:
                return
            raise
        if not content:
            return
        await flow.send(line, Data(content=content))


async def _type(line: Line, terminal: _Terminal) -> None:
    """Write what is typed at the other end; returns when that has left."""
    try:
        while True:
            frame = await line.receive()
            match frame:
                case Data():
                    await _write(terminal.leader, frame.content)
                case Resize():
                    terminal.resize(frame.columns, frame.rows)
                case Eof():
                    await _write(terminal.leader, b"\x04")
    except Ended:
        return


async def _write(leader: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        try:
            left = left[os.write(leader, left) :]
        except BlockingIOError:
            await _able(leader, reading=False)


async def _able(fd: int, *, reading: bool) -> None:
    """Until the descriptor can be read or written."""
    loop = asyncio.get_running_loop()
    able = loop.create_future()
    add: Callable[..., None] = loop.add_reader if reading else loop.add_writer
    remove: Callable[[int], bool] = loop.remove_reader if reading else loop.remove_writer
    add(fd, lambda: None if able.done() else able.set_result(None))
    try:
        await able
    finally:
        remove(fd)
