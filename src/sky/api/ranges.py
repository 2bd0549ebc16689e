"""Which bytes of a content a Range header asks for.

Decides: that one range is served, and that a header which cannot be served as such asks for everything.
Never: reads the content. Follows: whoever was cut off asks for the rest and gets it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def wanted_range(header: str | None, size: int) -> tuple[int, int]:
    """First and last byte plus one that are wanted; all of them where the header is not understood."""
    match = _RANGE.fullmatch(header or "")
    if match is None or size == 0:
        return 0, size
    first, last = match[1], match[2]
    if first:
        start = int(first)
        end = min(size, int(last) + 1) if last else size
    elif last:
        start, end = max(0, size - int(last)), size
    else:
        return 0, size
    return (start, end) if start < end else (0, size)


async def until(pieces: AsyncIterator[bytes], count: int) -> AsyncIterator[bytes]:
    """The first ``count`` bytes of some pieces."""
    left = count
    async for piece in pieces:
        yield piece[:left]
        left -= len(piece)
        if left <= 0:
            return
