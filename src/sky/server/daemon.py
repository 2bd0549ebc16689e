"""Runs a daemon, which ``main`` starts.

Decides: the order of starting and stopping. Never: a rule of the product.
Follows: two daemons never share a folder (a lock); ``daemon.json`` says where it answers, and only while it
does; on SIGTERM it stops taking requests, lets open ones end, and leaves the nodes as they are.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import fcntl
import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import msgspec
import structlog
import uvicorn

from sky.api.app import build_app
from sky.domain.errors import SkyError
from sky.kit import supervise
from sky.kit.clock import SteadyClock, SystemClock
from sky.kit.version import VERSION
from sky.providers.registry import standard
from sky.reconcile.status import Costs
from sky.server import log, settings, wiring
from sky.server.catalogue import CatalogueError
from sky.server.ending import Ending
from sky.server.keys import KeysError
from sky.server.peer import OwnerProtocol
from sky.server.settings import DEFAULT_PORT, Settings, SettingsError
from sky.store import events
from sky.store.migrate import UnusableDatabaseError, upgrade

BACKLOG = 2048
FILES_MAX = 65_536
GARBAGE_OBJECTS = 20_000
"""New objects between two looks for garbage; a request makes some hundred, which mostly go by themselves."""
KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
EXIT_USAGE = 2
EXIT_RUNNING = 3
_log = structlog.get_logger(__name__)


class StartError(Exception):
    """The daemon cannot start; the message says why and what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to stop; returns the exit code (0 stopped, 2 wrong settings, 3 cannot start)."""
    parser = argparse.ArgumentParser(prog="python -m sky.server.main", description="Runs the daemon.")
    for field in msgspec.structs.fields(Settings):
        # A command line can be read by everybody on this computer.
        if not field.name.endswith("_token"):
            parser.add_argument(f"--{field.name.replace('_', '-')}")
    given = vars(parser.parse_args(arguments))
    try:
        chosen = settings.load(given)
    except SettingsError as error:
        sys.stderr.write(f"error: {error}\n")
        return EXIT_USAGE
    log.configure(chosen.log_level)
    os.umask(0o077)
    _raise_file_limit()
    try:
        with _owned(chosen.home), _listening(chosen) as listener:
            upgrade(chosen.database_url)
            uvicorn_loop = uvicorn.Config(app="", loop="auto").get_loop_factory()
            with asyncio.Runner(loop_factory=uvicorn_loop) as runner:
                runner.run(serve(chosen, listener))
    except (StartError, SettingsError, KeysError, UnusableDatabaseError, CatalogueError) as error:
        sys.stderr.write(f"error: {error}\n")
        return EXIT_RUNNING
    return 0


def _keep_what_stays() -> None:
    """What a start made stays: nothing looks at it for garbage again, and nothing looks at every burst."""
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS, 20, 20)
    gc.enable()


def _raise_file_limit() -> None:
    """Every reader of events and every agent is an open file; the usual soft limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(FILES_MAX, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _Server(uvicorn.Server):
    """The HTTP server without its own signal handling, which would end the process before we have."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    def finish(self, ending: Ending) -> None:
        """Take no more requests; asked again, wait for no open one either."""
        self.force_exit = self.should_exit
        self.should_exit = True
        ending.begin()


async def serve(chosen: Settings, listener: socket.socket) -> None:
    """Build the daemon, serve on ``listener`` until a signal, and end in order."""
    url = _url(listener)
    clock = SteadyClock(SystemClock())
    daemon = wiring.build(chosen, clock, standard(), lambda: url)
    log.hide(daemon.services.masking.masks)
    daemon.services.blobs.prepare()
    (chosen.home / "spool").mkdir(exist_ok=True, mode=0o700)
    daemon.db.start()
    clock.not_before(await daemon.db.read(events.last_at_us))
    await daemon.db.write(lambda tx: wiring.look_around(tx, daemon.services.rules))
    app = Ending(build_app(daemon.services), daemon.services.hub)
    config = uvicorn.Config(
        app,
        http=OwnerProtocol,
        lifespan="off",
        log_config=None,
        access_log=False,
        log_level="warning",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        ws_max_size=64 * 1024 * 1024,
        ws_ping_interval=None,
        backlog=BACKLOG,
        timeout_graceful_shutdown=max(1, round(chosen.stop_seconds)),
    )
    server = _Server(config)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, server.finish, app)
    costs = Costs(daemon.db, daemon.services.hub, daemon.services.clock)
    loops = asyncio.gather(
        supervise.forever("loops", daemon.runner.run_forever),
        supervise.forever("costs", costs.run_forever),
        supervise.forever("catalogue", daemon.listing.run_forever),
    )
    _keep_what_stays()
    try:
        with _announced(chosen.home, url):
            _log.info("daemon.serves", url=url, pid=os.getpid(), release=VERSION)
            await server.serve(sockets=[listener])
    finally:
        loops.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await loops
        try:
            await daemon.runner.stop()
        except SkyError as kept:  # a full disk, for one; the claims end by themselves
            _log.warning("claims.kept", error=kept.message)
        daemon.db.close()
        _log.info("daemon.stopped")


@contextlib.contextmanager
def _owned(home: Path) -> Generator[None]:
    """The state folder, private and locked for as long as the daemon runs."""
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        home.chmod(0o700)
        descriptor = os.open(home / "daemon.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        msg = f"the state folder {home} cannot be used: {error.strerror}; set SKY_HOME to another one"
        raise StartError(msg) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        msg = f"a daemon already runs for {home}; see `sky server status`, or set SKY_HOME to another folder"
        raise StartError(msg) from error
    try:
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _listening(chosen: Settings) -> Generator[socket.socket]:
    family = socket.AF_INET6 if chosen.host == "::1" else socket.AF_INET
    host = "127.0.0.1" if chosen.host == "localhost" else chosen.host
    listener = socket.socket(family, socket.SOCK_STREAM)
    with contextlib.closing(listener):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        wanted = DEFAULT_PORT if chosen.port is None else chosen.port
        try:
            listener.bind((host, wanted))
        except OSError as error:
            if chosen.port is not None or error.errno != errno.EADDRINUSE:
                msg = f"cannot listen on {host}:{wanted}: {error.strerror}; choose another --port"
                raise StartError(msg) from error
            listener.bind((host, 0))
        # What is accepted has these too: a peer that is gone without a word is noticed by the kernel.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE:
            if hasattr(socket, name):
                listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        listener.listen(BACKLOG)
        listener.setblocking(False)
        listener.set_inheritable(False)
        yield listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.contextmanager
def _announced(home: Path, url: str) -> Generator[None]:
    """``daemon.json`` while we serve: written whole, and removed only if it is still ours."""
    path = home / "daemon.json"
    body = msgspec.json.encode({"url": url, "pid": os.getpid(), "release": VERSION})
    fresh = path.with_suffix(".new")
    fresh.write_bytes(body)
    fresh.chmod(0o600)
    fresh.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
