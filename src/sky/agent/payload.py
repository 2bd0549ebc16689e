"""User values as bytes, inside a worker process: the codec ``cloudpickle-lz4``, with limits both ways.

Decides: how much a payload may unfold to, and what becomes a file instead of a message.
Never: runs in the agent itself, which must not unpickle anything of a user's.
Follows: a bomb ends one call with a clear error; a large result never sits in memory twice.
"""

from __future__ import annotations

import copyreg
import hashlib
import itertools
import os
import pickle
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import cloudpickle
import lz4.frame
import msgspec

from sky.wire.agent import INLINE_RESULT_BYTES_MAX

UNFOLDED_BYTES_MAX = 16 * 1024**3
"""How much one payload may be after decompression."""
STREAM_FROM_BYTES = 1024 * 1024
"""A pickle larger than this is compressed as it is made."""
READ_BYTES = 1024 * 1024
LZ4_RATIO_MAX = 255
"""LZ4 cannot unfold to more than this many times its size."""

_names = itertools.count()
_NEW: Any = vars(copyreg)["__newobj__"]
"""What pickles call to make an object without its ``__init__``."""
_PLAIN: frozenset[type] = frozenset({int, float, str, bytes, bool, type(None), complex})


class TooLarge(Exception):
    """A payload unfolds to more than is allowed."""


class Packed(msgspec.Struct, frozen=True):
    """A payload: its bytes when small, otherwise its hash and the name of its file in the results folder."""

    value: bytes | None = None
    sha256: str | None = None
    file: str | None = None


class _Spool:
    """Takes a pickle as it is made; compresses it on the way to a file once it is large."""

    def __init__(self, folder: Path) -> None:
        self._parts: list[bytes] = []
        self._bytes = 0
        self._compressor: lz4.frame.LZ4FrameCompressor | None = None
        self._hash = hashlib.sha256()
        self._name = f"{os.getpid()}-{next(_names)}.payload"
        self._path = folder / self._name
        self._fd = -1

    def write(self, content: Any) -> int:
        size = memoryview(content).nbytes
        self._bytes += size
        if self._compressor is None:
            self._parts.append(bytes(content))
            if self._bytes > STREAM_FROM_BYTES:
                self._start()
        else:
            self._put(self._compressor.compress(content))
        return size

    def _start(self) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._compressor = lz4.frame.LZ4FrameCompressor()
        self._put(self._compressor.begin())
        for part in self._parts:
            self._put(self._compressor.compress(part))
        self._parts.clear()

    def _put(self, content: bytes) -> None:
        self._hash.update(content)
        left = memoryview(content)
        while left:
            left = left[os.write(self._fd, left) :]

    def finish(self) -> Packed:
        if self._compressor is None:
            content = lz4.frame.compress(b"".join(self._parts))
            if len(content) <= INLINE_RESULT_BYTES_MAX:
                return Packed(content)
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            self._put(content)
        else:
            self._put(self._compressor.flush())
        os.close(self._fd)
        self._fd = -1
        return Packed(None, self._hash.hexdigest(), self._name)

    def abandon(self) -> None:
        """Remove what was begun."""
        if self._fd >= 0:
            os.close(self._fd)
            self._path.unlink(missing_ok=True)


class _ExceptionPickler(cloudpickle.Pickler):
    """Keeps an exception's cause, which plain pickling drops (its notes are kept by either)."""

    def __init__(self, file: Any, *, causes: bool, bare: bool) -> None:
        super().__init__(file, protocol=5)
        self._causes = causes
        self._bare = bare

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, BaseException) and type(obj).__setstate__ is BaseException.__setstate__:
            return _rebuilding(obj, causes=self._causes, bare=self._bare)
        return super().reducer_override(obj)


def _rebuilding(error: BaseException, *, causes: bool, bare: bool) -> Any:
    """How to rebuild an exception: its cause among the attributes that unpickling sets, and, where it is to
    be ``bare``, without the ``__init__`` of its class, which may want other arguments than it left."""
    reduced: Any = error.__reduce_ex__(5)
    if not isinstance(reduced, tuple):
        return reduced
    parts = cast("tuple[Any, ...]", reduced)
    kind = type(error)
    if bare and isinstance(kind.__init__, FunctionType) and parts[:2] == (kind, error.args):
        parts = (_NEW, (kind, *error.args), *parts[2:])
    told = {"__cause__": error.__cause__, "__context__": error.__context__} if causes else {}
    kept = {name: value for name, value in told.items() if value is not None}
    if not kept or len(parts) not in (2, 3):
        return parts
    state: Any = parts[2] if len(parts) == 3 else None
    if not isinstance(state, dict | None):
        return parts
    attributes = cast("dict[str, Any]", state or {})
    return (*parts[:2], {**attributes, **kept, "__suppress_context__": error.__suppress_context__})


