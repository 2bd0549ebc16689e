"""``sky server``: the daemon of this user, from outside.

Decides: what is printed about it and with which exit code. Never: starts or stops a daemon itself; the
client's ``daemon`` does, for the SDK as well.
Follows: ``start`` returns when the daemon answers, also when somebody else started it in the same moment.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from cyclopts import Parameter

from sky.cli import output
from sky.cli.app import Output, command, noun
from sky.cli.errors import MISSING, REFUSED, CliError, usage
from sky.client import daemon, endpoints

app = noun("server")

FOLLOW_S = 0.2
LINES_MAX = 1_000_000
PORT_MAX = 65_535
UNLESS_SAID = {
    "--jobs": "true",
    "--allow-host-jobs": "false",
    "--upstreams": "local",
    "--behind-proxy": "false",
}
READ_BYTES = 256 * 1024


def _as_json(status: daemon.Status) -> dict[str, object]:
    return {
        "running": status.running,
        "url": status.url,
        "pid": status.pid,
        "release": status.release,
        "home": str(status.home),
        **({"public": status.public} if status.public else {}),
    }


def _refuse_if_named_elsewhere(what: str) -> None:
    named = endpoints.named(daemon.home_dir())
    if named.url is not None:
        raise usage(
            f"{named.by} names the daemon at {named.url}, which is not {what} from here",
            f"{named.undo} to speak about the daemon of SKY_HOME",
        )


@command(
    app,
    "sky server start",
    "sky server start --port 0 --database /srv/sky.db",
    "sky server start --allow-host-jobs",
    "sky server start --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem",
    "sky server start --foreground",
)
def start(
    *,
    host: Annotated[str | None, Parameter(help="Address to listen at [127.0.0.1].")] = None,
    port: Annotated[int | None, Parameter(help="Port to listen at; 0 for any free one [7590].")] = None,
    database: Annotated[
        str | None, Parameter(metavar="FILE|URL", help="Where to keep state [$SKY_HOME/sky.db].")
    ] = None,
    jobs: Annotated[
        bool | None, Parameter(help="Whether paid jobs are taken, or only their catalogue is served [yes].")
    ] = None,
    allow_host_jobs: Annotated[
        bool | None,
        Parameter(negative=(), help="Run paid jobs of the image `local` as processes of this computer."),
    ] = None,
    catalogue: Annotated[
        Path | None, Parameter(metavar="FILE", help="What is sold, in YAML [the one that comes along].")
    ] = None,
    upstreams: Annotated[
        str | None, Parameter(metavar="KINDS", help="Providers that paid jobs may use, by comma [local].")
    ] = None,
    tls_cert: Annotated[
        Path | None, Parameter(metavar="FILE", help="Serve over TLS: the certificate with its chain, PEM.")
    ] = None,
    tls_key: Annotated[Path | None, Parameter(metavar="FILE", help="The key of that certificate.")] = None,
    behind_proxy: Annotated[
        bool | None,
        Parameter(negative=(), help="A reverse proxy on this computer does TLS, and says who asks."),
    ] = None,
    foreground: Annotated[
        bool, Parameter(negative=(), help="Be the daemon, in this terminal, until Ctrl-C.")
    ] = False,
    timeout: Annotated[float, Parameter(help="Seconds it may take until it answers.")] = daemon.START_S,
    output_: Output = "table",
) -> int:
    """Start the daemon and return when it answers.

    When one runs already, its address is printed and nothing else happens, unless it is not what was
    asked for: exit code 4.
    """
    _refuse_if_named_elsewhere("started")
    if port is not None and not 0 <= port <= PORT_MAX:
        raise usage(f"--port {port} is not a port", f"a port is between 0 and {PORT_MAX}; 0 takes a free one")
    if not timeout > 0:
        raise usage(f"--timeout {timeout:g} leaves no time", "give seconds greater than 0")
    if database and "://" not in database:
        database = str(Path(database).expanduser().absolute())
    more = {
        **_selling(jobs, allow_host_jobs, catalogue, upstreams),
        **_reaching(tls_cert, tls_key, behind_proxy),
    }
    if foreground:
        return _be_the_daemon(host, port, database, more)
    output.progress("starting the daemon …")
    extra = tuple(word for pair in more.items() for word in pair)
    found = daemon.start(host=host, port=port, database=database, timeout_s=timeout, extra=extra)
    output.clear_progress()
    if not found.started:
        _refuse_if_other(found, host, port, database, more)
    if output_ == "json":
        output.json(_as_json(daemon.status()))
    else:
        how = "started" if found.started else "runs already"
        output.say(f"{how}: {found.url} (process {found.pid})")
        if found.public:
            output.say(f"for others, with a token: {found.public}")
    return 0


def _selling(
    jobs: bool | None, allow_host_jobs: bool | None, catalogue: Path | None, upstreams: str | None
) -> dict[str, str]:
    """The daemon's options that are about selling."""
    if catalogue is not None and not catalogue.is_file():
        raise usage(f"there is no file {catalogue}", "name the YAML file of what is sold")
    given = {
        "--jobs": None if jobs is None else str(jobs).lower(),
        "--allow-host-jobs": None if allow_host_jobs is None else str(allow_host_jobs).lower(),
        "--catalogue": None if catalogue is None else str(catalogue.expanduser().absolute()),
        "--upstreams": upstreams,
    }
    return {option: value for option, value in given.items() if value is not None}


