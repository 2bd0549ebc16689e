"""The server itself, and what it keeps, for programs that live in an event loop.

Decides: nothing that ``sdk_server`` does not. Never: blocks the loop: what waits for processes and files does
so beside it. Follows: what goes on is what ``sdk_server`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sky.client import sdk_server
from sky.client.aside import aside
from sky.client.records import RequestRecord, ServerInfo
from sky.client.request_link import alink
from sky.client.sdk_async_waiting import DEFAULT_STREAM_CONFIG, StreamConfig, get


async def api_status(
    request_ids: Sequence[str] | str | None = None,
    all_status: bool = False,
    limit: int | None = None,
    fields: Sequence[str] | None = None,
    cluster_name: str | None = None,
) -> list[RequestRecord]:
    """Requests, newest first. Takes what ``sdk.api_status`` does."""
    return await aside(partial(sdk_server.api_status, request_ids, all_status, limit, fields, cluster_name))


async def api_cancel(
    request_ids: Sequence[str] | str | None = None,
    all_users: bool = False,
    silent: bool = False,
    stream_logs: StreamConfig | None = DEFAULT_STREAM_CONFIG,
) -> list[str]:
    """End requests: these, or all of one's own; the ids of those that were under way."""
    del stream_logs
    server = await alink(start=False)
    ended = sdk_server.cancelling(request_ids, all_users=all_users, silent=silent)
    return await get(await server.arun(ended))


async def api_info() -> ServerInfo:
    """What the server is, where, and who one is there."""
    return await aside(sdk_server.api_info)


async def api_login(
    endpoint: str | None = None,
    relogin: bool = False,
    service_account_token: str | None = None,
    no_browser: bool = False,
) -> ServerInfo:
    """Use the server at ``endpoint`` from now on."""
    return await aside(partial(sdk_server.api_login, endpoint, relogin, service_account_token, no_browser))


async def api_logout() -> None:
    """Forget the server that is logged in to."""
    await aside(sdk_server.api_logout)


async def api_start(
    *,
    deploy: bool = False,
    host: str = sdk_server.LOCAL_HOST,
    foreground: bool = False,
    metrics: bool = False,
    metrics_port: int | None = None,
    enable_basic_auth: bool = False,
    port: int | None = None,
) -> None:
    """Start this user's own server, or find that it runs."""
    await aside(
        partial(
            sdk_server.api_start,
            deploy=deploy,
            host=host,
            foreground=foreground,
            metrics=metrics,
            metrics_port=metrics_port,
            enable_basic_auth=enable_basic_auth,
            port=port,
        )
    )


async def api_stop() -> None:
    """Stop this user's own server."""
    await aside(sdk_server.api_stop)


async def api_server_logs(follow: bool = True, tail: int | None = None) -> None:
    """Write the log of the server to standard output."""
    await aside(partial(sdk_server.api_server_logs, follow, tail))


async def dashboard(starting_page: str | None = None) -> None:
    """Open the server's dashboard in a browser."""
    await aside(partial(sdk_server.dashboard, starting_page))


async def download_logs(cluster_name: str, job_ids: Sequence[int] | None) -> dict[str, str]:
    """Copy the logs of jobs (None: all) to ``~/sky_logs``: the folder of each, by the job's number."""
    return await aside(partial(sdk_server.download_logs, cluster_name, job_ids))
