"""Reading what somebody else says, to its end and never more than is wanted.

Decides: nothing. Never: takes what has arrived so far for all there is; keeps more than it was told to.
Follows: ask for one byte more than is right, and the length tells that there was too much.
"""

from __future__ import annotations

from typing import Protocol


class Source(Protocol):
    """A stream of asyncio's or aiohttp's: gives what has arrived, and nothing at its end."""

    async def read(self, n: int, /) -> bytes:
        """At most ``n`` bytes."""
        ...


async def read_up_to(source: Source, most: int) -> bytes:
    """All of it, or its first ``most`` bytes."""
    said = b""
    while len(said) < most and (more := await source.read(most - len(said))):
        said += more
    return said
