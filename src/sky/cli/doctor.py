"""``sky doctor``: what is wrong with this installation, and what mends it.

Decides: what is looked at from here (Python, sky.toml, the daemon, its clock, token, providers, public
address), and how long all of it may take. Never: starts a daemon, or changes anything.
Follows: this installation's own server code looks at folders and the database in a process of its own,
and what it found is told also when it does not come to its end.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Literal, TypeVar
from urllib.parse import urlsplit

import msgspec

from sky.cli import output, toml
from sky.cli.app import Output, noun, only
from sky.cli.errors import FAILED
from sky.cli.output import Cell
from sky.client import calls, calls_machines, calls_users, daemon, endpoints
from sky.client.errors import ApiError, DaemonUnreachable, SkyError
from sky.client.http import Http
from sky.client.request import Call, Reply
from sky.kit.version import VERSION

T = TypeVar("T")

MODULE = "sky.server.doctor"
LOOK_S = 30.0
"""How long what is looked at in another process may take."""
ANSWER_S = 3.0
CLOCK_S = 5.0
"""From which difference of clocks on tokens and addresses that expire cannot be relied on."""
OLDEST, NEWEST = (3, 11), (3, 13)
AS_STARTED = ("--database", "--host", "--tls-cert", "--tls-key", "--behind-proxy")
STYLE = {"ok": "good", "warn": "busy", "bad": "bad"}


class Finding(msgspec.Struct, frozen=True):
    """How one thing is; ``mend``: what to type or do, where that is needed."""

    check: str
    state: Literal["ok", "warn", "bad"]
    said: str
    mend: str | None = None


_findings = msgspec.json.Decoder(Finding)


@only("doctor", "sky doctor", "sky doctor -o json")
def doctor(*, output_: Output = "table") -> int:
    """Find what is wrong with this installation, with the command that mends it.

    Needs no daemon, starts none and changes nothing; a bucket is tried with an object that is removed again.
    Exit code 1 when something is bad.
    """
    found: list[Finding] = []
    for look in (_python, _file, _daemon, _here):
        output.progress("looking …")
        for finding in look():
            found.append(finding)
            if output_ == "table":
                _tell(finding)
    output.clear_progress()
    bad = sum(one.state == "bad" for one in found)
    if output_ == "json":
        output.json({"healthy": not bad, "findings": found})
    else:
        warned = sum(one.state == "warn" for one in found)
        output.note(f"{len(found)} looked at: {bad} bad, {warned} to know of")
    return FAILED if bad else 0


def _tell(one: Finding) -> None:
    output.clear_progress()
    state = output.styled(f"{one.state:<4}", STYLE[one.state])
    output.say(f"{state}  {one.check:<11}  {output.clean(one.said)}")
    if one.mend:
        output.say(f"{'':19}{Cell('→')} {output.clean(one.mend)}")


# ── from here ───────────────────────────────────────────────────────────────────────────────────


def _python() -> Iterator[Finding]:
    have = sys.version_info[:2]
    said = f"Python {'.'.join(map(str, sys.version_info[:3]))}, skyfleet {VERSION}"
    if have < OLDEST or have > NEWEST:
        mend = f"install skyfleet with Python {'.'.join(map(str, NEWEST))}"
        yield Finding("python", "bad", f"{said}: that Python is not one that this release is for", mend)
    else:
        yield Finding("python", "ok", said)


def _file() -> Iterator[Finding]:
    path = toml.find()
    if path is None:
        yield Finding("sky.toml", "ok", "there is none here or in a parent folder, and none is needed")
        return
    try:
        problems = toml.read(path).problems
    except toml.Invalid as error:
        problems = error.problems
    if problems:
        said = f"{problems[0].at(path)} ({len(problems)} in all)"
        yield Finding("sky.toml", "bad", said, f"sky config validate {path}")
    else:
        yield Finding("sky.toml", "ok", f"{path} has no mistakes")


def _daemon() -> Iterator[Finding]:
    home = daemon.home_dir()
    try:
        named = endpoints.named(home)
        status = None if named.url else daemon.status(home)
        http = daemon.connect(start_if_absent=False)
    except DaemonUnreachable:
        yield _none_runs(daemon.status(home))
        return
    except SkyError as error:
        yield Finding("daemon", "bad", str(error), "sky api logout")
        return
    try:
        yield from _daemon_there(http, named, status)
    finally:
        http.close()


def _none_runs(status: daemon.Status) -> Finding:
    if status.stale:
        said = f"the daemon at {status.url} is gone, and has not said goodbye"
        return Finding("daemon", "warn", said, "sky server start")
    return Finding("daemon", "ok", "none runs; the first command that needs one starts it")


def _daemon_there(http: Http, named: endpoints.Named, status: daemon.Status | None) -> Iterator[Finding]:
    asked_s = time.time()
    live = Call("GET", "/v1/health/live", lambda reply: reply, timeout_s=ANSWER_S)
    where = named.url or (status.url if status else None)
    try:
        reply = http.send(live, patience_s=0.0)
    except (ApiError, DaemonUnreachable) as error:
        mend = f"{named.undo}, or start what is there" if named.url else "sky server logs"
        yield Finding("daemon", "bad", f"nothing answers as it should at {where}: {error}", mend)
        return
    release = status.release if status else None
    if release not in (None, VERSION):
        said = f"the daemon at {where} is of release {release}, and this command of {VERSION}"
        yield Finding("daemon", "warn", said, "sky server stop; sky server start")
    else:
        yield Finding("daemon", "ok", f"it answers at {where}")
    yield from _clock(reply, asked_s)
    for look in (_ready, _token, _providers):
        yield from _asked(look, http)
    if status is not None and status.public:
        yield _public(status.public)


def _asked(look: Callable[[Http], Iterator[Finding]], http: Http) -> Iterator[Finding]:
    """What the daemon is asked, which it may refuse or be too busy for."""
    try:
        yield from look(http)
    except (ApiError, DaemonUnreachable) as error:
        name = look.__name__.strip("_")
        yield Finding(name, "bad", f"the daemon does not tell: {error}", "sky server logs")


def _clock(reply: Reply, asked_s: float) -> Iterator[Finding]:
    try:
        theirs_s = parsedate_to_datetime(reply.headers["date"]).timestamp()
    except (KeyError, ValueError):
        return
    # A header has whole seconds, and the answer took a while.
    early, late = theirs_s - time.time(), theirs_s + 1.0 - asked_s
    apart = early if early > 0 else late if late < 0 else 0.0
    if abs(apart) > CLOCK_S:
        said = f"the daemon's clock is {abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} this one"
        yield Finding("clock", "bad", said, "set both by NTP: timedatectl set-ntp true")
    else:
        yield Finding("clock", "ok", "the daemon's clock and this one agree")


def _ready(http: Http) -> Iterator[Finding]:
    if http.send(_bounded(calls.ready()), patience_s=0.0).ready:
        yield Finding("ready", "ok", "its database answers and its loops run")
    else:
        yield Finding("ready", "bad", "the daemon runs and is not ready", "sky server logs")


def _token(http: Http) -> Iterator[Finding]:
    try:
        me = http.send(_bounded(calls_users.get_me()), patience_s=0.0)
    except ApiError as error:
        if error.status not in (401, 403):
            raise
        mend = "sky api login -e URL, or set SKY_TOKEN"
        yield Finding("token", "bad", f"the daemon does not know who asks: {error}", mend)
        return
    yield Finding("token", "ok", f"the daemon knows {me.name}, in the role {me.role}")


def _providers(http: Http) -> Iterator[Finding]:
    there = http.send(_bounded(calls_machines.list_providers()), patience_s=0.0).items
    if not there:
        mend = "sky provider add NAME --kind KIND; `sky provider kinds` lists them"
        yield Finding("providers", "ok", f"none was added; this computer's machines need none ({mend})")
    for one in there:
        if one.last_error is not None:
            said = f"{one.name} ({one.kind}) does not work: {one.last_error.message}"
            yield Finding("providers", "warn", said, f"sky why {one.name}; sky provider update {one.name}")
        else:
            yield Finding("providers", "ok", f"{one.name} ({one.kind}) has {one.offers_count} offers")


def _public(url: str) -> Finding:
    """Whether the address that nodes and other people come to can be come to, at least from here."""
    at = urlsplit(url)
    port = at.port or (443 if at.scheme == "https" else 80)
    try:
        socket.create_connection((at.hostname or "", port), ANSWER_S).close()
    except OSError as error:
        mend = "check the firewall, and the address in `sky server start --host`"
        return Finding("address", "bad", f"{url}, where others come, cannot be reached: {error}", mend)
    return Finding("address", "ok", f"{url}, where nodes and others come, can be reached from here")


def _bounded(call: Call[T]) -> Call[T]:
    return replace(call, timeout_s=ANSWER_S)


# ── in a process of its own ─────────────────────────────────────────────────────────────────────


def _here() -> Iterator[Finding]:
    status = daemon.status()
    words = [sys.executable, "-m", MODULE, "--home", str(daemon.home_dir())]
    for option in AS_STARTED:
        value = daemon.option_of(status.pid, option) if status.pid and status.running else None
        words += [] if value is None else [option, value]
    late = False
    try:
        done = subprocess.run(words, capture_output=True, timeout=LOOK_S, check=False)
        out, err, code = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as error:
        out, err, code, late = error.stdout or b"", error.stderr or b"", 0, True
    for line in out.splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield _findings.decode(line)
    if late:
        said = f"what comes after the last line had not been looked at after {LOOK_S:g} s"
        yield Finding("doctor", "warn", said, "try again when this computer has less to do")
    elif code:
        last = err.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it said nothing"]
        yield Finding("doctor", "bad", f"looking ended with code {code}: {last[0]}", "pip install skyfleet")


app = noun("doctor")
