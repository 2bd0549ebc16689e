"""A bucket on loopback that checks what S3 checks, and takes a request only when its signature is right byte
for byte.

Decides: signatures of version 4 in the query and in the header, times, signed headers, checksums, lists page
by page, and writing once where it is asked for. Never: takes what a real bucket would refuse.
Follows: the checks are written from the protocol alone and share nothing with what they check.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, unquote
from xml.sax.saxutils import escape

REGION, BUCKET = "eu-test-1", "files"
KEY, SECRET = "AKIDEXAMPLE", "a/secret+key"
BUCKET_SETTINGS = {
    "SKY_ARTIFACTS_REGION": REGION,
    "AWS_ACCESS_KEY_ID": KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
"""What a daemon is told to use it, and nothing of this computer; its endpoint is where it is served."""
SKEW = timedelta(minutes=15)
CHECKSUM = "x-amz-checksum-sha256"
Answer = tuple[int, dict[str, str], bytes]


class Refusal(Exception):
    """What the bucket answers instead."""

    def __init__(self, status: int, code: str, message: str = "") -> None:
        super().__init__(code)
        self.status, self.code, self.message = status, code, message


@dataclass
class Held:
    """An object."""

    content: bytes
    checksum: str | None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    since: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass
class FakeS3:
    """The bucket: what it holds, whom it knows, and how it misbehaves."""

    keys: dict[str, tuple[str, str | None]] = field(default_factory=lambda: {KEY: (SECRET, None)})
    objects: dict[str, Held] = field(default_factory=dict[str, Held])
    asked: list[str] = field(default_factory=list[str])
    clock_ahead: timedelta = timedelta()
    page_keys: int = 1_000
    forgets_checksums: bool = False
    fails: str | None = None
    denies: str | None = None
    """The method that nobody has the right to."""
    compares: bool = True
    """Whether it knows conditional writes."""
    spoils: str | None = None
    took: Callable[[], None] | None = None
    """What happens between an upload and its answer."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def now(self) -> datetime:
        """The bucket's own time."""
        return datetime.now(UTC) + self.clock_ahead


@contextmanager
def serving(bucket: FakeS3, port: int = 0) -> Iterator[str]:
    """The bucket behind an address, for as long as the block runs."""
    server = _Server(("127.0.0.1", port), _Handler)
    server.bucket = bucket
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128
    bucket: FakeS3


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    timeout = 30

    def log_message(self, *args: Any) -> None:
        """Nothing is printed."""

    def answer(self) -> None:
        """Check a request, do it, answer."""
        body = self._body()
        path, _, query = self.path.partition("?")
        try:
            status, headers, content = self._done(path, _pairs(query), body)
        except Refusal as refusal:
            xml = f"<Error><Code>{refusal.code}</Code><Message>{escape(refusal.message)}</Message></Error>"
            status, headers, content = refusal.status, {"content-type": "application/xml"}, xml.encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "content-length" not in headers:
            self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _body(self) -> bytes:
        length = self.headers.get("content-length")
        if length is None:
            return b""
        return self.rfile.read(int(length))

    def _done(self, path: str, query: list[tuple[str, str]], body: bytes) -> Answer:
        bucket = self.server.bucket
        bucket.asked.append(f"{self.command} {unquote(path)}")
        if bucket.fails is not None:
            raise Refusal(503 if bucket.fails == "SlowDown" else 403, bucket.fails)
        if bucket.denies == self.command:
            raise Refusal(403, "AccessDenied")
        sent = {name.lower(): " ".join(value.split()) for name, value in self.headers.items()}
        payload = check(bucket, self.command, path, query, sent)
        if payload not in ("UNSIGNED-PAYLOAD", hashlib.sha256(body).hexdigest()):
            raise Refusal(400, "XAmzContentSHA256Mismatch")
        own, _, key = path.removeprefix("/").partition("/")
        if own != BUCKET:
            raise Refusal(404, "NoSuchBucket")
        asked = dict(query)
        if not key:
            return 200, {"content-type": "application/xml"}, _page(bucket, asked)
        with bucket.lock:
            return self._object(bucket, unquote(key, errors="strict"), asked, sent, body)

    def _object(
        self, bucket: FakeS3, key: str, asked: dict[str, str], sent: dict[str, str], body: bytes
    ) -> Answer:
        if self.command == "PUT":
            answer = _put(bucket, key, sent, body)
            if bucket.took is not None:
                bucket.took()
            return answer
        if self.command == "DELETE":
            bucket.objects.pop(key, None)
            return 204, {}, b""
        held = bucket.objects.get(key)
        if held is None:
            raise Refusal(404, "NoSuchKey")
        content = held.content
        part = re.fullmatch(r"bytes=([0-9]+)-", sent.get("range", ""))
        if part is not None:
            content = content[int(part[1]) :]
        headers = {"content-length": str(len(content)), "etag": _tag(held.content)}
        if held.checksum and sent.get("x-amz-checksum-mode") == "ENABLED":
            headers[CHECKSUM] = held.checksum
        for name in ("content-disposition", "content-type"):
            if f"response-{name}" in asked:
                headers[name] = asked[f"response-{name}"]
        return 200 if part is None else 206, headers, content


