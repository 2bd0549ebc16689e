"""What a service answers over HTTP, whole and bounded.

Decides: that an answer that never ends is none. Never: reads what it says.
Follows: the kinds that speak HTTP through one client share it; what is too long is asked for again later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sky.providers.base import AgainLater

if TYPE_CHECKING:
    from aiohttp import ClientResponse

CHUNK_BYTES = 1 << 16


async def whole(answer: ClientResponse, where: str, bytes_max: int) -> bytes:
    """The content of an answer. Raises AgainLater when it is more than ``bytes_max``."""
    parts: list[bytes] = []
    total = 0
    async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
        total += len(chunk)
        if total > bytes_max:
            raise AgainLater(f"{where}: an answer of more than {bytes_max} bytes")
        parts.append(chunk)
    return b"".join(parts)
