"""``sky config``: which settings hold and where each came from, and whether ``sky.toml`` is right.

Decides: the order in which settings are looked for, and how mistakes are printed (as editors read them).
Never: starts a daemon, or needs one. Follows: a file can be checked offline; a running daemon is asked
whether it is ready besides.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from sky.cli import output, toml
from sky.cli.app import Output, command, noun
from sky.cli.errors import FAILED, USAGE, CliError, usage
from sky.client import calls, daemon, endpoints
from sky.client.definition import FILE_NAME
from sky.client.errors import DaemonUnreachable

app = noun("config")

SHOWN_CHARS = 4
ASK_S = 2.0


def _settings() -> list[tuple[str, str, str]]:
    """Name, value and origin of each setting."""
    rows: list[tuple[str, str, str]] = []
    home = daemon.home_dir()
    found = daemon.status()
    named = endpoints.named(home)
    if named.url is not None:
        rows.append(("url", named.url, named.by))
    elif found.running:
        rows.append(("url", found.url or "", str(home / "daemon.json")))
    else:
        rows.append(("url", "http://127.0.0.1:7590", "default; no daemon runs"))
    rows.append(("home", str(home), "SKY_HOME" if os.environ.get("SKY_HOME") else "default"))
    if named.token is not None:
        rows.append(("token", f"{named.token[:SHOWN_CHARS]}…", named.token_by))
    else:
        rows.append(("token", "not set", "default; your own daemon needs none"))
    coloured = "never" if os.environ.get("NO_COLOR") else "on a terminal"
    rows.append(("colour", coloured, "NO_COLOR" if coloured == "never" else "default"))
    debug = "on" if os.environ.get("SKY_DEBUG") else "off"
    rows.append(("debug", debug, "SKY_DEBUG" if debug == "on" else "default"))
    return rows


@command(app, "sky config show", "sky config show -o json", instead=("get", "list"))
def show(*, output_: Output = "table") -> int:
    """Show the settings that hold here, and where each came from."""
    path = toml.find()
    file: toml.File | None = None
    unread: toml.Invalid | None = None
    if path is not None:
        try:
            file = toml.read(path)
        except toml.Invalid as error:
            unread = error
    rows = _settings()
    if output_ == "json":
        settings = [{"name": name, "value": value, "from": origin} for name, value, origin in rows]
        computes = file.computes if file else {}
        output.json({"settings": settings, "file": str(path) if path else None, "computes": computes})
    else:
        output.table(("SETTING", "VALUE", "FROM"), rows, flexible=("FROM", "VALUE"))
    if unread is not None:
        raise unread
    if output_ == "json":
        return 0
    output.say()
    if file is None:
        output.say(f"no {FILE_NAME} here or in a parent folder")
        return 0
    output.say(str(file.path))
    for name, table in file.computes.items():
        wanted = ", ".join(f"{key} = {_short(value)}" for key, value in table.items())
        output.say(f"  [compute.{name}]  {wanted}")
    if file.problems:
        output.note(f"{_many(len(file.problems), 'mistake')} in it: `sky config validate` lists them")
    return 0


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _short(value: Any) -> str:
    return output.dumps(value)


@command(app, "sky config validate", "sky config validate project/sky.toml", instead=("check", "lint"))
def validate(
    file: Annotated[Path | None, Parameter(help="The file; else the nearest sky.toml.")] = None,
    /,
    *,
    output_: Output = "table",
) -> int:
    """Check sky.toml, and whether the daemon is ready if one runs. Exit code 2 when the file has mistakes."""
    path = file or toml.find()
    if file is not None and not file.is_file():
        raise usage(f"there is no file {file}", None)
    problems: list[toml.Problem] = []
    computes = 0
    if path is not None:
        try:
            read = toml.read(path)
            problems, computes = read.problems, len(read.computes)
        except toml.Invalid as error:
            problems = error.problems
    ready = _daemon_state()
    if output_ == "json":
        listed = [p._asdict() for p in problems]
        output.json({"file": str(path) if path else None, "problems": listed, "daemon": ready})
    elif path is None:
        output.say(f"no {FILE_NAME} here or in a parent folder; daemon: {ready}")
    else:
        for problem in problems:
            output.say(problem.at(path) + (f" ({problem.hint})" if problem.hint else ""))
        if not problems:
            output.say(f"{path}: {_many(computes, 'compute')}, no mistakes; daemon: {ready}")
    if problems:
        raise CliError("invalid_config", f"{path} has {_many(len(problems), 'mistake')}", None, USAGE)
    if ready == "not ready":
        raise CliError("busy", "the daemon runs and is not ready", "`sky server logs` says why", FAILED)
    return 0


def _daemon_state() -> str:
    try:
        http = daemon.connect(start_if_absent=False)
    except DaemonUnreachable:
        return "not running"
    try:
        return "ready" if http.send(calls.ready(), patience_s=ASK_S).ready else "not ready"
    except DaemonUnreachable:
        return "unreachable"
    finally:
        http.close()
