"""Runs a daemon, which ``main`` starts.

Decides: the order of starting and stopping. Never: a rule of the product.
Follows: two daemons never share a folder (a lock); ``daemon.json`` says where it answers, and only while it
does; on SIGTERM it stops taking requests, lets open ones end, and leaves the nodes as they are.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import gc
import os
import resource
import signal
import sys
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path

import msgspec
import structlog
import uvicorn

from sky.api.app import build_app
from sky.domain import price_list
from sky.domain.errors import SkyError
from sky.domain.price_list import PriceListError
from sky.kit import supervise
from sky.kit.clock import AgreedClock, SteadyClock, SystemClock
from sky.kit.version import VERSION
from sky.providers.registry import standard
from sky.reconcile.presence import Presence
from sky.reconcile.status import Costs
from sky.server import log, notify, prices, settings, tracing, unfinished, unstarted, wiring
from sky.server.catalogue import CatalogueError
from sky.server.clock_memory import ClockMemory
from sky.server.doors import Door, StartError, opened
from sky.server.ending import Ending
from sky.server.keys import KeysError
from sky.server.settings import Settings, SettingsError
from sky.server.unfinished import UnfinishedError
from sky.store import agreement, events, installation
from sky.store.migrate import UnusableDatabaseError, upgrade

FILES_MAX = 65_536
GARBAGE_OBJECTS = 20_000
"""New objects between two looks for garbage; a request makes some hundred, which mostly go by themselves."""
EXIT_USAGE = 2
EXIT_RUNNING = 3
_log = structlog.get_logger(__name__)


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
    log.configure(chosen.log_level, chosen.log_format)
    os.umask(0o077)
    _raise_file_limit()
    try:
        with tracing.begun(), _owned(chosen.home), opened(chosen) as doors:
            chosen.shared.mkdir(parents=True, exist_ok=True, mode=0o700)
            price_list.use(prices.read(chosen.price_list))
            _whole(chosen)
            uvicorn_loop = uvicorn.Config(app="", loop="auto").get_loop_factory()
            with asyncio.Runner(loop_factory=uvicorn_loop) as runner:
                runner.run(serve(chosen, doors))
    except _WRONG_TO_START as error:
        sys.stderr.write(f"error: {error}\n")
        return EXIT_RUNNING
    except OSError as error:  # what serves has its errors in groups: this is one of the start
        _log.debug("start.failed", exc_info=True)
        sys.stderr.write(f"error: {unstarted.told(error, chosen.shared)}\n")
        return EXIT_RUNNING
    return 0


def _whole(chosen: Settings) -> None:
    """Have the newest schema, and nothing that a copy or a restore has left half-done."""
    if unfinished.refuse(chosen):
        _log.info("restore.finished", folder=str(chosen.shared))
    upgrade(chosen.database_url)
    own = installation.begin(chosen.database_url)
    _log.info("installation", identity=own.identity, origin=own.origin)


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


_WRONG_TO_START = (
    StartError,
    SkyError,
    SettingsError,
    KeysError,
    UnusableDatabaseError,
    UnfinishedError,
    CatalogueError,
    PriceListError,
)


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


async def serve(chosen: Settings, doors: Sequence[Door]) -> None:
    """Build the daemon, serve at ``doors`` until a signal, and end in order."""
    url = doors[0].url
    public = next((door.url for door in doors if door.public), None)
    wall = AgreedClock(SystemClock())
    if chosen.shares_database:
        await asyncio.to_thread(agreement.begin, wall, chosen.database_url)
    memory = None if chosen.shares_database else ClockMemory(chosen.home, wall)
    clock = SteadyClock(wall, None if memory is None else memory.begin())
    daemon = wiring.build(chosen, clock, standard(), lambda: url)
    log.hide(daemon.services.masking.masks)
    daemon.services.blobs.prepare()
    (chosen.home / "spool").mkdir(exist_ok=True, mode=0o700)
    daemon.db.start()
    clock.not_before(await daemon.db.read(events.last_at_us))
    await daemon.db.write(lambda tx: wiring.look_around(tx, daemon.services.rules))
    app = Ending(build_app(daemon.services), daemon.services.hub)
    servers = [_Server(door.config(app, chosen.stop_seconds)) for door in doors]

    tell = notify.teller()

    def finish() -> None:
        tell(notify.STOPPING)
        for server in servers:
            server.finish(app)

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, finish)
    agree = partial(daemon.db.read, partial(agreement.agree, wall)) if chosen.shares_database else None
    mine = wiring.deployment_of(daemon.keys)
    presence = Presence(daemon.db, daemon.holder, public or url, mine, agree)
    _alone(await presence.begin(), chosen)
    costs = Costs(daemon.db, daemon.services.hub, daemon.services.clock)
    forever = partial(supervise.forever, expected=SkyError)
    loops = asyncio.gather(
        forever("loops", daemon.runner.run_forever),
        forever("costs", costs.run_forever),
        forever("catalogue", daemon.listing.run_forever),
        forever("presence", presence.run_forever),
        *([] if memory is None else [forever("clock", partial(memory.run_forever, clock))]),
        *(forever("certificate", door.tls.run_forever) for door in doors if door.tls is not None),
    )
    _keep_what_stays()
    try:
        with _announced(chosen.home, url, public):
            tell(notify.READY, f"STATUS=serves at {public or url}")
            _log.info("daemon.serves", url=url, public=public, pid=os.getpid(), release=VERSION)
            async with asyncio.TaskGroup() as serving:
                for server, door in zip(servers, doors, strict=True):
                    serving.create_task(server.serve(sockets=[door.listener]))
    finally:
        loops.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await loops
        await presence.end()
        try:
            await daemon.runner.stop()
        except SkyError as kept:  # a full disk, for one; the claims end by themselves
            _log.warning("claims.kept", error=kept.message)
        daemon.db.close()
        _log.info("daemon.stopped")


def _alone(others: set[str], chosen: Settings) -> None:
    """Daemons of one database have one key, and the same files. Raises StartError."""
    if others:
        shown = chosen.shared_folder or chosen.home
        msg = (
            f"a daemon with other keys serves from this database; the ones in {shown} do not open what it "
            "keeps there: set SKY_SHARED_FOLDER to the folder that it has"
        )
        raise StartError(msg)


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
        if not isinstance(error, BlockingIOError):
            msg = f"{home / 'daemon.lock'} cannot be locked: {error.strerror}; set SKY_HOME to a local folder"
            raise StartError(msg) from error
        msg = f"a daemon already runs for {home}; see `sky server status`, or set SKY_HOME to another folder"
        raise StartError(msg) from error
    try:
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _announced(home: Path, url: str, public: str | None) -> Generator[None]:
    """``daemon.json`` while we serve: written whole, and removed only if it is still ours."""
    path = home / "daemon.json"
    body = msgspec.json.encode({"url": url, "pid": os.getpid(), "release": VERSION, "public": public})
    fresh = path.with_suffix(".new")
    fresh.write_bytes(body)
    fresh.chmod(0o600)
    fresh.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
