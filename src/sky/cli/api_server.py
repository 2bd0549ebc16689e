"""``sky api``: the server that requests go to, who we are there, and what is under way.

Decides: how a server is started, logged in to and shown, and which requests are listed, followed, cancelled.
Never: prints a token. Follows: a request that nobody knows ends with exit code 3; looking starts no server.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from sky.cli import output, render_requests
from sky.cli.app import DryRun, Output, Yes, command, noun
from sky.cli.asking import confirm
from sky.cli.errors import MISSING, CliError, usage
from sky.cli.scripted import AllUsers, LiveRequest, listed, plain
from sky.client import calls_requests, daemon, endpoints, sdk
from sky.client.flows import ask
from sky.client.records import request_record
from sky.client.request_link import link

app = noun("api")

PORT_MAX = 65_535
LIMIT = 50
LIMIT_MAX = 500
ID_CHARS_MIN = 4
FROM_INPUT = "-"
ENDED = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})
LOOPBACK = "127.0.0.1"

Ids = Annotated[str, Parameter(name="ID", help="Ids of requests, or what they begin with.")]


# ── the server ──────────────────────────────────────────────────────────────────────────────────


@command(
    app,
    "sky api start",
    "sky api start --port 0",
    "sky api start --deploy --host 0.0.0.0",
    instead=("up", "run"),
)
def start(
    *,
    deploy: Annotated[
        bool,
        Parameter(
            negative=(),
            help="Serve other computers too, behind a proxy that does TLS: add --enable-basic-auth.",
        ),
    ] = False,
    host: Annotated[str | None, Parameter(help=f"Address to listen at [{LOOPBACK}].")] = None,
    port: Annotated[int | None, Parameter(help="Port to listen at; 0 for any free one [7590].")] = None,
    foreground: Annotated[
        bool, Parameter(negative=(), help="Be the server, in this terminal, until Ctrl-C.")
    ] = False,
    enable_basic_auth: Annotated[
        bool, Parameter(negative=(), help="Behind a proxy that does TLS, and says who asks.")
    ] = False,
    metrics: Annotated[bool, Parameter(negative=(), help="Serve metrics at /metrics.")] = False,
    metrics_port: Annotated[int | None, Parameter(help="Port for the metrics.")] = None,
    output_: Output = "table",
) -> int:
    """Start the server of this computer, and return when it answers. Nothing happens when it runs already."""
    for option, number in (("--port", port), ("--metrics-port", metrics_port)):
        if number is not None and not 0 <= number <= PORT_MAX:
            raise usage(f"{option} {number} is not a port", f"a port is between 0 and {PORT_MAX}")
    before = daemon.status()
    if not foreground:
        output.progress("starting the server …")
    sdk.api_start(
        deploy=deploy,
        host=host or LOOPBACK,
        foreground=foreground,
        metrics=metrics,
        metrics_port=metrics_port,
        enable_basic_auth=enable_basic_auth,
        port=port,
    )
    output.clear_progress()
    if foreground:
        return 0
    now = daemon.status()
    if output_ == "json":
        output.json({"running": now.running, "endpoint": now.url, "pid": now.pid, "release": now.release})
    else:
        how = "runs already" if before.running and before.pid == now.pid else "started"
        output.say(f"{how}: {now.url} (process {now.pid})")
    return 0


@command(app, "sky api stop", instead=("down", "kill"))
def stop(*, output_: Output = "table") -> int:
    """Stop the server of this computer. Clusters and requests go on when it is started again.

    Exit code 3 when none runs.
    """
    before = daemon.status()
    if not before.running:
        raise CliError(
            "not_found", f"no server runs for {before.home}", "`sky api start` starts one", MISSING
        )
    output.progress("stopping the server …")
    sdk.api_stop()
    output.clear_progress()
    if output_ == "json":
        output.json({"running": False, "endpoint": before.url, "pid": before.pid})
    else:
        output.say(f"stopped: {before.url} (process {before.pid})")
    return 0


@command(app, "sky api info", "sky api info -o json", instead=("show", "health", "version"))
def info(*, output_: Output = "table") -> int:
    """Show which server is meant, what it is and who we are there. Exit code 5 when it does not answer."""
    _require_server()
    told = sdk.api_info()
    if output_ == "json":
        output.json(plain(told))
        return 0
    fields: dict[str, Any] = plain(told)
    user: dict[str, Any] = fields.get("user") or {}
    home = endpoints.home_dir()
    by = endpoints.named(home).by
    shown: list[tuple[str, object]] = [
        ("endpoint", f"{fields.get('endpoint')} ({'from ' + by if by else 'of this computer'})"),
        ("status", output.Cell(fields.get("status", ""), "good")),
        ("release", fields.get("version")),
        ("api version", f"{fields.get('api_version')} (at least {fields.get('min_compatible_api_version')})"),
        ("user", user.get("name")),
    ]
    if user.get("role"):
        shown.append(("role", user["role"]))
    output.pairs(shown)
    return 0


def _require_server() -> None:
    """Looking starts no server: the command ends with exit code 5 where none is named and none runs."""
    if endpoints.named(endpoints.home_dir()).url is None and not daemon.status().running:
        raise CliError(
            "daemon_unreachable",
            f"no server runs for {daemon.home_dir()}",
            "`sky api start` starts one here, `sky api login -e URL` names another",
            5,
        )


# ── who we are ──────────────────────────────────────────────────────────────────────────────────


@command(
    app,
    "sky api login -e https://sky.example.com --token -",
    "sky api login -e http://127.0.0.1:7590",
)
def login(
    *,
    endpoint: Annotated[
        str | None, Parameter(name=["--endpoint", "-e"], metavar="URL", help="The server's address.")
    ] = None,
    token: Annotated[
        str | None,
        Parameter(
            name=["--token", "--service-account-token"],
            allow_leading_hyphen=True,
            metavar="sky_…",
            help="A token of the server; - reads it from standard input.",
        ),
    ] = None,
    relogin: Annotated[bool, Parameter(negative=(), help="Forget the token that was kept before.")] = False,
    no_browser: Annotated[bool, Parameter(negative=(), show=False)] = False,
    output_: Output = "table",
) -> int:
    """Name the server that commands and the SDK speak to from now on, and the token to show there."""
    if endpoint is None:
        kept = endpoints.stored(endpoints.home_dir())
        if kept is None:
            raise usage("no server was named", "`sky api login -e https://…` names one")
        endpoint = kept.endpoint
    if token == FROM_INPUT:
        token = sys.stdin.readline().strip()
        if not token:
            raise usage("there is no token on standard input", "write one line with it")
    sdk.api_login(endpoint, relogin=relogin, service_account_token=token, no_browser=no_browser)
    home = endpoints.home_dir()
    if output_ == "json":
        output.json({"endpoint": endpoint.rstrip("/"), "kept_in": str(home / endpoints.LOGIN_FILE)})
    else:
        output.say(f"logged in to {endpoint.rstrip('/')}")
    over = next((name for name in endpoints.URL_VARIABLES if endpoints.named(home).by == name), None)
    if over:
        output.note(f"{over} is set and goes before it; unset it to use this server")
    return 0


@command(app, "sky api logout")
def logout(*, output_: Output = "table") -> int:
    """Forget the server that was logged in to, and its token. Exit code 3 when there is none."""
    kept = endpoints.stored(endpoints.home_dir())
    if kept is None:
        raise CliError(
            "not_found", "you are logged in to no server", "`sky api login -e URL` names one", MISSING
        )
    sdk.api_logout()
    if output_ == "json":
        output.json({"endpoint": kept.endpoint})
    else:
        output.say(f"logged out of {kept.endpoint}")
    return 0


# ── requests ────────────────────────────────────────────────────────────────────────────────────


@command(
    app,
    "sky api status",
    "sky api status --all --limit 100",
    "sky api status 01m8 -o json",
    instead=("ls", "list", "ps"),
)
def status(
    *ids: Ids,
    all_: Annotated[
        bool, Parameter(name=["--all-status", "--all", "-a"], negative=(), help="Also those that have ended.")
    ] = False,
    cluster: Annotated[
        str | None, Parameter(name=["--cluster", "-c"], help="Only those about this cluster.")
    ] = None,
    limit: Annotated[int, Parameter(name=["--limit", "-l"], help="How many at most.")] = LIMIT,
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative=(), show=False)] = False,
    output_: Output = "table",
) -> int:
    """List requests, newest first: those under way. Exit code 3 when one that was named is not there."""
    if not 1 <= limit <= LIMIT_MAX:
        raise usage(f"--limit {limit} is out of range", f"give a number from 1 to {LIMIT_MAX}")
    _check_ids(ids)
    _require_server()
    del verbose
    records: list[Any] = list(
        sdk.api_status(list(ids) or None, all_status=all_ or bool(ids), limit=limit + 1, cluster_name=cluster)
    )
    shown = records[:limit]
    if output_ == "json":
        output.json(plain(shown))
        return 0
    if not shown:
        which = "no requests" if all_ else "no requests under way"
        output.note(f"{which}{'' if all_ else '; `sky api status --all` lists those that have ended'}")
        return 0
    output.table(
        render_requests.REQUEST_HEADINGS,
        [render_requests.request_row(record) for record in shown],
        flexible=("CLUSTER", "USER", "ID"),
    )
    if len(records) > limit:
        output.note(f"there are more than {limit}; --limit shows more")
    return 0


def _check_ids(ids: Sequence[str]) -> None:
    for one in ids:
        if len(one) < ID_CHARS_MIN:
            raise usage(f"{one!r} is too short for an id", f"give {ID_CHARS_MIN} characters of it or more")


@command(
    app,
    "sky api logs 01m8",
    "sky api logs 01m8 --no-follow --tail 20",
    "sky api logs --server-logs",
    instead=("log",),
)
def logs(
    request_id: Annotated[
        str | None, Parameter(name="ID", help="Id of a request, or what it begins with.")
    ] = None,
    /,
    *,
    server_logs: Annotated[
        bool, Parameter(name=["--server-logs", "-s"], negative=(), help="The server's own log instead.")
    ] = False,
    log_path: Annotated[
        str | None, Parameter(name=["--log-path", "-l"], metavar="PATH", help="A log by its path instead.")
    ] = None,
    follow: Annotated[bool, Parameter(help="Go on until it ends, or Ctrl-C.")] = True,
    tail: Annotated[int | None, Parameter(metavar="LINES", help="Only so many of the last lines.")] = None,
) -> int:
    """Print what a request says, from its beginning, to its end; ends with its error when it failed."""
    given = [
        word
        for word, on in (("ID", request_id), ("--server-logs", server_logs), ("--log-path", log_path))
        if on
    ]
    if len(given) != 1:
        said = f"{' and '.join(given)} were given" if given else "no request was named"
        raise usage(said, "give an ID (`sky api status -a` lists them), or --server-logs")
    if tail is not None and tail < 0:
        raise usage(f"--tail {tail} is out of range", "give a number of lines")
    if request_id is not None:
        _check_ids([request_id])
    _require_server()
    if server_logs:
        sdk.api_server_logs(follow, tail)
        return 0
    with output.waiting("the request goes on …"):
        sdk.stream_and_get(request_id, log_path, tail, follow, LiveRequest(sys.stdout))
    return 0


@command(app, "sky api cancel 01m8", "sky api cancel --all --yes", instead=("kill", "abort"))
def cancel(
    *ids: Ids,
    all_: Annotated[
        bool, Parameter(name=["--all", "-a"], negative=(), help="All of yours that are under way.")
    ] = False,
    all_users: AllUsers = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    output_: Output = "table",
) -> int:
    """Cancel requests: what they have begun ends too, and no machine is left.

    Exit code 3 when one that was named is not there.
    """
    everything = all_ or all_users
    if bool(ids) == everything:
        said = "ids were given, and all were meant as well" if ids else "no request was named"
        raise usage(said, "`sky api cancel ID`, or `sky api cancel --all`")
    _check_ids(ids)
    _require_server()
    if dry_run:
        return _would_cancel(ids, all_users, output_)
    if everything and not yes:
        whose = "of every user" if all_users else "of yours"
        confirm(f"Cancel all requests {whose} that are under way?", "nothing was cancelled")
    asked = sdk.api_cancel(list(ids) or None, all_users, silent=True)
    ended = [str(one) for one in sdk.get(asked)]
    if output_ == "json":
        output.json({"request_ids": ended})
        return 0
    for one in ended:
        output.say(f"cancelled: {one}")
    if not ended:
        output.note(f"{listed(ids) or 'no request'} {'had ended already' if ids else 'was under way'}")
    return 0


def _would_cancel(ids: Sequence[str], all_users: bool, format_: str) -> int:
    """The requests under way that would be cancelled. Raises as cancelling them does."""
    asked = calls_requests.list_requests(ids, all_status=bool(ids), all_users=all_users, limit=LIMIT_MAX)
    found = [one for one in link(start=False).run(ask(asked)).items if one.status not in ENDED]
    if format_ == "json":
        output.json({"request_ids": [one.request_id for one in found]})
    elif found:
        rows = [render_requests.request_row(request_record(one)) for one in found]
        output.table(render_requests.REQUEST_HEADINGS, rows, flexible=("CLUSTER", "USER", "ID"))
    more = f"; there may be more than these {LIMIT_MAX}" if len(found) == LIMIT_MAX else ""
    output.note(f"this was a dry run: nothing was cancelled{more}")
    return 0
