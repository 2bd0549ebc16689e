"""The files of jobs in a bucket: what their addresses bind, and what of them has really arrived.

Decides: which headers an upload must have, and that a file counts only when the bucket itself says that it
has those bytes. Never: takes a node's word for a file.
Follows: the same address can only ever put the same bytes at the same key (the key names their hash, and
the signature binds hash and length), so what is stored is never replaced; an upload needs no more headers
than the checksum that comes with its address.
"""

from __future__ import annotations

import asyncio
import base64
import posixpath
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import islice
from typing import TypeVar
from urllib.parse import quote

from sky.domain.artifact import NEVER_CAME, Arrived, StoredFile, job_prefix, key_of, manifest_key
from sky.domain.job_errors import JobRefused
from sky.store.s3 import CHECKSUM, Bucket, Line, unavailable
from sky.store.sigv4 import Wanted

LIST_PAGES_MAX = 40
"""Pages of a job's keys that are looked at: more than its files need, even if each was uploaded twice."""
LOOKS_AT_ONCE = 16
BATCH_FILES = 500
"""Files that are looked at between two times that it is written down which ones are there."""
ADDRESSES_AT_ONCE = 100
JSON = "application/json"
_T = TypeVar("_T")


class ArtifactBucket:
    """A bucket in which jobs leave their files."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    async def upload_url(self, file: StoredFile, until_us: int) -> str:
        """Where that file may be PUT until then, with its checksum as a header and in its length."""
        checksum = base64.b64encode(bytes.fromhex(file.sha256)).decode()
        headers = {"content-length": str(file.size), CHECKSUM: checksum}
        by = await self._bucket.credentials()
        wanted = Wanted("PUT", self._bucket.url_of(key_of(file)), {}, headers)
        return self._bucket.address(wanted, by, until_us)

    async def download_urls(self, files: Sequence[StoredFile], until_us: int) -> tuple[list[str], int]:
        """Where those files may be had, and until when."""
        by = await self._bucket.credentials()
        until_us = min(until_us, by.until_us or until_us)
        urls: list[str] = []
        for number, file in enumerate(files, 1):
            name = quote(posixpath.basename(file.path), safe="")
            query = {
                "response-content-disposition": f"attachment; filename*=UTF-8''{name}",
                "response-content-type": "application/octet-stream",
            }
            wanted = Wanted("GET", self._bucket.url_of(key_of(file)), query, {})
            urls.append(self._bucket.address(wanted, by, until_us))
            if number % ADDRESSES_AT_ONCE == 0:
                await asyncio.sleep(0)  # others are served in between
        return urls, until_us

    async def arrivals(self, job_id: str, awaited: Sequence[StoredFile]) -> AsyncIterator[Arrived]:
        """Which of the files that a job may upload are there, some at a time."""
        async with self._bucket.line() as line:
            sizes, whole = await _listed(line, job_id)
            known = {key_of(file) for file in awaited}
            strange = [key for key in sizes if key not in known and key != manifest_key(job_id)]
            rest = iter(awaited)
            while batch := list(islice(rest, BATCH_FILES)):
                yield await _arrived(line, batch, sizes, whole=whole)
        yield Arrived((), tuple((key, "nothing of that name and content was announced") for key in strange))

    async def seal(self, job_id: str, manifest: bytes) -> None:
        """Write the list of a job's files beside them."""
        async with self._bucket.line() as line:
            await line.put(manifest_key(job_id), manifest, JSON)

    async def delete_some(self, job_id: str) -> bool:
        """Remove a page of what is a job's; True when nothing is left."""
        async with self._bucket.line() as line:
            page = await line.page(job_prefix(job_id), None)
            await _each(list(page.sizes), line.delete)
        return page.after is None


async def _listed(line: Line, job_id: str) -> tuple[dict[str, int], bool]:
    """A job's keys with their sizes, and whether those are all."""
    sizes: dict[str, int] = {}
    after: str | None = None
    for _ in range(LIST_PAGES_MAX):
        page = await line.page(job_prefix(job_id), after)
        sizes |= page.sizes
        if page.after is None:
            return sizes, True
        if page.after == after:
            unavailable("its list goes in circles")
        after = page.after
    return sizes, False


async def _arrived(line: Line, batch: Sequence[StoredFile], sizes: dict[str, int], *, whole: bool) -> Arrived:
    good: list[StoredFile] = []
    wrong: list[tuple[str, str]] = []

    async def look(file: StoredFile) -> None:
        key = key_of(file)
        listed = sizes.get(key)
        if listed is None and whole:
            wrong.append((file.path, NEVER_CAME))
            return
        if listed is not None and listed != file.size:
            wrong.append((file.path, _other_size(listed, file)))
            return
        why = await _difference(line, key, file)
        if why is None:
            good.append(file)
        else:
            wrong.append((file.path, why))

    await _each(batch, look)
    return Arrived(tuple(good), tuple(wrong))


async def _difference(line: Line, key: str, file: StoredFile) -> str | None:
    """What is wrong with what is at a key; None: nothing."""
    head = await line.head(key)
    if head is None:
        return NEVER_CAME
    if head.size != file.size:
        return _other_size(head.size, file)
    # Some stores keep no such checksum: then its bytes are read, here.
    found = head.sha256 or await line.sha256(key)
    return None if found == file.sha256 else f"it hashes to {found}; {file.sha256} was announced"


def _other_size(found: int, file: StoredFile) -> str:
    return f"it has {found} bytes; {file.size} were announced"


async def _each(things: Sequence[_T], do: Callable[[_T], Awaitable[None]]) -> None:
    """Do it for each thing, a few at once. What fails first ends all, and is raised."""
    waiting = iter(things)

    async def work() -> None:
        for thing in waiting:
            await do(thing)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(LOOKS_AT_ONCE, len(things))):
                group.create_task(work())
    except* JobRefused as failed:
        first = failed.exceptions[0]
        while isinstance(first, ExceptionGroup):
            first = first.exceptions[0]
        raise first from None
