"""The server itself, and what it keeps: start, stop, log in, its requests, the logs of jobs.

Decides: which of these may start a server (only ``api_start``). Never: touches a server that was started
elsewhere. Follows: a login is tried out before it is kept.
"""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
import webbrowser
from collections.abc import Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sky.client import calls_requests as calls
from sky.client import daemon, endpoints
from sky.client import request_flows as flows
from sky.client import request_streams as streams
from sky.client.errors import DaemonStartFailed
from sky.client.exceptions import InvalidArgument, NotSupportedError
from sky.client.flows import Flow, ask
from sky.client.http import Http
from sky.client.lists import names
from sky.client.records import RequestId, RequestRecord, ServerInfo, request_record
from sky.client.request_link import FIRST_PATIENCE_S, Link, link
from sky.client.request_logs import unpack_logs
from sky.wire import requests as wire

TAIL_LINES_MAX = 100_000
LOCAL_HOST = "127.0.0.1"
EVERY_HOST = str(IPv4Address(0))


def api_status(
    request_ids: Sequence[str] | str | None = None,
    all_status: bool = False,
    limit: int | None = None,
    fields: Sequence[str] | None = None,
    cluster_name: str | None = None,
) -> list[RequestRecord]:
    """Requests, newest first: those under way, or ``all_status``; or these, by ids or how they begin.

    ``fields``: only these of each. Raises RequestNotFound.
    """
    ids = names("request_ids", request_ids) or ()
    call = calls.list_requests(
        ids, all_status=all_status or bool(ids), cluster_name=cluster_name, limit=limit
    )
    found = [request_record(one) for one in link(start=False).run(ask(call)).items]
    return found if fields is None else [_only(record, fields) for record in found]


def _only(record: RequestRecord, fields: Sequence[str]) -> RequestRecord:
    for name in fields:
        if name not in record:
            raise InvalidArgument(f"requests have no field {name!r}; they have {', '.join(record)}")
    return RequestRecord({name: record[name] for name in fields})


def api_cancel(
    request_ids: Sequence[str] | str | None = None, all_users: bool = False, silent: bool = False
) -> RequestId[list[str]]:
    """End requests: these, or all of one's own; what they began ends too.

    The result is the ids of those that were under way. ``silent``: say nothing about it.
    Raises RequestNotFound.
    """
    return link(start=False).run(cancelling(request_ids, all_users=all_users, silent=silent))


def cancelling(
    request_ids: Sequence[str] | str | None, *, all_users: bool, silent: bool
) -> Flow[RequestId[list[str]]]:
    """The same, for either driver."""
    ended = yield from flows.cancel(names("request_ids", request_ids), all_users=all_users)
    if not silent:
        shown = ", ".join(ended) or "no request: none of them was under way"
        sys.stderr.write(f"cancelled {shown}\n")
    record = wire.RequestRecord(
        request_id=f"cancel-{secrets.token_hex(8)}",
        name="api_cancel",
        status="SUCCEEDED",
        created_at=0.0,
        finished_at=0.0,
        user="",
        result=list(ended),
    )
    return RequestId(record.request_id, record)


def api_info() -> ServerInfo:
    """What the server is, where, and who one is there. Raises ApiServerConnectionError."""
    return _info(link(start=False))


def _info(server: Link) -> ServerInfo:
    told = server.run(ask(calls.health()))
    return ServerInfo({"endpoint": server.url, **{n: getattr(told, n) for n in told.__struct_fields__}})


# ── which server ────────────────────────────────────────────────────────────────────────────────


def api_login(
    endpoint: str | None = None,
    relogin: bool = False,
    service_account_token: str | None = None,
    no_browser: bool = False,
) -> ServerInfo:
    """Use the server at ``endpoint`` from now on, on behalf of a token; it is tried out before it is kept.

    ``endpoint`` None: the one that is logged in to, or that the environment names. Without a token, the one
    that is kept for that address is used, unless ``relogin``. There is no login in a browser, so
    ``no_browser`` changes nothing. The environment's addresses go before a login.
    Raises InvalidEndpointError, InvalidArgument, ApiServerConnectionError, ApiServerAuthenticationError.
    """
    del no_browser
    home = endpoints.home_dir()
    before = endpoints.stored(home)
    if endpoint is None:
        endpoint = endpoints.named(home).url
    if endpoint is None:
        raise InvalidArgument("api_login needs the endpoint of a server, such as https://sky.example.com")
    url = endpoints.checked_url(endpoint)
    token = service_account_token
    if token is not None:
        endpoints.checked_token(token)
    elif before is not None and before.endpoint == url and not relogin:
        token = before.token
    http = Http(url, token=token, patience_s=FIRST_PATIENCE_S)
    try:
        found = Link(http, token, local=False)
        info = _info(found)
        found.run(ask(calls.list_requests(limit=1)))  # health is told to everybody; this is not
    finally:
        http.close()
    endpoints.store(home, endpoints.Login(url, token))
    return info