def _reaching(tls_cert: Path | None, tls_key: Path | None, behind_proxy: bool | None) -> dict[str, str]:
    """The daemon's options that are about others reaching it."""
    for option, path in (("--tls-cert", tls_cert), ("--tls-key", tls_key)):
        if path is not None and not path.is_file():
            raise usage(f"{option}: there is no file {path}", "name a PEM file")
    given = {
        "--tls-cert": None if tls_cert is None else str(tls_cert.expanduser().absolute()),
        "--tls-key": None if tls_key is None else str(tls_key.expanduser().absolute()),
        "--behind-proxy": None if behind_proxy is None else str(behind_proxy).lower(),
    }
    return {option: value for option, value in given.items() if value is not None}


def _refuse_if_other(
    found: daemon.Daemon,
    host: str | None,
    port: int | None,
    database: str | None,
    more: dict[str, str],
) -> None:
    """A daemon that runs elsewhere, or over another database, than was asked for is not that daemon."""
    at = urlsplit(found.public or found.url)
    here = "127.0.0.1" if host == "localhost" else host
    own = str(daemon.home_dir() / "sky.db")
    kept = (daemon.option_of(found.pid, "--database") if found.pid else None) or own
    wrong = [
        f"{what} {wanted}"
        for what, wanted, has in (
            ("host", here, at.hostname),
            ("port", port or None, at.port),
            ("database", database, kept),
        )
        if wanted is not None and wanted != has
    ]
    for option, wanted in more.items():
        has = daemon.option_of(found.pid, option) if found.pid else None
        if wanted != (has or UNLESS_SAID.get(option)):
            wrong.append(f"{option} {wanted}")
    if wrong:
        message = (
            f"a daemon runs already at {found.url} (process {found.pid}), not with {' and '.join(wrong)}"
        )
        hint = "stop it first with `sky server stop`, or set SKY_HOME to another folder"
        raise CliError("already_running", message, hint, REFUSED)


def _be_the_daemon(host: str | None, port: int | None, database: str | None, more: dict[str, str]) -> int:
    running = daemon.status()
    if running.running:
        raise CliError(
            "already_running",
            f"the daemon of {running.home} runs at {running.url} (process {running.pid})",
            "stop it first with `sky server stop`",
            REFUSED,
        )
    running.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    extra = tuple(word for pair in more.items() for word in pair)
    words = daemon.command_line(running.home, host=host, port=port, database=database, extra=extra)
    os.execv(words[0], words)


@command(app, "sky server stop", "sky server stop --timeout 5")
def stop(
    *,
    timeout: Annotated[float, Parameter(help="Seconds it may take until it has ended.")] = daemon.STOP_S,
    output_: Output = "table",
) -> int:
    """Stop the daemon of this state folder, and no other.

    Computes go on as they are: the next daemon finds them. Exit code 3 when none runs.
    """
    _refuse_if_named_elsewhere("stopped")
    output.progress("stopping the daemon …")
    before = daemon.stop(timeout_s=timeout)
    output.clear_progress()
    if output_ == "json":
        output.json(_as_json(daemon.status()))
    elif before.running:
        output.say(f"stopped: {before.url} (process {before.pid})")
    if not before.running and output_ == "table":
        output.note(f"no daemon ran for {before.home}")
    return 0 if before.running else MISSING


@command(app, "sky server status", "sky server status -o json", instead=("get", "info", "show"))
def status(*, output_: Output = "table") -> int:
    """Tell whether the daemon runs and where. Exit code 3 when it does not."""
    named = endpoints.named(daemon.home_dir())
    if named.url is not None:
        return _named(named.url, named.by, output_)
    found = daemon.status()
    if output_ == "json":
        output.json(_as_json(found))
    elif found.running:
        output.pairs(
            [
                ("state", output.Cell("running", "good")),
                ("url", found.url),
                *((("for others", found.public),) if found.public else ()),
                ("process", found.pid),
                ("release", found.release),
                ("home", found.home),
            ]
        )
    else:
        said = f"the one at {found.url} is gone" if found.stale else "start one with `sky server start`"
        output.say(f"no daemon runs for {found.home}: {said}")
    return 0 if found.running else MISSING


def _named(url: str, by: str, output_: str) -> int:
    from sky.cli.connection import reading
    from sky.client import calls

    with reading() as api:
        ready = api.send(calls.ready()).ready
    if output_ == "json":
        output.json({"running": True, "url": url, "pid": None, "release": None, "home": None})
    else:
        state = output.Cell("ready", "good") if ready else output.Cell("live, not ready", "busy")
        output.pairs([("state", state), ("url", f"{url} (from {by})")])
    return 0


@command(app, "sky server logs", "sky server logs --lines 100 --follow", instead=("log", "tail"))
def logs(
    *,
    lines: Annotated[int, Parameter(name=["--lines", "-n"], help="How many of the last lines.")] = 40,
    follow: Annotated[
        bool, Parameter(name=["--follow", "-f"], negative=(), help="Go on as it grows, until Ctrl-C.")
    ] = False,
) -> int:
    """Print the end of the daemon's own log. Exit code 3 when there is none."""
    if not 0 <= lines <= LINES_MAX:
        raise usage(f"--lines {lines} is out of range", f"give a number from 0 to {LINES_MAX}")
    path = daemon.home_dir() / "server.log"
    if not path.is_file():
        raise CliError("not_found", f"there is no log at {path}", "no daemon was started there yet", MISSING)
    # A daemon may run for months: the tail is found from the end, not by reading all of it.
    tail = ["tail", "-n", str(lines), str(path)]
    done = subprocess.run(tail, capture_output=True, timeout=30, check=False)
    end = path.stat().st_size
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        output.say(line)
    if follow:
        _follow(path, end)
    return 0


def _follow(path: Path, end: int) -> None:
    with open(path, "rb") as log:
        log.seek(end)
        while True:
            piece = log.read(READ_BYTES)
            if piece:
                output.write(piece.decode("utf-8", "replace"))
            else:
                time.sleep(FOLLOW_S)
