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

TOLD_MAX = 50_000
"""How many executions whose outcome was told are remembered, so that a repeat is not run again."""
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


class _Entry(msgspec.Struct):
    """Where an execution stands; ``offset`` and ``length`` find its outcome (0: none kept)."""

    standing: Standing
    offset: int = 0
    length: int = 0


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
        self._entries: dict[str, _Entry] = {}
        self._open_ids: dict[str, None] = {}
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
                    for execution in record.executions:
                        self._entries[execution] = _Entry("accepted")
                        self._open_ids[execution] = None
                case _Ended():
                    execution = record.outcome.execution
                    self._entries[execution] = _Entry("untold", offset, length)
                    self._open_ids[execution] = None
                case _Told():
                    for execution in record.executions:
                        self._note_told(execution)
        return end

    def _note_told(self, execution: str) -> None:
        entry = self._entries.get(execution)
        if entry is None:
            entry = self._entries[execution] = _Entry("told")
        entry.standing = "told"
        self._open_ids.pop(execution, None)

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
        for execution in executions:
            self._entries[execution] = _Entry("accepted")
            self._open_ids[execution] = None

    def end(self, outcomes: Iterable[Outcome], at_us: int) -> None:
        """These ended. Raises OSError when it cannot be written; the outcomes may still be told."""
        content = bytearray()
        placed: list[tuple[str, int, int]] = []
        for outcome in outcomes:
            body = _encoder.encode(_Ended(at_us, outcome))
            placed.append((outcome.execution, len(content) + _HEAD.size, len(body)))
            content += _framed(body)
        begin = self._append(bytes(content))
        for execution, offset, length in placed:
            self._entries[execution] = _Entry("untold", begin + offset, length)
            self._open_ids[execution] = None

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
        entry = self._entries.get(execution)
        return None if entry is None else entry.standing

    def outcome(self, execution: str) -> Ended | None:
        """The outcome as it was written; None when there is none or its payload was dropped."""
        entry = self._entries.get(execution)
        if entry is None or not entry.length:
            return None
        record = _decoder.decode(os.pread(self._fd, entry.length, entry.offset))
        return Ended(record.outcome, record.at_us) if isinstance(record, _Ended) else None

    def known(self) -> tuple[str, ...]:
        """Executions that run here or whose outcome is not told yet, oldest first."""
        return tuple(self._open_ids)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)

    def _compact_if_due(self) -> None:
        if self._size >= self._compact_at:
            self._compact()
            self._compact_at = max(COMPACT_BYTES_MIN, 2 * self._size)

    def _compact(self) -> None:
        """Rewrite the file with what still matters and put it in the old one's place."""
        told = [name for name, entry in self._entries.items() if entry.standing == "told"][-TOLD_MAX:]
        entries: dict[str, _Entry] = {name: _Entry("told") for name in told}
        accepted = [name for name, entry in self._entries.items() if entry.standing == "accepted"]
        content = bytearray(_framed(_encoder.encode(_Told(tuple(told)))))
        content += _framed(_encoder.encode(_Accepted(tuple(accepted))))
        entries.update((name, _Entry("accepted")) for name in accepted)
        for name, entry in self._entries.items():
            if entry.standing == "untold":
                body = os.pread(self._fd, entry.length, entry.offset)
                entries[name] = _Entry("untold", len(content) + _HEAD.size, len(body))
                content += _framed(body)
        fresh = self._path.with_name(self._path.name + ".new")
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        left = memoryview(content)
        while left:
            left = left[os.write(fd, left) :]
        fresh.replace(self._path)
        os.close(self._fd)
        self._fd, self._size, self._entries = fd, len(content), entries
