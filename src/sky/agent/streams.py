"""What user code writes with ``print``, ``logging`` and ``sys.stderr``, told to the agent as whole lines.

Decides: to which call a line belongs, where a line ends, and the order of lines against bytes that went
straight to descriptors 1 and 2 (subprocesses; those the agent reads from pipes).
Never: keeps a finished line back: each is written at once, so a crash loses none.
Follows: a writer is as fast as the agent reads; a process that user code forks writes to the pipes.
"""

from __future__ import annotations

import codecs
import ctypes
import fcntl
import io
import os
import sys
import termios
import threading
import time
from contextvars import ContextVar
from typing import Any

from sky.agent.frames import Wrote
from sky.agent.lines import LINE_CHARS_MAX, chopped
from sky.agent.port import Port

FRAME_CHARS_MAX = 256 * 1024
ORDER_WAIT_S = 0.005
"""How long a line waits for the agent to read what subprocesses wrote before it."""
ORDER_POLL_S = 0.0002

STDOUT, STDERR = 1, 2


class Sink:
    """Unfinished lines of one call (``seq`` 0: of no call)."""

    __slots__ = ("partial", "seq")

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.partial = {STDOUT: "", STDERR: ""}


def unread(fd: int) -> bool:
    """Whether bytes that were written to a pipe have not been read (or, where that is unknown, may not)."""
    count = bytearray(4)
    try:
        fcntl.ioctl(fd, termios.FIONREAD, count)
    except OSError:
        return True
    return any(count)


class Router:
    """Sends lines to the agent under the number of the call that wrote them."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._lock = threading.RLock()
        self._current: ContextVar[Sink | None] = ContextVar("sky_sink", default=None)
        self._idle = Sink(0)
        self._detached = False
        self._libc = ctypes.CDLL(None)
        self.alone: Sink | None = None

    def enter(self, sink: Sink) -> None:
        """In this context, what is written belongs to ``sink``."""
        self._current.set(sink)

    def write(self, stream: int, text: str) -> None:
        """Take some text; sends what is a whole line by now."""
        if self._detached:
            os.write(stream, text.encode("utf-8", "backslashreplace"))
            return
        with self._lock:
            sink = self._current.get() or self.alone or self._idle
            pending = sink.partial[stream] + text
            cut = pending.rfind("\n") + 1
            sink.partial[stream] = pending[cut:]
            if cut:
                self._send(sink, stream, pending[:cut])
            while len(sink.partial[stream]) > LINE_CHARS_MAX:
                line = sink.partial[stream][:LINE_CHARS_MAX]
                sink.partial[stream] = sink.partial[stream][LINE_CHARS_MAX:]
                self._send(sink, stream, line + "\n")

    def finish(self, sink: Sink) -> None:
        """A call has ended: what it began to write is a line now, and C's buffers are emptied."""
        self._libc.fflush(None)
        with self._lock:
            for stream, text in sink.partial.items():
                if text:
                    sink.partial[stream] = ""
                    self._send(sink, stream, text + "\n")

    def dirty(self) -> bool:
        """Whether the agent has still to read bytes that went straight to the descriptors."""
        return unread(STDOUT) or unread(STDERR)

    def _send(self, sink: Sink, stream: int, content: str) -> None:
        self._keep_order()
        if len(content) > LINE_CHARS_MAX:
            content = "".join(chopped(line) for line in content.split("\n")[:-1])
        content = content.encode("utf-8", "backslashreplace").decode()
        while content:
            cut = content.rfind("\n", 0, FRAME_CHARS_MAX) + 1
            part, content = content[:cut], content[cut:]
            self._port.send(Wrote(sink.seq, stream, part, part.count("\n")))

    def _keep_order(self) -> None:
        if not self.dirty():
            return
        deadline = time.monotonic() + ORDER_WAIT_S
        while self.dirty() and time.monotonic() < deadline:
            time.sleep(ORDER_POLL_S)

    def detach_after_fork(self) -> None:
        """In a child that user code forked: write to the pipes, line by line as it comes."""
        self._detached = True
        self._lock = threading.RLock()


class Stream(io.TextIOBase):
    """Stands in the place of ``sys.stdout`` or ``sys.stderr``."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, router: Router, number: int) -> None:
        self._router = router
        self._number = number
        self._bytes = _Bytes(router, number)
        self.name = "<stdout>" if number == STDOUT else "<stderr>"
        self.mode = "w"
        self.line_buffering = True

    @property
    def buffer(self) -> io.BufferedIOBase:
        """Takes bytes; what is not UTF-8 is replaced."""
        return self._bytes

    def write(self, text: str, /) -> int:
        self._router.write(self._number, text)
        return len(text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return False

    def reconfigure(self, **_options: Any) -> None:
        """Accepted and without effect: lines are always written at once, in UTF-8."""

    def close(self) -> None:
        """Without effect: the next call writes here too."""


class _Bytes(io.BufferedIOBase):
    def __init__(self, router: Router, number: int) -> None:
        self._router = router
        self._number = number
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, content: Any, /) -> int:
        data = bytes(content)
        self._router.write(self._number, self._decoder.decode(data))
        return len(data)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def close(self) -> None:
        """Without effect, as for the stream above it."""


def install(router: Router) -> None:
    """Everything this process prints goes through ``router`` from now on."""
    sys.stdout = Stream(router, STDOUT)
    sys.stderr = Stream(router, STDERR)
    sys.__stdout__ = sys.stdout
    sys.__stderr__ = sys.stderr
