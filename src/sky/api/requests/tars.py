"""A gzipped tar that is made while it is sent.

Decides: the form of the archive. Never: has more than a piece of it in memory, or writes a file.
Follows: a member is as long as its head said, whatever its content turns out to be.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import AsyncIterator, Callable

from msgspec import Struct

GZIP_WINDOW = 31
"""What zlib calls a gzip container with its largest window."""
BLOCK = tarfile.BLOCKSIZE


class Member(Struct, frozen=True):
    """A file of an archive: its size in bytes is known before its content is read."""

    name: str
    size: int
    modified_s: int
    content: Callable[[], AsyncIterator[bytes]]


async def packed(members: AsyncIterator[Member]) -> AsyncIterator[bytes]:
    """The archive, piece by piece."""
    gzip = zlib.compressobj(6, zlib.DEFLATED, GZIP_WINDOW)
    async for member in members:
        async for piece in _member(member):
            if out := gzip.compress(piece):
                yield out
    yield gzip.compress(bytes(2 * BLOCK)) + gzip.flush()


async def _member(member: Member) -> AsyncIterator[bytes]:
    info = tarfile.TarInfo(member.name)
    info.size, info.mtime, info.mode = member.size, member.modified_s, 0o644
    yield info.tobuf(tarfile.PAX_FORMAT)
    left = member.size
    async for piece in member.content():
        taken = piece[:left]
        left -= len(taken)
        yield taken
        if not left:
            break
    # What was there when the size was told may have gone: the rest of the place stays empty.
    while left:
        size = min(left, 64 * BLOCK)
        left -= size
        yield bytes(size)
    yield bytes(-member.size % BLOCK)