def api_logout() -> None:
    """Forget the server that is logged in to: this user's own is used from now on."""
    forgotten = endpoints.forget(endpoints.home_dir())
    if forgotten is None:
        raise InvalidArgument("nobody is logged in to a server here; `sky api info` tells which one is used")


def api_start(
    *,
    deploy: bool = False,
    host: str = LOCAL_HOST,
    foreground: bool = False,
    metrics: bool = False,
    metrics_port: int | None = None,
    enable_basic_auth: bool = False,
    port: int | None = None,
) -> None:
    """Start this user's own server, or find that it runs. ``deploy``: for others to use, on all addresses.

    ``foreground``: returns when it has ended. Raises NotSupportedError while another server is named, and
    DaemonStartFailed with the end of its log.
    """
    _no_other("started")
    if metrics or metrics_port is not None:
        raise NotSupportedError("this server has no port of metrics; leave metrics and metrics_port out")
    home = endpoints.home_dir()
    bound = EVERY_HOST if deploy and host == LOCAL_HOST else host
    chosen = None if bound == LOCAL_HOST else bound
    extra = ("--behind-proxy", "true") if enable_basic_auth else ()
    if foreground:
        _be_the_server(home, daemon.command_line(home, host=chosen, port=port, extra=extra))
        return
    found = daemon.start(home, host=chosen, port=port, extra=extra)
    other = (chosen or extra) and found.public is None
    if not found.started and (other or port not in (None, 0, urlsplit(found.url).port)):
        raise DaemonStartFailed(
            f"the server of {home} runs already at {found.url}, otherwise than asked for; "
            "`sky api stop` ends it first"
        )


def _be_the_server(home: Path, command: list[str]) -> None:
    running = daemon.status(home)
    if running.running:
        msg = f"the server of {home} runs already at {running.url}; `sky api stop` ends it first"
        raise DaemonStartFailed(msg)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with subprocess.Popen(command) as server:
        try:
            code = server.wait()
        except KeyboardInterrupt:
            # The terminal has told the server too; without one, nobody has.
            server.terminate()
            server.wait()
            raise
    if code not in (0, -signal.SIGTERM, -signal.SIGINT):
        raise DaemonStartFailed(f"the server ended with code {code}; what it said above tells why")


def api_stop() -> None:
    """Stop this user's own server; what goes on at its machines goes on, and requests are kept.

    Does nothing where none runs. Raises NotSupportedError while another server is named.
    """
    _no_other("stopped")
    daemon.stop()


def _no_other(what: str) -> None:
    named = endpoints.named(endpoints.home_dir())
    if named.url is not None:
        msg = f"{named.by} names the server at {named.url}, which is not {what} from here"
        raise NotSupportedError(f"{msg}; `sky api logout`, or unsetting the variable, goes back to your own")


def dashboard(starting_page: str | None = None) -> None:
    """Open the server's dashboard in a browser; ``starting_page``: a page of it."""
    server = link()
    path = f"/dashboard/{(starting_page or '').lstrip('/')}"
    server.run(flows.has_page(path))
    url = f"{server.url}{path}"
    sys.stderr.write(f"the dashboard is at {url}\n")
    webbrowser.open(url)


# ── logs ────────────────────────────────────────────────────────────────────────────────────────


def api_server_logs(follow: bool = True, tail: int | None = None) -> None:
    """Write the log of the server to standard output; ``follow``: also what it logs from now on. For admins.

    ``tail``: only so many of the lines that are there.
    """
    server = link(start=False)
    lines = streams.of_server(follow=follow, tail=TAIL_LINES_MAX if tail is None else tail)
    for text in streams.waiting(server, lines):
        sys.stdout.write(f"{text}\n")


def download_logs(cluster_name: str, job_ids: Sequence[int] | None) -> dict[str, str]:
    """Copy the logs of jobs (None: all) to ``~/sky_logs``: the folder of each, by the job's number.

    Raises ClusterDoesNotExist, JobNotFoundError.
    """
    server = link()
    call = calls.download_logs(cluster_name, job_ids)
    target = Path("~/sky_logs").expanduser() / cluster_name
    with server.told():
        found: dict[str, Any] = server.http.receive(call, lambda _reply, pieces: unpack_logs(pieces, target))
    return found
