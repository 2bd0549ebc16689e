"""Finds the daemon of this user, or starts it; stops it; says how it is.

Decides: where a client connects: the server that is named (``endpoints`` tells), else the daemon whose
address is in the state folder, else a new one started there. Never: runs inside the daemon; ends a process
that is not the daemon of this folder. Follows: clients that start at the same moment end with one daemon (a
file lock, and another look once it is held); a daemon that dies while coming up is noticed at once, and its
log is shown, not waited for.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sky.client import endpoints
from sky.client.errors import ApiError, DaemonStartFailed, DaemonStopFailed, DaemonUnreachable
from sky.client.http import Http
from sky.client.request import Call
from sky.kit.clock import SystemClock

START_S = 60.0
STOP_S = 30.0
LIVE_S = 2.0
"""How long a daemon that should be there may take to say so."""
POLL_S = 0.02
LOG_TAIL_LINES = 20
LOG_TAIL_BYTES = 16 * 1024
SERVER_MODULE = "sky.server.main"

_clock = SystemClock()


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon that answered. ``pid`` is None when it was named by SKY_URL; ``started`` by this call;
    ``public`` is where others than its own user reach it."""

    url: str
    pid: int | None = None
    release: str | None = None
    started: bool = False
    public: str | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """How the daemon of a state folder is. ``stale``: its address is written there, and nobody answers."""

    running: bool
    home: Path
    url: str | None = None
    pid: int | None = None
    release: str | None = None
    stale: bool = False
    public: str | None = None


home_dir = endpoints.home_dir


def connect(
    url: str | None = None,
    *,
    home: str | os.PathLike[str] | None = None,
    database: str | None = None,
    token: str | None = None,
    start_if_absent: bool = True,
    first_s: float | None = None,
) -> Http:
    """A client of the daemon at ``url``, else of the one that is named (``endpoints``), else of the state
    folder's, started if need be. It shows ``token``, else SKY_TOKEN; an empty one is none. ``first_s``: the
    patience with an address at which nobody has answered yet.

    Raises DaemonUnreachable when an address was given and nobody answers there (or when starting was not
    allowed), and DaemonStartFailed when the daemon does not come up.
    """
    folder = home_dir(home)
    named = endpoints.named(folder, url, token)
    token = named.token
    if named.url:
        return Http(named.url, token=token, first_s=first_s)
    found = _recorded_and_live(folder)
    if found is None:
        found = start(folder, database=database) if start_if_absent else _recorded_and_there(folder)
    if found is None:
        raise DaemonUnreachable(f"no daemon runs for {folder}: start one with `sky server start`")
    return Http(found.url, token=token, locate=lambda: _recorded(folder).url)


def start(
    home: str | os.PathLike[str] | None = None,
    *,
    host: str | None = None,
    port: int | None = None,
    database: str | None = None,
    timeout_s: float = START_S,
    extra: tuple[str, ...] = (),
) -> Daemon:
    """Start the daemon of a state folder, or find the one that runs. Returns when it answers.

    Raises DaemonStartFailed with the end of its log when it dies or is not up after ``timeout_s`` seconds.
    """
    folder = home_dir(home)
    _make_private(folder)
    deadline_s = _clock.monotonic_s() + timeout_s
    with _locked(folder / "start.lock", deadline_s, folder):
        found = _when_it_answers(folder, deadline_s, timeout_s)
        if found is not None:
            return found
        log = folder / "server.log"
        log_from = log.stat().st_size if log.exists() else 0
        child = _spawn(folder, command_line(folder, host=host, port=port, database=database, extra=extra))
        try:
            return _wait_until_live(folder, child, log_from, deadline_s)
        except BaseException:
            _end(child)
            raise