for _method in ("GET", "HEAD", "PUT", "DELETE"):
    setattr(_Handler, f"do_{_method}", _Handler.answer)


def _put(bucket: FakeS3, key: str, sent: dict[str, str], body: bytes) -> Answer:
    if len(key.encode()) > 1024:
        raise Refusal(400, "KeyTooLongError")
    if "content-length" not in sent:
        raise Refusal(411, "MissingContentLength")
    real = base64.b64encode(hashlib.sha256(body).digest()).decode()
    if CHECKSUM in sent and not bucket.forgets_checksums and sent[CHECKSUM] != real:
        raise Refusal(400, "BadDigest", "the checksum did not match what was calculated")
    if not bucket.compares and sent.keys() & {"if-none-match", "if-match"}:
        raise Refusal(501, "NotImplemented")
    if sent.get("if-none-match") == "*" and key in bucket.objects:
        raise Refusal(412, "PreconditionFailed")
    if "if-match" in sent and key not in bucket.objects:
        raise Refusal(404, "NoSuchKey")
    if "if-match" in sent and sent["if-match"] != _tag(bucket.objects[key].content):
        raise Refusal(412, "PreconditionFailed")
    if bucket.spoils is not None and bucket.spoils in key:
        body = body[:-1]
    kept = None if bucket.forgets_checksums else sent.get(CHECKSUM)
    bucket.objects[key] = Held(body, kept, sent)
    return 200, {"etag": _tag(body)}, b""


def _tag(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'


def _page(bucket: FakeS3, asked: dict[str, str]) -> bytes:
    if asked.get("list-type") != "2" or asked.get("encoding-type") != "url":
        raise Refusal(501, "NotImplemented")
    prefix = asked.get("prefix", "")
    with bucket.lock:
        keys = sorted((k for k in bucket.objects if k.startswith(prefix)), key=str.encode)
        if token := asked.get("continuation-token"):
            after = base64.b64decode(token).decode()
            keys = [key for key in keys if key.encode() > after.encode()]
        limit = min(int(asked.get("max-keys", "1000")), bucket.page_keys, 1_000)
        shown = keys[:limit]
        rows = "".join(
            f"<Contents><Key>{escape(quote(key, safe='/'))}</Key>"
            f"<LastModified>{bucket.objects[key].since:%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
            f"<Size>{len(bucket.objects[key].content)}</Size></Contents>"
            for key in shown
        )
    more = len(keys) > limit
    following = base64.b64encode(shown[-1].encode()).decode() if more else ""
    token = f"<NextContinuationToken>{following}</NextContinuationToken>" if more else ""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>{BUCKET}</Name><Prefix>{escape(quote(prefix, safe='/'))}</Prefix>"
        f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}</ListBucketResult>"
    ).encode()


# ── signatures ──────────────────────────────────────────────────────────────────────────────────


