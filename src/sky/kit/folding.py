"""LZ4 frames made and read bit by bit: the outer layer of every payload, on either side of a connection.

Decides: how content is cut into blocks, and that a block which does not shrink goes as it is.
Never: knows what the content is, or holds more of it than a block.
Follows: any reader of LZ4 frames reads what is made here, and any frame can be read here. Numbers that look
random cost one look (0.2 ms a mebibyte, measured) and no copy; a large array is never there a second time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from pickle import PickleBuffer
from typing import TYPE_CHECKING

import lz4.block
import lz4.frame

if TYPE_CHECKING:
    from typing_extensions import Buffer

BLOCK_BYTES = 1024 * 1024
"""Content up to this size is one piece; larger content is cut into blocks of it."""
LZ4_RATIO_MAX = 255
"""LZ4 cannot unfold to more than this many times its size."""
_BEGIN = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX1MB, block_linked=False).begin()
_END = b"\0\0\0\0"
_AS_IT_IS = 0x8000_0000
"""The mark of a block that was not compressed, in its length."""


class TooLarge(Exception):
    """A frame unfolds to more than is allowed."""


class Folding:
    """Takes content as it is made, and gives ``put`` the pieces of its frame. A file to whoever writes it."""

    def __init__(self, put: Callable[[Buffer], object]) -> None:
        self._put = put
        self._begun = False
        self._waiting = bytearray()

    def write(self, content: Buffer) -> int:
        """Take more content. Raises what ``put`` raises."""
        view = PickleBuffer(content).raw()
        size = len(view)
        if len(self._waiting) + size <= BLOCK_BYTES:
            self._waiting += view
            return size
        if self._waiting:
            self._block(memoryview(self._waiting))
            self._waiting = bytearray()
        whole = size - size % BLOCK_BYTES
        for start in range(0, whole, BLOCK_BYTES):
            self._block(view[start : start + BLOCK_BYTES])
        self._waiting += view[whole:]
        return size

    def close(self) -> bytes | None:
        """End the frame; gives all of it when it is so small that nothing was put anywhere."""
        if not self._begun:
            return lz4.frame.compress(self._waiting)
        if self._waiting:
            self._block(memoryview(self._waiting))
            self._waiting = bytearray()
        self._put(_END)
        return None

    def _block(self, content: memoryview) -> None:
        if not self._begun:
            self._begun = True
            self._put(_BEGIN)
        folded = lz4.block.compress(content, store_size=False)
        if len(folded) < len(content):
            self._put(struct.pack("<I", len(folded)))
            self._put(folded)
        else:
            self._put(struct.pack("<I", len(content) | _AS_IT_IS))
            self._put(content)


class Unfolding:
    """A frame as unpickling wants to read it: decompressed as its pieces come, up to a limit.

    Raises TooLarge, EOFError when the pieces end too early, RuntimeError when they are no frame, and
    whatever taking a piece raises.
    """

    def __init__(self, pieces: Iterable[bytes], limit_bytes: int) -> None:
        self._pieces = _in_parts(pieces)
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
            content: Buffer = b""
            if self._decompressor.needs_input:
                following = next(self._pieces, None)
                if following is None:
                    raise EOFError("the payload is cut off")
                content = following
            self._buffer = self._decompressor.decompress(content, max_length=BLOCK_BYTES)
            self._place = 0
            self._total += len(self._buffer)
            if self._total > self._limit_bytes:
                raise TooLarge(f"the payload unfolds to more than {self._limit_bytes} bytes")
        return True

    def readinto(self, target: Buffer) -> int:
        view = memoryview(target).cast("B")
        done = 0
        while done < len(view) and self._fill():
            part = memoryview(self._buffer)[self._place : self._place + len(view) - done]
            view[done : done + len(part)] = part
            done += len(part)
            self._place += len(part)
        return done

    def read(self, size: int) -> bytes:
        if self._place + size <= len(self._buffer):
            self._place += size
            return self._buffer[self._place - size : self._place]
        content = bytearray(size)
        return bytes(memoryview(content)[: self.readinto(content)])

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


def _in_parts(pieces: Iterable[bytes]) -> Iterator[Buffer]:
    """The pieces, none larger than a block: what is not used of one is copied by the decompressor."""
    for piece in pieces:
        if len(piece) <= BLOCK_BYTES:
            if piece:
                yield piece
            continue
        view = memoryview(piece)
        for start in range(0, len(view), BLOCK_BYTES):
            yield view[start : start + BLOCK_BYTES]
