"""What the agent and one of its worker processes say to each other over a socket pair.

Decides: the shapes, and that each travels as msgpack behind its length in four big-endian bytes.
Never: leaves the machine; both ends are of one release, so these shapes may change freely.
Follows: calls are numbered per worker (``seq``, from 1, in the order they are sent), and the board (see
``board``) tells by that number which of them have begun.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sky.wire.agent import ErrorInfo


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """Anything between agent and worker."""


class Setup(Frame, frozen=True, tag=0):
    """First frame: what kind of worker to be. ``memory_bytes`` limits its data memory."""

    threads: bool
    slots: int
    node: str
    compute: str
    work: str
    results: str
    memory_bytes: int | None
    accelerators: tuple[str, ...]
    url: str
    url_file: str | None = None
    """The daemon's address, and the file that has it as it is now."""
    included: str | None = None
    """The folder of the image's included files."""
    plugins: tuple[tuple[str, dict[str, Any]], ...] = ()


class Learn(Frame, frozen=True, tag=1):
    """A function that calls will name by its hash, and the file its payload is in."""

    sha256: str
    path: str


class Forget(Frame, frozen=True, tag=2):
    """No later call names this function."""

    sha256: str


class Call(Frame, frozen=True, tag=3):
    """One execution to run. Arguments are inline or in a file; neither means ``()``."""

    seq: int
    execution: str
    task: str
    function: str
    rank: int
    total: int
    args: bytes | None = None
    args_path: str | None = None
    stream: bool = False
    consumed: int = 0
    peers: tuple[str, ...] = ()
    world: tuple[int, ...] = ()


class Interrupt(Frame, frozen=True, tag=4):
    """Raise in the thread that runs this call (threads only; a process gets SIGTERM)."""

    seq: int


class Consumed(Frame, frozen=True, tag=5):
    """A reader has consumed the items of a generator before ``consumed``."""

    seq: int
    consumed: int


class Go(Frame, frozen=True, tag=6):
    """The pipes are read: the next call may begin (the answer to a ``Done`` that is ``dirty``)."""


class Up(Frame, frozen=True, tag=0):
    """First frame of a worker: it is ready for calls."""

    python: str


class Wrote(Frame, frozen=True, tag=1):
    """Whole lines that a call (0: no call) wrote to stdout (1) or stderr (2)."""

    seq: int
    stream: int
    content: str
    lines: int


class Yielded(Frame, frozen=True, tag=2):
    """A generator's item: inline, or in a file of the results folder."""

    seq: int
    index: int
    value: bytes | None
    sha256: str | None
    file: str | None


class Done(Frame, frozen=True, tag=3):
    """How a call ended. ``interrupted``: it was told to stop before it had ended by itself.

    ``dirty``: bytes of it are still in the pipes; the worker waits for ``Go``. ``unloaded``: it has not
    begun, because its function or its arguments could not be loaded.
    """

    seq: int
    seconds: float
    value: bytes | None = None
    sha256: str | None = None
    file: str | None = None
    error: ErrorInfo | None = None
    interrupted: bool = False
    items: int = 0
    dirty: bool = False
    unloaded: bool = False


ToWorker = Setup | Learn | Forget | Call | Interrupt | Consumed | Go
FromWorker = Up | Wrote | Yielded | Done

HEAD_BYTES = 4
FRAME_BYTES_MAX = 64 * 1024 * 1024

_encoder = msgspec.msgpack.Encoder()
to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)


def framed(frame: ToWorker | FromWorker) -> bytes:
    """The bytes of a frame, its length first."""
    body = _encoder.encode(frame)
    return len(body).to_bytes(HEAD_BYTES, "big") + body


class Splitter:
    """Cuts a stream of bytes into the bodies of frames."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, content: bytes) -> list[bytes]:
        """The bodies that are whole now, in order. Raises ValueError for an impossible length."""
        buffer = self._buffer + content if self._buffer else content
        bodies: list[bytes] = []
        position, end = 0, len(buffer)
        while end - position >= HEAD_BYTES:
            length = int.from_bytes(buffer[position : position + HEAD_BYTES], "big")
            if length > FRAME_BYTES_MAX:
                raise ValueError(f"a frame of {length} bytes")
            stop = position + HEAD_BYTES + length
            if stop > end:
                break
            bodies.append(buffer[position + HEAD_BYTES : stop])
            position = stop
        self._buffer = buffer[position:]
        return bodies
