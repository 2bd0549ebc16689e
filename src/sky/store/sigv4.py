"""Signs requests to a bucket: Signature Version 4 of S3, in the query or in a header.

Decides: what is signed (method, host, path, query and every header that is given) and how it is spelled.
Never: sends anything, or reads a clock. Follows: a signed address is good for that one request, until its
time is over; one changed character makes it worthless.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import quote, urlsplit

ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED = "UNSIGNED-PAYLOAD"
EXPIRES_S_MAX = 7 * 24 * 3600
"""No store accepts a signed address for longer."""
_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who signs. ``until_us`` is when they expire (None: never)."""

    access_key: str
    secret_key: str
    token: str | None = None
    until_us: int | None = None

    def __repr__(self) -> str:
        return f"Credentials({self.access_key!r})"


class NoCredentialsError(Exception):
    """No credentials can be had; the message says why and where they are looked for."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request that is to be signed. ``url`` has its path quoted and no query; ``headers`` are sent too."""

    method: str
    url: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


def presigned(wanted: Wanted, by: Credentials, region: str, now_us: int, expires_s: int) -> str:
    """The address at which that request may be made, by anybody, for so many seconds."""
    if not 1 <= expires_s <= EXPIRES_S_MAX:
        msg = f"an address is good for 1 to {EXPIRES_S_MAX} seconds; {expires_s} were asked for"
        raise ValueError(msg)
    moment = _moment(now_us)
    headers = _lowered(wanted)
    query = {
        **wanted.query,
        "X-Amz-Algorithm": ALGORITHM,
        "X-Amz-Credential": f"{by.access_key}/{_scope(moment, region)}",
        "X-Amz-Date": moment,
        "X-Amz-Expires": str(expires_s),
        "X-Amz-SignedHeaders": ";".join(sorted(headers)),
    }
    if by.token is not None:
        query["X-Amz-Security-Token"] = by.token
    signature = _signature(wanted, query, headers, UNSIGNED, by, region, moment)
    return f"{wanted.url}?{_query(query)}&X-Amz-Signature={signature}"


def signed_headers(wanted: Wanted, digest: str, by: Credentials, region: str, now_us: int) -> dict[str, str]:
    """The headers with which that request is made now, the given ones among them; ``digest`` is the SHA-256
    of its body."""
    moment = _moment(now_us)
    more = {"x-amz-content-sha256": digest, "x-amz-date": moment}
    if by.token is not None:
        more["x-amz-security-token"] = by.token
    full = Wanted(wanted.method, wanted.url, wanted.query, {**wanted.headers, **more})
    headers = _lowered(full)
    signature = _signature(full, wanted.query, headers, digest, by, region, moment)
    names = ";".join(sorted(headers))
    credential = f"{by.access_key}/{_scope(moment, region)}"
    said = f"{ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "authorization": said}


def full_url(wanted: Wanted) -> str:
    """The address of a request, its query spelled as it is signed."""
    return f"{wanted.url}?{_query(wanted.query)}" if wanted.query else wanted.url


def _moment(now_us: int) -> str:
    return datetime.fromtimestamp(now_us // _SECOND_US, UTC).strftime("%Y%m%dT%H%M%SZ")


def _scope(moment: str, region: str) -> str:
    return f"{moment[:8]}/{region}/s3/aws4_request"


def _lowered(wanted: Wanted) -> dict[str, str]:
    given = {name.lower(): " ".join(value.split()) for name, value in wanted.headers.items()}
    return {**given, "host": urlsplit(wanted.url).netloc}


def _query(query: Mapping[str, str]) -> str:
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in query.items())
    return "&".join(f"{name}={value}" for name, value in pairs)


def _signature(
    wanted: Wanted,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    payload: str,
    by: Credentials,
    region: str,
    moment: str,
) -> str:
    names = sorted(headers)
    spelled = "".join(f"{name}:{headers[name]}\n" for name in names)
    path = urlsplit(wanted.url).path or "/"
    request = "\n".join((wanted.method, path, _query(query), spelled, ";".join(names), payload))
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join((ALGORITHM, moment, _scope(moment, region), digest))
    return hmac.new(_key(by.secret_key, moment[:8], region), text.encode(), hashlib.sha256).hexdigest()


@lru_cache(maxsize=8)
def _key(secret: str, day: str, region: str) -> bytes:
    key = b"AWS4" + secret.encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key