def command_line(
    home: Path,
    *,
    host: str | None = None,
    port: int | None = None,
    database: str | None = None,
    extra: tuple[str, ...] = (),
) -> list[str]:
    """The command that is the daemon: also what runs in the foreground."""
    command = [sys.executable, "-m", SERVER_MODULE, "--home", str(home)]
    for option, value in (("--host", host), ("--port", port), ("--database", database)):
        if value is not None:
            command += [option, str(value)]
    return [*command, *extra]


def status(home: str | os.PathLike[str] | None = None) -> Status:
    """How the daemon of a state folder is. Never starts one."""
    folder = home_dir(home)
    recorded = _recorded(folder)
    if recorded.url is None:
        return Status(False, folder)
    running = _is_live(recorded.url)
    return Status(
        running,
        folder,
        recorded.url,
        recorded.pid,
        recorded.release,
        stale=not running,
        public=recorded.public,
    )


def stop(home: str | os.PathLike[str] | None = None, *, timeout_s: float = STOP_S) -> Status:
    """Ask the daemon of a state folder to end, and wait until it has. Returns how it was before.

    Does nothing when none runs. Raises DaemonStopFailed when it is still there after ``timeout_s`` seconds.
    """
    before = status(home)
    record = before.home / "daemon.json"
    if before.pid is None:
        return before
    if not _is_daemon_of(before.pid, before.home):
        if not before.running:
            # Its process is gone, and the number may be another program's by now.
            record.unlink(missing_ok=True)
            return before
        raise DaemonStopFailed(
            f"{before.url} answers, but process {before.pid} of {record} is not the daemon of {before.home}; "
            "stop it where it was started"
        )
    os.kill(before.pid, signal.SIGTERM)
    deadline_s = _clock.monotonic_s() + timeout_s
    while _is_daemon_of(before.pid, before.home):
        if _clock.monotonic_s() > deadline_s:
            raise DaemonStopFailed(
                f"the daemon (process {before.pid}) was asked to end {timeout_s:.0f} s ago and has not; "
                f"`kill -9 {before.pid}` ends it at once and loses nothing that was acknowledged"
            )
        time.sleep(POLL_S)
    if _recorded(before.home).pid == before.pid:
        record.unlink(missing_ok=True)
    return before


