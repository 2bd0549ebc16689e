"""The mark of an installation on a bucket: a small object.

Decides: that the bucket itself compares when a mark is written (its conditional writes), so that of two who
write at once one has it. Never: says what a mark allows (``tenure``). Follows: of a store that has no such
writes the mark that was written last holds, which whoever was first finds out at its next look.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import msgspec

from sky.domain.errors import Busy
from sky.store.marks import NAME, Mark, Seen, decoded
from sky.store.s3 import AGAIN_S, Bucket, Unavailable

MEDIA = "application/json"


class MarkedBucket:
    """A bucket, with a prefix, that is a place; ``parts``: what the keys of ours begin with."""

    def __init__(self, bucket: Bucket, where: str, parts: Sequence[str]) -> None:
        self._bucket = bucket
        self._where = where
        self._parts = parts

    @property
    def where(self) -> str:
        return self._where

    async def read(self) -> Seen:
        with self._told():
            async with self._bucket.line() as line:
                found = await line.small(NAME)
        return Seen(None, None) if found is None else Seen(decoded(found[0]), found[1])

    async def write(self, mark: Mark, over: Seen) -> bool:
        with self._told():
            async with self._bucket.line() as line:
                return await line.put_if(NAME, msgspec.json.encode(mark), MEDIA, over.version)

    async def some(self) -> Sequence[str]:
        with self._told():
            async with self._bucket.line() as line:
                return [key for part in self._parts for key in (await line.page(part, None)).sizes]

    @contextmanager
    def _told(self) -> Generator[None]:
        try:
            yield
        except Unavailable as refused:
            why = refused.why + (f" ({refused.cause})" if refused.cause else "")
            msg = f"{self._where} does not say whose it is: {why}; nothing was lost, try again"
            raise Busy(msg, after_s=AGAIN_S) from refused
