"""Waiting for what was asked for: results, what requests say, what jobs print.

Decides: where live output goes, and what an interrupt says. Never: ends a request or a job because nobody
waits any more. Follows: a server that is killed and comes back is not noticed, except as time; no line is
missing or doubled.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar, overload

from sky.client import request_flows as flows
from sky.client import request_streams as streams
from sky.client.exceptions import JobExitCode
from sky.client.records import RequestId
from sky.client.request_link import Link, link
from sky.client.request_streams import Writable
from sky.wire import requests as wire

T = TypeVar("T")


@overload
def get(request_id: RequestId[T]) -> T: ...
@overload
def get(request_id: str) -> Any: ...
def get(request_id: str) -> Any:
    """Wait for a request's end; its result. The beginning of an id is enough where no other one begins so.

    Raises what the request failed with, RequestCancelled, RequestNotFound, ApiServerConnectionError.
    Interrupted, the request goes on.
    """
    known = flows.known_end(request_id)
    if known is not None:
        return flows.settled(known)
    with goes_on(request_id):
        return link().run(flows.get(request_id))


def stream_and_get(
    request_id: str | None = None,
    log_path: str | None = None,
    tail: int | None = None,
    follow: bool = True,
    output_stream: Writable | None = None,
    relay_rich_status: bool = False,
) -> Any:
    """Write what a request says to ``output_stream`` (standard output), and return its result.

    ``request_id`` None: the newest request. ``tail``: only so many of the lines that are there already.
    ``follow`` False: what is there now; None while the request is under way. ``log_path``: the output of a
    job instead, as its record names it. ``relay_rich_status`` is taken, and changes nothing: there are only
    lines. Raises as ``get`` does.
    """
    del relay_rich_status
    silent = flows.silent_end(request_id)
    if silent is not None:
        return flows.settled(silent)
    server = link()
    if log_path is not None:
        cluster_name, job_id = flows.job_of_log_path(log_path)
        tail_logs(cluster_name, job_id, follow, tail or 0, output_stream)
        return None
    request_id = request_id or server.run(flows.newest())
    with goes_on(request_id):
        record = _write_request(server, request_id, tail, output_stream, follow=follow)
    return flows.settled(record) if record.finished_at is not None else None


def _write_request(
    server: Link, request_id: str, tail: int | None, output: Writable | None, *, follow: bool
) -> wire.RequestRecord:
    out, after = output or sys.stdout, 0
    if tail is not None:
        there = streams.of_request(request_id, follow=False)
        for text in deque(streams.waiting(server, there), maxlen=tail):
            out.write(f"{text}\n")
        after = there.after
        if there.end is not None and (there.end.finished_at is not None or not follow):
            return there.end
    lines = streams.of_request(request_id, follow=follow, after=after)
    for text in streams.waiting(server, lines):
        out.write(f"{text}\n")
    return streams.end_of(lines)


@contextmanager
def goes_on(request_id: str) -> Generator[None]:
    """Ctrl-C ends the waiting and not the request: say so."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write(
            f"\nrequest {request_id} goes on: `sky api logs {request_id}` follows it, "
            f"`sky api cancel {request_id}` ends it\n"
        )
        raise


@overload
def tail_logs(
    cluster_name: str,
    job_id: int | None,
    follow: bool,
    tail: int = 0,
    output_stream: Writable | None = None,
    *,
    preload_content: Literal[True] = True,
) -> int: ...
@overload
def tail_logs(
    cluster_name: str,
    job_id: int | None,
    follow: bool,
    tail: int = 0,
    output_stream: Writable | None = None,
    *,
    preload_content: bool,
) -> int | Iterator[str]: ...
def tail_logs(
    cluster_name: str,
    job_id: int | None,
    follow: bool,
    tail: int = 0,
    output_stream: Writable | None = None,
    *,
    preload_content: bool = True,
) -> int | Iterator[str]:
    """Write what a job prints to ``output_stream`` (standard output), to its end where ``follow`` says so.

    ``job_id`` None: the newest. ``tail``: only so many of the last lines; 0 for all. Returns 0 when the job
    succeeded, 100 when it failed, 101 while it is under way, 103 when it was cancelled. ``preload_content``
    False: returns an iterator over the lines instead, and writes nothing.
    Raises ClusterDoesNotExist, JobNotFoundError.
    """
    server = link()
    number = server.run(flows.newest_job(cluster_name)) if job_id is None else job_id
    lines = streams.of_job(cluster_name, number, follow=follow, tail=tail)
    if not preload_content:
        return (f"{text}\n" for text in streams.waiting(server, lines))
    out = output_stream or sys.stdout
    for text in streams.waiting(server, lines):
        out.write(f"{text}\n")
    return JobExitCode.from_job_status(streams.end_of(lines).status).value