def log_tail(home: Path, start: int = 0, lines: int = LOG_TAIL_LINES) -> str:
    """The last lines that the daemon wrote to its log after byte ``start``."""
    try:
        with open(home / "server.log", "rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(start if start <= size else 0, size - LOG_TAIL_BYTES))
            text = log.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


# ── looking ─────────────────────────────────────────────────────────────────────────────────────


class _Record(msgspec.Struct, frozen=True):
    """What a daemon writes into its state folder while it serves."""

    url: str | None = None
    pid: int | None = None
    release: str | None = None
    public: str | None = None


_records = msgspec.json.Decoder(_Record)


def _recorded(folder: Path) -> _Record:
    try:
        return _records.decode((folder / "daemon.json").read_bytes())
    except (OSError, msgspec.DecodeError):
        return _Record()


def running(home: str | os.PathLike[str] | None = None) -> str | None:
    """The address of a state folder's daemon while its process is there. Asks no daemon, and starts none."""
    found = _recorded_and_there(home_dir(home))
    return None if found is None else found.url


def _recorded_and_live(folder: Path) -> Daemon | None:
    recorded = _recorded(folder)
    if recorded.url is None or not _is_live(recorded.url):
        return None
    return Daemon(recorded.url, recorded.pid, recorded.release, public=recorded.public)


def _recorded_and_there(folder: Path) -> Daemon | None:
    """The daemon whose process is there, whether or not it answers just now."""
    recorded = _recorded(folder)
    if recorded.url is None or recorded.pid is None or not _is_daemon_of(recorded.pid, folder):
        return None
    return Daemon(recorded.url, recorded.pid, recorded.release, public=recorded.public)


def _when_it_answers(folder: Path, deadline_s: float, timeout_s: float) -> Daemon | None:
    """The daemon that runs, once it answers; None where none runs. Raises DaemonStartFailed.

    One that is busy is waited for: another beside it could not begin.
    """
    while True:
        found = _recorded_and_live(folder)
        if found is not None:
            return found
        there = _recorded_and_there(folder)
        if there is None:
            return None
        if _clock.monotonic_s() > deadline_s:
            raise DaemonStartFailed(
                f"the daemon of {folder} runs (process {there.pid}), but did not answer at {there.url} "
                f"within {timeout_s:g} s: it is busy, or was stopped. Try again; `kill -9 {there.pid}` "
                "ends it at once and loses nothing that was acknowledged"
            )
        time.sleep(POLL_S)


def _is_live(url: str) -> bool:
    probe = Http(url, patience_s=0.0)
    call = Call("GET", "/v1/health/live", lambda reply: True, timeout_s=LIVE_S)
    try:
        return probe.send(call)
    except (ApiError, DaemonUnreachable):
        return False
    finally:
        probe.close()


def _is_daemon_of(pid: int, folder: Path) -> bool:
    words = _words_of(pid)
    if SERVER_MODULE not in words or "--home" not in words[:-1]:
        return False
    home = words[words.index("--home") + 1]
    return os.path.realpath(home) == os.path.realpath(folder)


def option_of(pid: int, option: str) -> str | None:
    """What the daemon with that process was started with; None where it was not, or cannot be seen."""
    words = _words_of(pid)
    return words[words.index(option) + 1] if option in words[:-1] else None


def _words_of(pid: int) -> list[str]:
    """The command line of a running process; empty when there is none (or it is a zombie)."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "surrogateescape").split("\0")
    except OSError:
        if Path("/proc/self").is_dir():
            return []
    told = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)],
        capture_output=True,
        text=True,
        timeout=LIVE_S,
        check=False,
    )
    return told.stdout.split()


# ── starting ────────────────────────────────────────────────────────────────────────────────────


def _make_private(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as failed:
        raise DaemonStartFailed(f"the state folder {folder} cannot be made: {failed}") from failed


@contextmanager
def _locked(path: Path, deadline_s: float, folder: Path) -> Generator[None]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if _clock.monotonic_s() > deadline_s:
                    message = f"another process has been starting the daemon of {folder} for too long"
                    raise DaemonStartFailed(message) from None
                time.sleep(POLL_S)
        yield
    finally:
        os.close(handle)


def _spawn(folder: Path, command: list[str]) -> subprocess.Popen[bytes]:
    with open(folder / "server.log", "ab", opener=_private) as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=True,
            close_fds=True,
        )


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _wait_until_live(
    folder: Path, child: subprocess.Popen[bytes], log_from: int, deadline_s: float
) -> Daemon:
    while True:
        code = child.poll()
        if code is not None:
            how = f"ended with code {code}" if code >= 0 else f"was ended by signal {-code}"
            raise DaemonStartFailed(_with_log(f"the daemon {how} while starting", folder, log_from))
        recorded = _recorded(folder)
        if recorded.url and recorded.pid == child.pid and _is_live(recorded.url):
            return Daemon(recorded.url, child.pid, recorded.release, started=True, public=recorded.public)
        if _clock.monotonic_s() > deadline_s:
            raise DaemonStartFailed(_with_log("the daemon did not answer in time", folder, log_from))
        time.sleep(POLL_S)


def _with_log(message: str, folder: Path, log_from: int) -> str:
    tail = log_tail(folder, log_from)
    shown = f"its log ends with:\n{tail}" if tail else "its log is empty"
    return f"{message} ({folder / 'server.log'}); {shown}"


def _end(child: subprocess.Popen[bytes]) -> None:
    for ask in _ways_to_end(child):
        if child.poll() is not None:
            return
        ask()
        try:
            child.wait(LIVE_S)
        except subprocess.TimeoutExpired:
            continue


def _ways_to_end(child: subprocess.Popen[bytes]) -> tuple[Callable[[], None], ...]:
    return child.terminate, child.kill
