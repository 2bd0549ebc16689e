"""Waiting in an event loop for what was asked for: results, what requests say, what jobs print.

Decides: when a request's lines are streamed, and where they go. Never: ends a request or a job because nobody
waits any more. Follows: the steps are those of ``sdk_waiting``, driven by the asynchronous driver.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from sky.client import request_flows as flows
from sky.client import request_streams as streams
from sky.client.aside import aside
from sky.client.exceptions import JobExitCode
from sky.client.flows import Flow
from sky.client.records import RequestId
from sky.client.request_link import Link, alink
from sky.client.request_streams import Writable
from sky.wire import requests as wire

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """How what a request says is streamed, as ``stream_and_get`` takes it."""

    log_path: str | None = None
    tail: int | None = None
    follow: bool = True
    output_stream: Writable | None = None


DEFAULT_STREAM_CONFIG = StreamConfig()


async def get(request_id: str) -> Any:
    """Wait for a request's end; its result. Raises as ``sdk.get`` does."""
    known = flows.known_end(request_id)
    if known is not None:
        return flows.settled(known)
    return await (await alink()).arun(flows.get(request_id))


async def stream_and_get(
    request_id: str | None = None,
    log_path: str | None = None,
    tail: int | None = None,
    follow: bool = True,
    output_stream: Writable | None = None,
) -> Any:
    """Write what a request says to ``output_stream`` (standard output), and return its result.

    Takes and raises what ``sdk.stream_and_get`` does.
    """
    silent = flows.silent_end(request_id)
    if silent is not None:
        return flows.settled(silent)
    server = await alink()
    if log_path is not None:
        cluster_name, job_id = flows.job_of_log_path(log_path)
        await tail_logs(cluster_name, job_id, follow, tail or 0, output_stream)
        return None
    request_id = request_id or await server.arun(flows.newest())
    record = await _write_request(server, request_id, tail, output_stream, follow=follow)
    return flows.settled(record) if record.finished_at is not None else None


async def _write_request(
    server: Link, request_id: str, tail: int | None, output: Writable | None, *, follow: bool
) -> wire.RequestRecord:
    out, after = output or sys.stdout, 0
    if tail is not None:
        there = streams.of_request(request_id, follow=False)
        last = deque([text async for text in streams.awaiting(server, there)], maxlen=tail)
        for text in last:
            out.write(f"{text}\n")
        after = there.after
        end = streams.end_of(there)
        if end.finished_at is not None or not follow:
            return end
    lines = streams.of_request(request_id, follow=follow, after=after)
    async for text in streams.awaiting(server, lines):
        out.write(f"{text}\n")
    return streams.end_of(lines)


async def final(flow: Flow[RequestId[T]], config: StreamConfig | None, *, files: bool = False) -> T:
    """The result of what ``flow`` asks for. ``files``: local files are read for it."""
    server = await alink()
    request_id = await aside(partial(server.run, flow)) if files else await server.arun(flow)
    if config is None:
        return await get(request_id)
    return await stream_and_get(request_id, config.log_path, config.tail, config.follow, config.output_stream)


async def tail_logs(
    cluster_name: str,
    job_id: int | None,
    follow: bool,
    tail: int = 0,
    output_stream: Writable | None = None,
) -> int:
    """Write what a job prints. Takes, returns and raises what ``sdk.tail_logs`` does."""
    server = await alink()
    number = await server.arun(flows.newest_job(cluster_name)) if job_id is None else job_id
    lines = streams.of_job(cluster_name, number, follow=follow, tail=tail)
    out = output_stream or sys.stdout
    async for text in streams.awaiting(server, lines):
        out.write(f"{text}\n")
    return JobExitCode.from_job_status(streams.end_of(lines).status).value
