"""Large content in a bucket, for daemons that share no folder.

Decides: the name of each object: its hash, and something that no other upload has. Never: writes over an
object, or keeps one in memory whole. Follows: what is removed under a name can never be what somebody has
just brought, since that has another; the bucket takes only the bytes that were hashed here, since the
signature of an upload binds their hash; what it gives back is hashed again.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sky.domain.errors import Busy, Internal, NotFound
from sky.domain.job_errors import JobRefused
from sky.domain.keeping import FRESH_US
from sky.store.s3 import AGAIN_S, Bucket

UPLOAD_S = 1800.0
"""How long an upload may take: less than ``UNWRITTEN_US``."""
FOLDER = "blobs/"
DELETES_AT_ONCE = 16


class BlobBucket:
    """A bucket in which content is kept, each under a name of its own."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    async def put(self, path: Path, sha256: str, size: int) -> str:
        """Keep the content of a file; returns the name it has. Raises Busy: then nothing was stored."""
        name = f"{sha256}/{secrets.token_hex(8)}"
        with _told():
            try:
                async with asyncio.timeout(UPLOAD_S), self._bucket.line() as line:
                    await line.put_file(FOLDER + name, path, sha256, size)
            except TimeoutError as error:
                msg = (
                    f"{size} bytes did not reach the bucket in {UPLOAD_S:g} s; nothing was stored, try again"
                )
                raise Busy(msg, after_s=AGAIN_S) from error
        return name

    async def read(self, name: str, start: int, size: int) -> AsyncGenerator[bytes]:
        """What is kept under a name, from a byte on. The last piece comes only when all had the right hash.

        Raises Busy, and NotFound where the bucket has lost it.
        """
        digest, held, seen = hashlib.sha256(), b"", start
        with _told():
            async with self._bucket.line() as line:
                async for piece in line.read(FOLDER + name, start):
                    digest.update(piece)
                    seen += len(piece)
                    if held:
                        yield held
                    held = piece
        sha256 = name.partition("/")[0]
        if seen == start < size:
            msg = (
                f"blob {sha256} is not in the bucket any more, where it was put; restore the bucket's object"
            )
            raise NotFound(msg, details={"blob": sha256})
        if seen != size or (start == 0 and digest.hexdigest() != sha256):
            msg = f"the bucket has other content for blob {sha256} than was put there; restore {FOLDER}{name}"
            raise Internal(msg)
        yield held

    async def old(self, now_us: int) -> AsyncIterator[list[tuple[str, int]]]:
        """Names and sizes of what did not come lately, some at a time."""
        after: str | None = None
        with _told():
            async with self._bucket.line() as line:
                while True:
                    page = await line.page(FOLDER, after)
                    yield [
                        (key.removeprefix(FOLDER), size)
                        for key, size in page.sizes.items()
                        if page.since_us.get(key, now_us) < now_us - FRESH_US
                    ]
                    if page.after is None or page.after == after:
                        return
                    after = page.after

    async def remove(self, names: Sequence[str]) -> None:
        """Remove what is kept under names that nothing knows."""
        with _told():
            async with self._bucket.line() as line:
                for start in range(0, len(names), DELETES_AT_ONCE):
                    some = names[start : start + DELETES_AT_ONCE]
                    await asyncio.gather(*(line.delete(FOLDER + name) for name in some))


@contextmanager
def _told() -> Generator[None]:
    """Say as the store does that a bucket does not serve; the details are in the log."""
    try:
        yield
    except JobRefused as refused:
        msg = "the bucket that holds large content does not serve now; nothing was lost, try again"
        raise Busy(msg, after_s=AGAIN_S) from refused