def pack(value: Any, folder: Path) -> Packed:
    """The payload of a value; a large one becomes a file in ``folder``. Raises what pickling raises."""
    if type(value) in _PLAIN:
        content = pickle.dumps(value, protocol=5)
        if len(content) <= INLINE_RESULT_BYTES_MAX:
            return Packed(lz4.frame.compress(content))
    spool = _Spool(folder)
    return _spooled(spool, cloudpickle.Pickler(spool, protocol=5), value)


def pack_error(error: BaseException, folder: Path, *, causes: bool, bare: bool) -> Packed:
    """The payload of an exception, as ``pack`` makes one. ``causes`` keeps what it was raised from; ``bare``
    lets it come back without its ``__init__``, from its ``args`` and attributes alone."""
    spool = _Spool(folder)
    return _spooled(spool, _ExceptionPickler(spool, causes=causes, bare=bare), error)


def _spooled(spool: _Spool, pickler: cloudpickle.Pickler, value: Any) -> Packed:
    try:
        pickler.dump(value)
        return spool.finish()
    finally:
        spool.abandon()


class _Reader:
    """A payload's file as unpickling wants to read it: decompressed bit by bit, up to a limit."""

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self._file = path.open("rb", buffering=0)
        self._decompressor = lz4.frame.LZ4FrameDecompressor()
        self._limit_bytes = limit_bytes
        self._total = 0
        self._buffer = b""
        self._place = 0

    def _fill(self) -> bool:
        """Have at least one more byte at hand; False at the end."""
        while self._place >= len(self._buffer):
            if self._decompressor.eof:
                return False
            content = b""
            if self._decompressor.needs_input:
                content = self._file.read(READ_BYTES)
                if not content:
                    raise EOFError("the payload is cut off")
            self._buffer = self._decompressor.decompress(content, max_length=READ_BYTES)
            self._place = 0
            self._total += len(self._buffer)
            if self._total > self._limit_bytes:
                raise TooLarge(_too_large(self._limit_bytes))
        return True

    def readinto(self, target: Any) -> int:
        view = memoryview(target).cast("B")
        done = 0
        while done < len(view) and self._fill():
            part = self._buffer[self._place : self._place + len(view) - done]
            view[done : done + len(part)] = part
            done += len(part)
            self._place += len(part)
        return done

    def read(self, size: int) -> bytes:
        content = bytearray(size)
        return bytes(content[: self.readinto(content)])

    def readline(self) -> bytes:
        line = bytearray()
        while self._fill():
            end = self._buffer.find(b"\n", self._place)
            stop = len(self._buffer) if end < 0 else end + 1
            line += self._buffer[self._place : stop]
            self._place = stop
            if end >= 0:
                break
        return bytes(line)

    def close(self) -> None:
        self._file.close()


def _too_large(limit_bytes: int) -> str:
    return f"the payload unfolds to more than {limit_bytes} bytes"


def unpack(content: bytes, limit_bytes: int = UNFOLDED_BYTES_MAX) -> Any:
    """The value of an inline payload. Raises ``TooLarge``, RuntimeError (not LZ4), what unpickling raises."""
    if len(content) * LZ4_RATIO_MAX <= limit_bytes:
        return pickle.loads(lz4.frame.decompress(content))
    unfolded = lz4.frame.LZ4FrameDecompressor().decompress(content, max_length=limit_bytes + 1)
    if len(unfolded) > limit_bytes:
        raise TooLarge(_too_large(limit_bytes))
    return pickle.loads(unfolded)


def unpack_file(path: Path, limit_bytes: int = UNFOLDED_BYTES_MAX) -> Any:
    """The value of a payload in a file. Raises as ``unpack`` does, and OSError."""
    reader = _Reader(path, limit_bytes)
    try:
        return pickle.load(reader)
    finally:
        reader.close()


def unpack_from(content: bytes | None, path: str | None) -> Any:
    """The value of an inline payload or of one in a file; None when there is neither. Raises as both do."""
    if content is not None:
        return unpack(content)
    return None if path is None else unpack_file(Path(path))
