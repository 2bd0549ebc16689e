"""Every operation on requests, as values.

Decides: paths, headers and bodies of face 2, and which server's version will do. Never: opens a connection or
waits. Follows: a submission carries its Idempotency-Key from birth, so that sending it twice is one request;
both sides' versions travel in headers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sky.client.exceptions import APINotSupportedError
from sky.client.request import (
    ANSWER_S,
    IS_JSON,
    TRANSFER_S,
    Body,
    Call,
    Reply,
    as_content,
    as_nothing,
    encoder,
    keyed,
    query_of,
)
from sky.client.request import as_json as read_as
from sky.kit.version import VERSION
from sky.wire import requests as wire
from sky.wire.request_answers import DownloadLogsBody, Uploaded

T = TypeVar("T")

VERSION_VARIABLE = "SKY_CLIENT_API_VERSION"
"""For trying out how servers meet other clients: what this one says that it speaks."""


def spoken() -> int:
    """The version of the interface that this client speaks."""
    told = os.environ.get(VERSION_VARIABLE, "")
    return int(told) if told.isdigit() else wire.API_VERSION


def _ours() -> tuple[tuple[str, str], ...]:
    return ((wire.VERSION_HEADER, str(spoken())), (wire.RELEASE_HEADER, VERSION))


def _understood(decode: Callable[[Reply], T]) -> Callable[[Reply], T]:
    """The same reading, of an answer from a server that is not too old."""

    def read(reply: Reply) -> T:
        told = reply.headers.get(wire.VERSION_HEADER, "")
        if told.isdigit() and int(told) < wire.MIN_COMPATIBLE_API_VERSION:
            raise APINotSupportedError(
                f"the server speaks version {told} of the interface (release "
                f"{reply.headers.get(wire.RELEASE_HEADER, 'unknown')}), and this client {spoken()}, or "
                f"{wire.MIN_COMPATIBLE_API_VERSION} at least (release {VERSION}); upgrade the server"
            )
        return decode(reply)

    return read


def _get(path: str, kind: type[T], *, timeout_s: float = ANSWER_S, **query: Any) -> Call[T]:
    return Call("GET", path, _understood(read_as(kind)), query_of(**query), _ours(), timeout_s=timeout_s)


def submit(name: str, body: wire.Body, key: str | None = None) -> Call[wire.Submitted]:
    """Ask for something by its name, under this key or a fresh one."""
    headers = keyed(key, IS_JSON, *_ours())
    return Call("POST", f"/{name}", _understood(read_as(wire.Submitted)), (), headers, encoder.encode(body))


def get_request(request_id: str, wait: float) -> Call[wire.RequestRecord]:
    """A request once it is over, or as it is after ``wait`` seconds."""
    return _get(
        "/api/get", wire.RequestRecord, timeout_s=wait + ANSWER_S, request_id=request_id, wait=f"{wait:g}"
    )


def stream_request(request_id: str, after: int, *, follow: bool) -> Call[None]:
    """What a request says behind a line, as JSON lines."""
    query = query_of(request_id=request_id, after=after, follow=follow)
    return Call("GET", "/api/stream", as_nothing, query, _ours())


def list_requests(
    ids: Sequence[str] = (),
    *,
    all_status: bool = False,
    all_users: bool = False,
    cluster_name: str | None = None,
    limit: int | None = None,
) -> Call[wire.RequestList]:
    """Some requests, newest first."""
    query = (
        *(("request_ids", one) for one in ids),
        *query_of(all_status=all_status, all_users=all_users, cluster_name=cluster_name, limit=limit),
    )
    return Call("GET", "/api/status", _understood(read_as(wire.RequestList)), query, _ours())


def cancel_requests(ids: Sequence[str] | None, *, all_users: bool) -> Call[wire.Cancelled]:
    """End requests; None: all of one's own."""
    body = wire.CancelRequests(request_ids=None if ids is None else tuple(ids), all_users=all_users)
    headers = (IS_JSON, *_ours())
    return Call(
        "POST", "/api/cancel", _understood(read_as(wire.Cancelled)), (), headers, encoder.encode(body)
    )


def health() -> Call[wire.Health]:
    """What a server is, and what it speaks."""
    return _get("/api/health", wire.Health)


def stream_logs(body: wire.LogsBody, after: int) -> Call[None]:
    """What a job prints behind a place, as JSON lines."""
    return Call("POST", "/logs", as_nothing, query_of(after=after), (IS_JSON, *_ours()), encoder.encode(body))


def stream_server_log(after: int, *, follow: bool, tail: int) -> Call[None]:
    """What the server logs behind a place, or the last lines of it, as JSON lines."""
    query = query_of(after=after, follow=follow, tail=tail)
    return Call("GET", "/api/server_logs", as_nothing, query, _ours())


def upload(sha256: str, archive: Body) -> Call[Uploaded]:
    """Store an archive of files under its hash; without content: ask whether it is stored. That is refused
    as ``hash_mismatch`` when it is not."""
    headers = (("Content-Type", "application/gzip"), *_ours())
    query = query_of(sha256=sha256)
    return Call("POST", "/upload", read_as(Uploaded), query, headers, archive, timeout_s=TRANSFER_S)


def download_logs(cluster_name: str, job_ids: Sequence[int] | None) -> Call[bytes]:
    """The logs of jobs, as a gzipped tar."""
    body = DownloadLogsBody(cluster_name=cluster_name, job_ids=None if job_ids is None else tuple(job_ids))
    headers = (IS_JSON, *_ours())
    return Call("POST", "/download_logs", as_content, (), headers, encoder.encode(body), timeout_s=TRANSFER_S)
