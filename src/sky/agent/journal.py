"""What this node accepted, how it ended and what was told, on the node's own disk.

Decides: the form of a record (length, checksum, msgpack), what survives a restart, when it is rewritten.
Never: says anything to a daemon, or forgets an outcome that was not told.
Follows: every record is written before it is acted upon, so an execution runs once whatever dies in between.
The file is written, not synced: it outlives the agent's death; a machine that loses power is a lost node.

    accepted ──► outcome ──► told ──► (compaction) told, without its payload
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from sky.wire.agent import Outcome

TOLD_KEPT = 10_000
"""So many executions whose outcome was told are remembered at least, and twice as many at most. A repeat of
one is not run again: nothing repeats them but a daemon that has lost its last seconds."""
COMPACT_BYTES_MIN = 16 * 1024 * 1024
"""Below this size the file is never rewritten."""
RECORD_BYTES_MAX = 64 * 1024 * 1024

Standing = Literal["accepted", "untold", "told"]

_HEAD = struct.Struct(">II")


class _Accepted(msgspec.Struct, frozen=True, array_like=True, tag=1):
    executions: tuple[str, ...]


class _Ended(msgspec.Struct, frozen=True, array_like=True, tag=2):
    at_us: int
    outcome: Outcome


class _Told(msgspec.Struct, frozen=True, array_like=True, tag=3):
    executions: tuple[str, ...]


_Record = _Accepted | _Ended | _Told
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[_Record] = msgspec.msgpack.Decoder(_Record)


class Ended(msgspec.Struct, frozen=True):
    """An outcome as the journal has it, with the wall time at which it was written."""

    outcome: Outcome
    at_us: int


def _framed(body: bytes) -> bytes:
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def _records(content: memoryview) -> Iterator[tuple[int, int, _Record]]:
    """Each whole record with the offset and length of its body; ends at the first torn or foreign one."""
    position = 0
    while position + _HEAD.size <= len(content):
        length, checksum = _HEAD.unpack_from(content, position)
        start = position + _HEAD.size
        body = content[start : start + length]
        if length > RECORD_BYTES_MAX or len(body) != length or zlib.crc32(body) != checksum:
            return
        try:
            record = _decoder.decode(body)
        except msgspec.MsgspecError:
            return
        yield start, length, record
        position = start + length


class Journal:
    """The journal of one home. Not shared: one agent at a time has it open."""

    def __init__(self, path: Path) -> None:
        """Open or begin ``path``; what is torn at its end is cut off. Raises OSError."""
        self._path = path
        self._open: dict[str, int] = {}
        """What runs here or was not told, oldest first, by where its outcome is in the file (0: none yet)."""
        self._told: dict[str, int] = {}
        self._told_before: dict[str, int] = {}
        """What was told, by where its outcome is (0: not kept). The earlier of both is forgotten whole."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = self._read()
        os.ftruncate(self._fd, self._size)
        self._compact_at = COMPACT_BYTES_MIN
        self._compact_if_due()

    def _read(self) -> int:
        content = memoryview(self._path.read_bytes())
        end = 0
        for offset, length, record in _records(content):
            end = offset + length
            match record:
                case _Accepted():
                    self._open.update(dict.fromkeys(record.executions, 0))
                case _Ended():
                    self._open[record.outcome.execution] = offset
                case _Told():
                    for execution in record.executions:
                        self._note_told(execution)
        return end

    def _note_told(self, execution: str) -> None:
        offset = self._open.pop(execution, None)
        if offset is None:
            offset = self._told.get(execution) or self._told_before.get(execution, 0)
        if len(self._told) >= TOLD_KEPT:
            self._told_before, self._told = self._told, {}
        self._told[execution] = offset

    def _append(self, content: bytes) -> int:
        """Write at the end; gives the offset it begins at. Raises OSError, leaving the file as it was."""
        begin = self._size
        left = memoryview(content)
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError:
            os.ftruncate(self._fd, begin)
            raise
        self._size += len(content)
        return begin

    def accept(self, executions: Sequence[str]) -> None:
        """These will be run. Raises OSError, and then they must not be."""
        self._append(_framed(_encoder.encode(_Accepted(tuple(executions)))))
        self._open.update(dict.fromkeys(executions, 0))

    def end(self, outcomes: Iterable[Outcome], at_us: int) -> None:
        """These ended. Raises OSError when it cannot be written; the outcomes may still be told."""
        content = bytearray()
        placed: list[tuple[str, int]] = []
        for outcome in outcomes:
            body = _encoder.encode(_Ended(at_us, outcome))
            placed.append((outcome.execution, len(content) + _HEAD.size))
            content += _framed(body)
        begin = self._append(bytes(content))
        for execution, offset in placed:
            self._open[execution] = begin + offset

    def tell(self, executions: Sequence[str]) -> None:
        """A daemon has written down the outcomes of these. Raises OSError."""
        if not executions:
            return
        for execution in executions:
            self._note_told(execution)
        self._append(_framed(_encoder.encode(_Told(tuple(executions)))))
        self._compact_if_due()

    def standing(self, execution: str) -> Standing | None:
        """Where an execution stands here; None: never seen (or told long ago)."""
        offset = self._open.get(execution)
        if offset is not None:
            return "untold" if offset else "accepted"
        return "told" if execution in self._told or execution in self._told_before else None

    def outcome(self, execution: str) -> Ended | None:
        """The outcome as it was written; None when there is none or its payload was dropped."""
        for known in (self._open, self._told, self._told_before):
            offset = known.get(execution)
            if offset is not None:
                return self._ended_at(offset) if offset else None
        return None

    def _ended_at(self, offset: int) -> Ended | None:
        record = _decoder.decode(self._body_at(offset))
        return Ended(record.outcome, record.at_us) if isinstance(record, _Ended) else None

    def _body_at(self, offset: int) -> bytes:
        length, _ = _HEAD.unpack(os.pread(self._fd, _HEAD.size, offset - _HEAD.size))
        return os.pread(self._fd, length, offset)

    def known(self) -> tuple[str, ...]:
        """Executions that run here or whose outcome is not told yet, oldest first."""
        return tuple(self._open)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)

    def _compact_if_due(self) -> None:
        if self._size >= self._compact_at:
            self._compact_at = 2 * self._size  # Where that cannot be written, it is not tried every time.
            self._compact()
            self._compact_at = max(COMPACT_BYTES_MIN, 2 * self._size)

    def _compact(self) -> None:
        """Rewrite the file with what still matters and put it in the old one's place."""
        told = tuple(name for known in (self._told_before, self._told) for name in known)
        opened: dict[str, int] = {}
        content = bytearray(_framed(_encoder.encode(_Told(told))))
        content += _framed(_encoder.encode(_Accepted(tuple(self._open))))
        for name, offset in self._open.items():
            opened[name] = 0
            if offset:
                opened[name] = len(content) + _HEAD.size
                content += _framed(self._body_at(offset))
        fresh = self._path.with_name(self._path.name + ".new")
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        left = memoryview(content)
        try:
            while left:
                left = left[os.write(fd, left) :]
            fresh.replace(self._path)
        except OSError:
            os.close(fd)
            fresh.unlink(missing_ok=True)
            raise
        os.close(self._fd)
        self._fd, self._size, self._open = fd, len(content), opened
        self._told = dict.fromkeys(self._told, 0)
        self._told_before = dict.fromkeys(self._told_before, 0)
