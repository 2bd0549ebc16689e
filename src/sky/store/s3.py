"""One bucket: requests that we sign and make, and addresses that we sign for others to use.

Decides: where a bucket answers, how long it may take, and what its failures mean. Never: keeps a file in
memory whole, follows a redirect, or tries again (whoever asked does).
Follows: whatever keeps the bucket from answering is ``storage_unavailable``; its details are in our log and
not in the answer.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn
from urllib.parse import quote, urlsplit

import aiohttp
import structlog
from yarl import URL

from sky.domain.job_errors import JobRefused
from sky.kit.clock import SECOND_US, Clock
from sky.store import s3_xml
from sky.store.sigv4 import (
    UNSIGNED,
    Credentials,
    NoCredentialsError,
    Wanted,
    full_url,
    presigned,
    signed_headers,
)

CONNECT_S = 5.0
REQUEST_S = 30.0
CREDENTIALS_S = 60.0
"""How long credentials are relied on without asking the chain again."""
CREDENTIALS_WAIT_S = 15.0
CONNECTIONS_MAX = 32
ANSWER_BYTES_MAX = 8 * 1024**2
PAGE_KEYS_MAX = 1_000
CHUNK_BYTES = 1024**2
AGAIN_S = 5.0
CHECKSUM = "x-amz-checksum-sha256"
BYTES = "application/octet-stream"
NOT_IMPLEMENTED = 501
_NOT_THAT_ONE = frozenset({404, 409, 412, NOT_IMPLEMENTED})
"""How a store refuses to write over what is not what it was said to be, or says that it never looks."""
NO_CREDENTIALS = "NoCredentials"
"""What we call it where nobody could sign; everything else has the bucket's own word."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a bucket is. ``prefix`` ends in a slash or is empty; ``endpoint``: None is AWS."""

    bucket: str
    prefix: str
    region: str
    endpoint: str | None = None

    @property
    def url(self) -> str:
        """What every address of the bucket begins with, with a slash at its end."""
        if self.endpoint is not None:
            return f"{self.endpoint.rstrip('/')}/{self.bucket}/"
        domain = "amazonaws.com.cn" if self.region.startswith("cn-") else "amazonaws.com"
        if "." in self.bucket:  # no certificate fits such a name
            return f"https://s3.{self.region}.{domain}/{self.bucket}/"
        return f"https://{self.bucket}.s3.{self.region}.{domain}/"


@dataclass(frozen=True, slots=True)
class Head:
    """What a bucket says of an object. ``sha256`` in hexadecimal digits; None: it keeps no such checksum."""

    size: int
    sha256: str | None


class Unavailable(JobRefused):
    """A bucket does not serve. ``why`` anybody may be told, ``cause`` and ``word`` (the bucket's own for
    it) only who operates it."""

    def __init__(self, why: str, cause: str, word: str) -> None:
        msg = f"the storage of artifacts does not serve now ({why}); nothing was lost, try again"
        super().__init__("storage_unavailable", msg, after_s=AGAIN_S)
        self.why, self.cause, self.word = why, cause, word


