"""The agent as a whole: its parts, who tells whom what, and the four ways it ends.

Decides: the order of starting (say hello, make the environment, start workers, be ready) and of stopping.
Never: does the work of a part. Follows: an agent ends when it is told to (SIGTERM, ``Stop``), or when it has
heard from no daemon for as long as its lease; it ends its workers first, and a warden ends what they left.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import signal
import sys
import time
from collections.abc import Coroutine
from importlib import metadata
from pathlib import Path

import aiohttp

from sky.agent import environment, included, leftovers, recall, surroundings, system_packages
from sky.agent.blobs import Blobs
from sky.agent.connection import Connection
from sky.agent.crew import StartFailed
from sky.agent.executor import Executor
from sky.agent.frames import Setup
from sky.agent.installer import Unbuildable
from sky.agent.journal import Journal
from sky.agent.launch import Plan
from sky.agent.leftovers import Warden
from sky.agent.log import say
from sky.agent.outcomes import Outcomes
from sky.agent.probe import Probe
from sky.agent.reporter import Reporter, Source, StreamName
from sky.agent.sessions import Sessions
from sky.agent.settings import Settings, Unusable, read
from sky.agent.shelf import Shelf
from sky.kit.clock import SystemClock
from sky.wire.agent import (
    PROTOCOL,
    Cancel,
    Credit,
    Dial,
    Drain,
    FromDaemon,
    Hello,
    Phase,
    Ping,
    Recall,
    Stop,
    Welcome,
    Work,
)

LEASE_POLL_S_MIN = 0.05
LEASE_POLL_S_MAX = 1.0
LAST_REPORT_S = 1.0
"""How long an agent that ends tries to tell what it still has to tell."""
HOME_LOCK_S = 2.0
BOOT_BYTES = 12
EXIT_FAILED = 1
EXIT_UNUSABLE = 2


class Agent:
    """One agent, from start to end."""

    def __init__(self, settings: Settings, boot: str) -> None:
        """Needs a running event loop. Raises OSError when the home cannot be used."""
        self._settings = settings
        self._boot = boot
        self._session: aiohttp.ClientSession | None = None
        self._ended = asyncio.Event()
        self._reason = ""
        self.failed = False
        self._lease_s = settings.first_lease_s
        self._draining = False
        self._ready = False
        self._error: str | None = None
        self._python = ".".join(str(part) for part in sys.version_info[:3])
        self._base = surroundings.variables(settings, boot, os.environ)
        self._installing = surroundings.for_installers(self._base, os.environ)
        self._shelf = Shelf(settings.envs, settings.spec.envs_bytes_max)
        self._journal = Journal(settings.home / "journal")
        self._reporter = Reporter(self._window, self._heard)
        self._blobs = Blobs(settings, self._client)
        self._outcomes = Outcomes(settings, self._journal, self._reporter, self._blobs, SystemClock())
        self._executor = Executor(settings, self._journal, self._reporter, self._outcomes, self._blobs)
        self._sessions = Sessions(
            settings, self._client, surroundings.with_python(self._base, sys.executable)
        )
        self._probe = Probe(settings.home)
        self._connection = Connection(settings, self._client, self._reporter, self)
        self._tasks: set[asyncio.Task[None]] = set()

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=False)
        return self._session

    def _window(self) -> int:
        return 0 if self._draining else self._executor.window.size

    def _heard(self, executions: list[str]) -> None:
        self._outcomes.heard(executions)

    # ── what the connection asks and tells ──

    def hello(self) -> Hello:
        """Who this is, and what it has."""
        return Hello(
            protocol=PROTOCOL,
            boot=self._boot,
            pid=os.getpid(),
            python=self._python,
            release=_release(),
            slots=self._settings.slots,
            window=self._window(),
            ready=self._ready,
            known=self._journal.known(),
            error=self._error,
        )

    def ping(self) -> Ping:
        """Still here."""
        return Ping(window=self._window(), metrics=self._probe.metrics())

    def welcome(self, message: Welcome) -> None:
        """A daemon has taken this node in."""
        self._lease_s = message.lease_seconds
        self._drain(message.draining)

    def handle(self, message: FromDaemon) -> None:
        """Do what a daemon says, or have it done; never waits."""
        match message:
            case Work():
                self._executor.accept(message.items)
            case Cancel():
                self._executor.cancel(message.executions)
            case Credit():
                self._executor.credit(message.execution, message.consumed)
            case Dial():
                self._sessions.dial(message)
            case Drain():
                self._drain(message.draining)
            case Stop():
                self.end(f"told to stop: {message.reason}")
            case _:
                return

    def _drain(self, draining: bool) -> None:
        self._draining = draining
        self._reporter.window_changed()

    def _recalled(self, told: Recall) -> None:
        self._reporter.recalled(told)
        self._drain(True)

    def end(self, reason: str) -> None:
        """Stop everything and exit."""
        if not self._ended.is_set():
            self._reason = reason
            self._ended.set()

    # ── its life ──

    async def run(self) -> None:
        """Live until told to end."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.end, f"got {number.name}")
        self._outcomes.resume()
        self._start(self._connection.run())
        self._start(self._watch_lease())
        if self._settings.spot_notice is not None:
            self._start(recall.watch(self._settings.spot_notice, self._client(), self._recalled))
        self._start(self._make_ready())
        await self._ended.wait()
        say("ends", reason=self._reason)
        await self._stop()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.failed = True
            self.end(f"a part of the agent failed: {task.exception()!r}")

    async def _stop(self) -> None:
        await asyncio.gather(self._executor.stopping.stop_all(), self._sessions.stop())
        await self._reporter.settled(LAST_REPORT_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
        self._shelf.close()
        self._journal.close()

    async def _watch_lease(self) -> None:
        """End when no daemon was heard for as long as the lease, or when the home was taken away."""
        while True:
            silent_s = time.monotonic() - self._connection.heard_at_s
            if self._lease_s > 0 and silent_s > self._lease_s:
                self.end(f"no daemon heard for {silent_s:.1f} s; the lease is {self._lease_s:g} s")
                return
            if not self._settings.home.is_dir():
                self.end(f"its home is gone: {self._settings.home}")
                return
            left_s = self._lease_s - silent_s if self._lease_s > 0 else LEASE_POLL_S_MAX
            await asyncio.sleep(min(LEASE_POLL_S_MAX, max(LEASE_POLL_S_MIN, left_s)))

    async def _make_ready(self) -> None:
        """Environment, workers, ready; or the reason why not, said until somebody ends this node."""
        image, says = self._settings.spec.image, self._installer_says
        work, envs = self._settings.work, self._settings.envs
        phase = "environment"
        try:
            async with asyncio.timeout(image.bootstrap_timeout):
                self._phase(phase, "started")
                sha256 = image.includes_sha256
                files = await included.prepare(sha256, self._shelf, self._blobs, work, says)
                await system_packages.install(image.apt, envs / ".apt", self._installing, says)
                python = await environment.prepare(image, self._shelf, self._installing, says)
                self._phase(phase, "completed")
                phase = "workers"
                self._phase(phase, "started")
                variables = surroundings.with_python(self._base, python)
                self._sessions.set_environment(variables)
                self._python = await self._executor.start(self._plan(python, variables, files))
                self._phase(phase, "completed")
        except TimeoutError:
            await self._not_ready(phase, f"it took longer than {image.bootstrap_timeout} s")
            return
        except (Unbuildable, StartFailed, OSError) as error:
            await self._not_ready(phase, str(error))
            return
        self._ready = True
        self._reporter.ready()
        self._start(self._probe.watch_gpus(variables))
        for gauge in image.metrics or ():
            self._start(self._probe.watch(gauge, variables, self._settings.work))

    async def _not_ready(self, phase: str, error: str) -> None:
        self._error = f"{phase}: {error}"
        say("cannot become ready", phase=phase, error=error)
        self._reporter.phase(Phase(phase=phase, event="failed", error=error))
        await self._reporter.settled(LAST_REPORT_S)
        await self._connection.renew()

    def _phase(self, name: str, event: str) -> None:
        self._reporter.phase(
            Phase(phase=name, event="started") if event == "started" else Phase(phase=name, event="completed")
        )

    def _installer_says(self, stream: StreamName, text: str) -> None:
        self._reporter.console(_INSTALLER, stream, text, text.count("\n"), None)

    def _plan(self, python: str, variables: dict[str, str], files: Path | None) -> Plan:
        settings = self._settings
        return Plan(
            python=python,
            environment=variables,
            work=settings.work,
            setup=Setup(
                threads=settings.threads,
                slots=settings.slots if settings.threads else 1,
                node=settings.node,
                compute=settings.spec.compute,
                work=str(settings.work),
                results=str(settings.results),
                memory_bytes=settings.memory_bytes,
                accelerators=settings.spec.accelerators,
                url=settings.url,
                url_file=str(settings.connected),
                included=None if files is None else str(files),
                plugins=tuple((plugin.kind, plugin.params) for plugin in settings.spec.plugins),
            ),
        )


_INSTALLER = Source(lambda: None, lambda: None)
"""Installers say little; they are never paused."""


def _release() -> str:
    try:
        return metadata.version("skyfleet")
    except metadata.PackageNotFoundError:
        return "0"


def _lock_home(settings: Settings) -> int | None:
    """Hold the home for this process; None when another agent does and goes on doing so."""
    fd = os.open(settings.home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + HOME_LOCK_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            if time.monotonic() > deadline:
                return None
            time.sleep(LEASE_POLL_S_MIN)


def main() -> int:
    """Run an agent as the environment says; gives the process's exit code."""
    try:
        settings = read(os.environ)
    except Unusable as error:
        say("cannot start", error=str(error))
        return EXIT_UNUSABLE
    surroundings.make_folders(settings)
    lock = _lock_home(settings)
    if lock is None:
        say("cannot start", error=f"another agent runs in {settings.home}")
        return EXIT_UNUSABLE
    surroundings.raise_file_limit()
    boot = secrets.token_hex(BOOT_BYTES)
    killed = leftovers.sweep(settings.node, boot)
    if killed:
        say("killed what an earlier agent left", processes=killed)
    warden = Warden(boot, surroundings.variables(settings, boot, os.environ))

    async def live() -> int:
        agent = Agent(settings, boot)
        await agent.run()
        return EXIT_FAILED if agent.failed else 0

    try:
        return asyncio.run(live())
    finally:
        warden.dismiss()
        os.close(lock)