def _pairs(query: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for part in query.split("&") if query else []:
        name, _, value = part.partition("=")
        found.append((unquote(name), unquote(value)))
    return found


def _spelled(text: str) -> str:
    return quote(text, safe="-_.~")


def check(bucket: FakeS3, method: str, path: str, query: list[tuple[str, str]], sent: dict[str, str]) -> str:
    """The hash of the body that was signed; raises Refusal for what S3 refuses."""
    asked = dict(query)
    if len(asked) != len(query):
        raise Refusal(400, "InvalidArgument", "a parameter twice")
    if "X-Amz-Signature" in asked:
        given = asked["X-Amz-Signature"]
        signed = [(name, value) for name, value in query if name != "X-Amz-Signature"]
        names = asked.get("X-Amz-SignedHeaders", "").split(";")
        credential, moment = asked.get("X-Amz-Credential", ""), asked.get("X-Amz-Date", "")
        token, payload = asked.get("X-Amz-Security-Token"), "UNSIGNED-PAYLOAD"
        if asked.get("X-Amz-Algorithm") != "AWS4-HMAC-SHA256":
            raise Refusal(400, "AuthorizationQueryParametersError")
        _in_time(bucket, moment, asked.get("X-Amz-Expires", ""))
    else:
        said = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=(\S+), SignedHeaders=(\S+), Signature=([0-9a-f]{64})",
            sent.get("authorization", ""),
        )
        if said is None:
            raise Refusal(403, "AccessDenied", "nothing is signed")
        credential, names, given, signed = said[1], said[2].split(";"), said[3], query
        moment, token = sent.get("x-amz-date", ""), sent.get("x-amz-security-token")
        payload = sent.get("x-amz-content-sha256", "")
        if abs(bucket.now() - _time(moment)) > SKEW:
            raise Refusal(403, "RequestTimeTooSkewed")
    who, day, region, service, end = (credential.split("/") + [""] * 5)[:5]
    if (region, service, end, day) != (REGION, "s3", "aws4_request", moment[:8]):
        raise Refusal(400, "AuthorizationHeaderMalformed", credential)
    if who not in bucket.keys:
        raise Refusal(403, "InvalidAccessKeyId")
    secret, wanted_token = bucket.keys[who]
    if token != wanted_token:
        raise Refusal(403, "InvalidToken")
    unsigned = [name for name in sent if name.startswith("x-amz-") and name not in names]
    if unsigned or "host" not in names or names != sorted(names):
        raise Refusal(403, "AccessDenied", f"headers present and not signed: {unsigned}")
    if missing := [name for name in names if name not in sent]:
        raise Refusal(403, "SignatureDoesNotMatch", f"signed and not sent: {missing}")
    canonical = "\n".join(
        (
            method,
            "/".join(_spelled(unquote(part)) for part in path.split("/")),
            "&".join(f"{n}={v}" for n, v in sorted((_spelled(n), _spelled(v)) for n, v in signed)),
            "".join(f"{name}:{sent[name]}\n" for name in names),
            ";".join(names),
            payload,
        )
    )
    scope = f"{day}/{region}/s3/aws4_request"
    text = "\n".join(("AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{secret}".encode()
    for part in (day, region, "s3", "aws4_request", text):
        key = hmac.digest(key, part.encode(), "sha256")
    if not hmac.compare_digest(key.hex(), given):
        raise Refusal(403, "SignatureDoesNotMatch", canonical)
    return payload


def _time(moment: str) -> datetime:
    try:
        return datetime.strptime(moment, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise Refusal(403, "AccessDenied", "no date") from None


def _in_time(bucket: FakeS3, moment: str, seconds: str) -> None:
    if not seconds.isdigit() or not 1 <= int(seconds) <= 604_800:
        raise Refusal(400, "AuthorizationQueryParametersError")
    begun = _time(moment)
    if begun > bucket.now() + SKEW:
        raise Refusal(403, "AccessDenied", "Request is not valid yet")
    if bucket.now() > begun + timedelta(seconds=int(seconds)):
        raise Refusal(403, "AccessDenied", "Request has expired")