class Line:
    """Some requests to a bucket over the same connections. Each raises Unavailable."""

    def __init__(self, bucket: Bucket, session: aiohttp.ClientSession) -> None:
        self._bucket = bucket
        self._session = session

    async def head(self, key: str) -> Head | None:
        """What is at a key; None: nothing."""
        async with self._ask("HEAD", key, headers={"x-amz-checksum-mode": "ENABLED"}, missing=True) as answer:
            if answer.status == 404:
                return None
            length = answer.headers.get("content-length", "")
            if not length.isdigit():
                unavailable("the storage does not say how large an object is", key=key)
            checksum = answer.headers.get(CHECKSUM)
            return Head(int(length), None if checksum is None else checksum_in_hex(checksum))

    async def sha256(self, key: str) -> str | None:
        """The hash of what is at a key, read through; None: nothing is."""
        digest = hashlib.sha256()
        async with self._ask("GET", key, missing=True) as answer:
            if answer.status == 404:
                return None
            async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                digest.update(chunk)
        return digest.hexdigest()

    async def read(self, key: str, start: int) -> AsyncGenerator[bytes]:
        """What is at a key from a byte on, in pieces; none where nothing is."""
        headers = {"range": f"bytes={start}-"} if start else {}
        async with self._ask("GET", key, headers=headers, missing=True) as answer:
            if answer.status == 404:
                return
            if start and answer.status != 206:
                unavailable("it gives no part of an object", key=key)
            async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                yield chunk

    async def put_file(self, key: str, path: Path, sha256: str, size: int) -> None:
        """Write a file's content, whose hash and size are known; what has others is refused by the bucket."""
        checksum = base64.b64encode(bytes.fromhex(sha256)).decode()
        headers = {"content-length": str(size), "content-type": BYTES, CHECKSUM: checksum}
        with await asyncio.to_thread(path.open, "rb") as file:
            async with self._ask("PUT", key, headers=headers, body=file, digest=sha256):
                return

    async def put(self, key: str, body: bytes, media: str) -> None:
        """Write an object, over what was there."""
        async with self._ask("PUT", key, headers={"content-type": media}, body=body):
            return

    async def small(self, key: str) -> tuple[bytes, str] | None:
        """A small object, and the tag of this version of it; None: nothing is there."""
        async with self._ask("GET", key, missing=True) as answer:
            if answer.status == 404:
                return None
            return await _whole(answer), answer.headers.get("etag", "")

    async def put_if(self, key: str, body: bytes, media: str, tag: str | None) -> bool:
        """Write an object where there is none (``tag``: None) or over that version of it; False: somebody
        was a moment earlier. A store that cannot say so writes it in any case."""
        only = {"if-none-match": "*"} if tag is None else {"if-match": tag}
        headers = {"content-type": media, **only}
        async with self._ask("PUT", key, headers=headers, body=body, refused=_NOT_THAT_ONE) as answer:
            if answer.status not in _NOT_THAT_ONE:
                return True
            if answer.status != NOT_IMPLEMENTED:
                return False
        await self.put(key, body, media)
        return True

    async def delete(self, key: str) -> None:
        """Remove an object; one that is not there is removed."""
        async with self._ask("DELETE", key, missing=True):
            return

    async def page(self, prefix: str, after: str | None) -> s3_xml.Page:
        """A page of the keys that begin with ``prefix``, without the bucket's own prefix."""
        own = self._bucket.place.prefix
        query = {
            "list-type": "2",
            "encoding-type": "url",
            "max-keys": str(PAGE_KEYS_MAX),
            "prefix": own + prefix,
        }
        if after is not None:
            query["continuation-token"] = after
        async with self._ask("GET", None, query=query) as answer:
            body = await _whole(answer)
        try:
            page = s3_xml.page_of(body)
        except s3_xml.UnreadableError as error:
            unavailable(str(error))
        return page.without(own)

    @asynccontextmanager
    async def _ask(
        self,
        method: str,
        key: str | None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | BinaryIO = b"",
        digest: str | None = None,
        missing: bool = False,
        refused: frozenset[int] = frozenset(),
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """``digest``: the SHA-256 of a body that is a file; ``refused``: statuses that whoever asks reads."""
        wanted = Wanted(method, self._bucket.url_of(key), query or {}, headers or {})
        if isinstance(body, bytes):
            digest = hashlib.sha256(body).hexdigest()
        signed = await self._bucket.sign(wanted, digest or UNSIGNED)
        try:
            async with self._session.request(
                method,
                URL(full_url(wanted), encoded=True),
                headers=signed,
                data=body or None,
                allow_redirects=False,
            ) as answer:
                read = answer.status in refused or (missing and answer.status == 404)
                if answer.status >= 300 and not read:
                    await _refused(answer)
                yield answer
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            unavailable("it cannot be reached", cause=f"{type(error).__name__}: {error}", host=wanted.url)


class Bucket:
    """A bucket, and who we are to it. ``chain`` gives credentials, and may wait: it is called in a thread."""

    def __init__(self, place: Place, clock: Clock, chain: Callable[[], Credentials]) -> None:
        self.place = place
        self._clock = clock
        self._chain = chain
        self._known: Credentials | None = None
        self._asked_s = float("-inf")

    @asynccontextmanager
    async def line(self) -> AsyncGenerator[Line]:
        """Connections to the bucket, for as long as they are needed."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=REQUEST_S)
        connector = aiohttp.TCPConnector(limit=CONNECTIONS_MAX)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False, trust_env=False
        ) as session:
            yield Line(self, session)

    async def credentials(self) -> Credentials:
        """Who signs. Raises Unavailable when nobody can."""
        now_s = self._clock.monotonic_s()
        if self._known is None or now_s - self._asked_s > CREDENTIALS_S or self._over(self._known):
            try:
                async with asyncio.timeout(CREDENTIALS_WAIT_S):
                    self._known = await asyncio.to_thread(self._chain)
            except (NoCredentialsError, TimeoutError) as error:
                cause = str(error) or f"nothing came in {CREDENTIALS_WAIT_S:g} s"
                unavailable("its credentials cannot be had now", cause=cause, word=NO_CREDENTIALS)
            self._asked_s = now_s
        if self._over(self._known):
            why = "its credentials have expired"
            unavailable(why, cause="they were not renewed in time", word=NO_CREDENTIALS)
        return self._known

    def _over(self, known: Credentials) -> bool:
        return known.until_us is not None and known.until_us <= self._clock.now_us() + SECOND_US

    async def sign(self, wanted: Wanted, digest: str) -> dict[str, str]:
        """The headers with which a request is made now, whose body has that hash."""
        by = await self.credentials()
        return signed_headers(wanted, digest, by, self.place.region, self._clock.now_us())

    def address(self, wanted: Wanted, by: Credentials, until_us: int) -> str:
        """Where anybody may make that request until then, or until our credentials expire."""
        now_us = self._clock.now_us()
        seconds = (min(until_us, by.until_us or until_us) - now_us) // SECOND_US
        return presigned(wanted, by, self.place.region, now_us, max(1, seconds))

    def url_of(self, key: str | None) -> str:
        """The address of a key, spelled as it is signed; None: of the bucket itself."""
        return self.place.url + ("" if key is None else quote(self.place.prefix + key, safe="/-_.~"))


def unavailable(why: str, *, cause: str = "", word: str = "", **known: str) -> NoReturn:
    """Raise what a storage that does not serve means, and write the details down."""
    _log.warning("storage.unavailable", why=why, cause=cause, **known)
    raise Unavailable(why, cause, word)


def checksum_in_hex(checksum: str) -> str | None:
    """A checksum of S3 in hexadecimal digits; None: it is no hash of the whole content."""
    try:
        raw = base64.b64decode(checksum, validate=True)
    except ValueError:
        return None
    return raw.hex() if len(raw) == hashlib.sha256().digest_size else None


async def _whole(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
        body += chunk
        if len(body) > ANSWER_BYTES_MAX:
            unavailable("its answer is too long", host=urlsplit(str(answer.url)).netloc)
    return bytes(body)


_WORDS = {
    "RequestTimeTooSkewed": "the clock of this computer is wrong",
    "NoSuchBucket": "its bucket does not exist",
    "PermanentRedirect": "its bucket is in another region",
    "SlowDown": "it is asked too much at once",
}
_BY_STATUS = {301: "PermanentRedirect", 307: "PermanentRedirect", 404: "NoSuchBucket"}


async def _refused(answer: aiohttp.ClientResponse) -> NoReturn:
    code = s3_xml.error_code(await _whole(answer)) or _BY_STATUS.get(answer.status, "")
    why = _WORDS.get(code) or f"it answered {answer.status} {code}".rstrip()
    cause = f"{answer.method} {answer.status} {code}".rstrip()
    unavailable(why, cause=cause, word=code, host=urlsplit(str(answer.url)).netloc)
