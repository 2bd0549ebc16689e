"""Payloads that are too large for a message: fetched from a daemon and given to it, as files.

Decides: that a payload is what its hash says, how much of what was fetched is kept, and when to try again.
Never: holds a payload in memory whole, or unpickles one. Follows: while the daemon is away a transfer waits
and is tried again; what the daemon refuses for good is an error with its own words.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import aiohttp
import msgspec

from sky.agent.settings import Settings
from sky.kit import backoff

CACHE_BYTES_MAX = 4 * 1024**3
CHUNK_BYTES = 1024 * 1024
TRANSFERS_MAX = 4
RETRY_FIRST_S = 0.05
RETRY_LONGEST_S = 2.0
IDLE_S = 60.0
"""How long a transfer may stand still before it is begun anew."""
MISMATCHES_MAX = 3
_T = TypeVar("_T")
_CODES = {404: "not_found", 400: "hash_mismatch", 413: "payload_too_large", 507: "storage_full"}
_AGAIN_STATUSES = frozenset({401, 403, 408, 425, 429})


class Refused(Exception):
    """A transfer that cannot succeed. ``code`` is one of the closed set of error codes."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Again(Exception):
    """A transfer that failed and may succeed later."""


class _Kept(msgspec.Struct):
    size: int
    pins: int = 0


class Blobs:
    """The node's payloads. One per agent; its files belong to it alone."""

    def __init__(self, settings: Settings, session: Callable[[], aiohttp.ClientSession]) -> None:
        self._settings = settings
        self._session = session
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes = 0
        self._fetching: dict[str, asyncio.Task[Path]] = {}
        self._transfers = asyncio.Semaphore(TRANSFERS_MAX)
        for path in settings.blobs.iterdir():
            path.unlink()

    def pin(self, sha256: str) -> Path | None:
        """The file of a payload that is here, kept until ``unpin``; None when it must be fetched."""
        kept = self._kept.get(sha256)
        if kept is None:
            return None
        kept.pins += 1
        self._kept.move_to_end(sha256)
        return self._settings.blobs / sha256

    def unpin(self, sha256: str) -> None:
        """An execution does not need this payload any more."""
        kept = self._kept.get(sha256)
        if kept is not None:
            kept.pins -= 1

    async def fetch(self, sha256: str) -> Path:
        """Get a payload and pin it, trying again while the daemon is away. Raises ``Refused``."""
        while True:
            path = self.pin(sha256)
            if path is not None:
                return path
            task = self._fetching.get(sha256)
            if task is None:
                task = asyncio.create_task(self._download(sha256))
                self._fetching[sha256] = task
                task.add_done_callback(lambda _task: self._fetching.pop(sha256, None))
            await asyncio.shield(task)

    async def upload(self, sha256: str, path: Path) -> None:
        """Store a payload at the daemon, trying again while it is away. Raises ``Refused``, OSError."""
        await self._persist(lambda: self._put(sha256, path))

    async def _download(self, sha256: str) -> Path:
        mismatches = 0
        while True:
            path, size = await self._persist(lambda: self._get(sha256))
            if path is not None:
                self._keep(sha256, size)
                return path
            mismatches += 1
            if mismatches >= MISMATCHES_MAX:
                message = f"the blob {sha256} arrived {mismatches} times with other content"
                raise Refused("hash_mismatch", message)

    async def _persist(self, transfer: Callable[[], Awaitable[_T]]) -> _T:
        """Run a transfer until it succeeds or is refused."""
        failures = 0
        while True:
            try:
                async with self._transfers:
                    return await transfer()
            except (aiohttp.ClientError, TimeoutError, ConnectionError, _Again):
                failures += 1
            await asyncio.sleep(backoff.delay_s(failures, first_s=RETRY_FIRST_S, longest_s=RETRY_LONGEST_S))

    def _request(self, sha256: str) -> tuple[str, dict[str, str]]:
        url = f"{self._settings.daemon_url()}/agent/v1/blobs/{sha256}"
        try:
            token = self._settings.token()
        except OSError as error:
            raise _Again from error
        return url, {"Authorization": f"Bearer {token}", "X-Sky-Node": self._settings.node}

    async def _get(self, sha256: str) -> tuple[Path | None, int]:
        """One download; None in place of the file when its content has another hash."""
        url, headers = self._request(sha256)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=IDLE_S)
        target = self._settings.blobs / sha256
        part = target.with_suffix(".part")
        async with self._session().get(url, headers=headers, timeout=timeout) as answer:
            await _check(answer, f"fetching the blob {sha256}")
            digest, size = hashlib.sha256(), 0
            with part.open("wb") as file:
                async for piece in _gathered(answer.content.iter_any()):
                    # Aside: a slow disk must not keep the agent from saying that it lives.
                    await asyncio.to_thread(_take, piece, digest, file)
                    size += len(piece)
        if digest.hexdigest() != sha256:
            part.unlink()
            return None, 0
        part.replace(target)
        return target, size

    async def _put(self, sha256: str, path: Path) -> None:
        url, headers = self._request(sha256)
        headers["Content-Type"] = "application/octet-stream"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=IDLE_S)
        headers["Content-Length"] = str(path.stat().st_size)
        with path.open("rb") as file:
            async with self._session().put(url, headers=headers, data=file, timeout=timeout) as answer:
                await _check(answer, f"storing the blob {sha256}")

    def _keep(self, sha256: str, size: int) -> None:
        self._kept[sha256] = _Kept(size)
        self._bytes += size
        for name, kept in list(self._kept.items()):
            if self._bytes <= CACHE_BYTES_MAX:
                return
            if name != sha256 and not kept.pins:
                del self._kept[name]
                self._bytes -= kept.size
                (self._settings.blobs / name).unlink(missing_ok=True)


async def _gathered(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytearray]:
    """What arrives, in pieces of about ``CHUNK_BYTES``."""
    piece = bytearray()
    async for chunk in chunks:
        piece += chunk
        if len(piece) >= CHUNK_BYTES:
            yield piece
            piece = bytearray()
    if piece:
        yield piece


def _take(piece: bytearray, digest: Any, file: BinaryIO) -> None:
    digest.update(piece)
    file.write(piece)


async def _check(answer: aiohttp.ClientResponse, doing: str) -> None:
    """Raises ``_Again`` or ``Refused`` for an answer that is not a success."""
    if answer.status < 400:
        return
    said = (await answer.text(errors="replace"))[:500]
    if answer.status in _AGAIN_STATUSES or (answer.status >= 500 and answer.status != 507):
        raise _Again
    message = f"{doing}: the daemon answered {answer.status}: {said}"
    raise Refused(_CODES.get(answer.status, "internal"), message)
