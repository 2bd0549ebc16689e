"""Cuts the bytes of a stream of server-sent events into its frames.

Decides: what of a stream is one event, whatever it carries. Never: reads what an event says.
Follows: heartbeats give nothing, and a stream whose line never ends is refused before it fills the memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

LINE_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Frame:
    """One event: its place (None: it has none), its name ("" for a plain one), its data (b"" for none)."""

    seq: int | None
    name: str
    data: bytes


class Frames:
    """The frames of one connection."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._name = ""
        self._seq: int | None = None

    def feed(self, piece: bytes) -> Iterator[Frame]:
        """The frames that are whole now, in order. Raises ValueError for an endless line."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            raise ValueError(f"an event of more than {LINE_BYTES_MAX} bytes")
        for line in lines:
            frame = self._line(line.removesuffix(b"\r"))
            if frame is not None:
                yield frame

    def _line(self, line: bytes) -> Frame | None:
        if not line:
            return self._end_of_event()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"id" and value.isdigit():
            self._seq = int(value)
        return None

    def _end_of_event(self) -> Frame | None:
        frame = Frame(self._seq, self._name, b"\n".join(self._data))
        nothing = not self._data and self._seq is None
        self._data, self._name, self._seq = [], "", None
        return None if nothing else frame
