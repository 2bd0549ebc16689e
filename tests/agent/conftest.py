"""A daemon's inner face, written here from the wire alone, and real agent processes that dial it.

Decides: how a test drives an agent from the other side of its socket. Never: imports a part of the agent.
Follows: what these tests see is what any daemon would see: messages, blobs, sessions, and processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle
import lz4.frame
import msgspec
import pytest
from aiohttp import WSMsgType, web
from tests.ports import free_port

from sky.wire.agent import (
    Ask,
    Cancel,
    ConsoleLines,
    Credit,
    Data,
    Dial,
    Eof,
    Exit,
    FromAgent,
    Heard,
    Hello,
    Item,
    Outcome,
    Phase,
    Ping,
    Pong,
    Report,
    Session,
    Started,
    Welcome,
    Work,
    WorkItem,
)

T = TypeVar("T")
WAIT_S = 60.0
TOKEN = "a-node-token"
_encoder = msgspec.msgpack.Encoder()
_from_agent: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(FromAgent)
_session: msgspec.msgpack.Decoder[Session] = msgspec.msgpack.Decoder(Session)


def until(found: Callable[[], T], what: str, seconds: float = WAIT_S) -> T:
    """The first true value of ``found``; fails naming ``what`` after a while."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = found()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError(f"not within {seconds} s: {what}")


def pack(value: Any) -> bytes:
    """A value in the payload codec."""
    return lz4.frame.compress(cloudpickle.dumps(value, protocol=5))


def unpack(content: bytes | None) -> Any:
    """The value of a payload."""
    assert content is not None
    return pickle.loads(lz4.frame.decompress(content))


class Daemon:
    """Speaks ``wire/agent`` on a port of its own, in a thread of its own."""

    def __init__(self) -> None:
        self.lease_seconds = 0.0
        self.ping_seconds = 0.2
        self.answering = True
        self.holding = False
        self.message_bytes_max = 0
        self.blobs: dict[str, bytes] = {}
        self.wrong_blobs: dict[str, bytes] = {}
        self.blob_status: dict[str, int] = {}
        self.hellos: list[Hello] = []
        self.pings: list[Ping] = []
        self.reports: list[Report] = []
        self.repeats: list[int] = []
        self.console: list[ConsoleLines] = []
        self.started: list[Started] = []
        self.items: list[Item] = []
        self.outcomes: dict[str, Outcome] = {}
        self.outcomes_told: list[str] = []
        self.phases: list[Phase] = []
        self.ready = False
        self.window: int | None = None
        self.sessions: dict[str, Future[web.WebSocketResponse]] = {}
        self.refusals: list[str] = []
        self._heard: dict[str, int] = {}
        self._socket: web.WebSocketResponse | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._runner: web.AppRunner | None = None
        self.port = 0

    def on_loop(self, work: Any, seconds: float = WAIT_S) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # ── serving ──

    def start(self) -> None:
        """Listen; on the same port as before, if there was one."""
        self.on_loop(self._start())

    async def _start(self) -> None:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_get("/agent/v1/connect", self._connect)
        app.router.add_get("/agent/v1/rendezvous/{id}", self._rendezvous)
        app.router.add_get("/agent/v1/blobs/{sha}", self._get_blob)
        app.router.add_put("/agent/v1/blobs/{sha}", self._put_blob)
        self._runner = web.AppRunner(app, shutdown_timeout=0.2)
        await self._runner.setup()
        self.port = self.port or free_port()  # which stays its own while nobody listens there
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()

    def stop(self) -> None:
        """Stop listening and cut every connection."""
        self.on_loop(self._stop())

    async def _stop(self) -> None:
        self._socket = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def close(self) -> None:
        self.stop()
        self.on_loop(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _admit(self, request: web.Request) -> None:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}" or not request.headers.get("X-Sky-Node"):
            self.refusals.append(request.path)
            raise web.HTTPUnauthorized

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        self._admit(request)
        socket = web.WebSocketResponse(max_msg_size=self.message_bytes_max)
        await socket.prepare(request)
        async for message in socket:
            if message.type is not WSMsgType.BINARY:
                break
            if self.answering:
                await self._on_message(socket, _from_agent.decode(message.data))
        return socket

    async def _on_message(self, socket: web.WebSocketResponse, message: FromAgent) -> None:
        match message:
            case Hello():
                self.hellos.append(message)
                self._boot = message.boot
                welcome = Welcome(
                    lease_seconds=self.lease_seconds,
                    ping_seconds=self.ping_seconds,
                    heard=self._heard.get(message.boot, 0),
                    total=1,
                )
                await socket.send_bytes(_encoder.encode(welcome))
                self._socket = socket
            case Ping():
                self.pings.append(message)
                await socket.send_bytes(_encoder.encode(Pong()))
            case Report():
                self._on_report(message)
                while self.holding:
                    await asyncio.sleep(0.005)
                await socket.send_bytes(_encoder.encode(Heard(number=message.number)))

    def _on_report(self, report: Report) -> None:
        if report.number <= self._heard.get(self._boot, 0):
            self.repeats.append(report.number)
            return
        assert report.number == self._heard.get(self._boot, 0) + 1
        self._heard[self._boot] = report.number
        self.reports.append(report)
        self.phases += report.phases
        self.ready = report.ready
        self.window = report.window if report.window is not None else self.window
        self.console += report.console
        self.started += report.started
        self.items += report.items
        for outcome in report.outcomes:
            self.outcomes_told.append(outcome.execution)
            self.outcomes.setdefault(outcome.execution, outcome)

    async def _get_blob(self, request: web.Request) -> web.StreamResponse:
        self._admit(request)
        sha = request.match_info["sha"]
        if sha in self.blob_status:
            return web.Response(status=self.blob_status[sha], text="no")
        content = self.wrong_blobs.get(sha, self.blobs.get(sha))
        return web.Response(status=404) if content is None else web.Response(body=content)

    async def _put_blob(self, request: web.Request) -> web.StreamResponse:
        self._admit(request)
        content = await request.read()
        sha = hashlib.sha256(content).hexdigest()
        if sha != request.match_info["sha"]:
            return web.Response(status=400)
        self.blobs[sha] = content
        return web.Response(status=201)

    async def _rendezvous(self, request: web.Request) -> web.StreamResponse:
        self._admit(request)
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        self.sessions[request.match_info["id"]].set_result(socket)
        while not socket.closed:
            await asyncio.sleep(0.01)
        return socket

    # ── saying ──

    def say(self, message: Any) -> None:
        """Send a message to the connected agent."""
        socket = until(lambda: self._socket, "a connection")
        self.on_loop(socket.send_bytes(_encoder.encode(message)))

    def hang_up(self) -> None:
        """Cut the agent's connection."""
        socket, self._socket = self._socket, None
        if socket is not None:
            self.on_loop(socket.close())

    def store(self, content: bytes) -> str:
        """Keep a blob; gives its name."""
        sha = hashlib.sha256(content).hexdigest()
        self.blobs[sha] = content
        return sha

    def text(self, execution: str | None, stream: str = "stdout") -> str:
        """What an execution wrote so far."""
        return "".join(
            lines.content for lines in self.console if lines.execution == execution and lines.stream == stream
        )


class Dialled:
    """The daemon's end of one session."""

    def __init__(self, daemon: Daemon, socket: web.WebSocketResponse) -> None:
        self._daemon = daemon
        self._socket = socket
        self.output = {"stdout": b"", "stderr": b""}
        self.eof = False

    def send(self, frame: Session) -> None:
        self._daemon.on_loop(self._socket.send_bytes(_encoder.encode(frame)))

    def receive(self) -> Session:
        message = self._daemon.on_loop(self._socket.receive())
        assert message.type is WSMsgType.BINARY, message
        frame = _session.decode(message.data)
        if isinstance(frame, Data):
            self.output[frame.stream] += frame.content
        if isinstance(frame, Eof):
            self.eof = True
        return frame

    def until_output(self, wanted: bytes) -> None:
        deadline = time.monotonic() + WAIT_S
        while wanted not in self.output["stdout"]:
            assert time.monotonic() < deadline, self.output
            assert not isinstance(self.receive(), Exit), self.output

    def exit(self) -> Exit:
        while True:
            frame = self.receive()
            if isinstance(frame, Exit):
                return frame

    def close(self) -> None:
        self._daemon.on_loop(self._socket.close())


class Node:
    """One agent process and its home."""

    def __init__(self, daemon: Daemon, home: Path, **spec: Any) -> None:
        self.daemon = daemon
        self.home = home
        self.log_path = home / "agent.log"
        self.name = f"nod_{os.urandom(6).hex()}"
        self.spec: dict[str, Any] = {
            "worker": {"executor": "process", "concurrency": 1},
            "cpus": 2,
            "compute": "cmp_test",
            "rank": 0,
            "envs": str(home / "envs"),
        } | spec
        self.process: subprocess.Popen[bytes] | None = None
        self.extra: dict[str, str] = {}
        self._functions: dict[Any, str] = {}
        self._next = 0

    def start(self, *, ready: bool = True) -> Node:
        self.home.mkdir(exist_ok=True)
        (self.home / "token").write_text(TOKEN)
        (self.home / "spec.json").write_text(json.dumps(self.spec))
        self.daemon.ready = False
        environment = {
            **os.environ,
            "SKY_AGENT_NODE": self.name,
            "SKY_AGENT_URL": self.daemon.url,
            "SKY_AGENT_TOKEN_FILE": str(self.home / "token"),
            "SKY_AGENT_HOME": str(self.home),
            "SKY_AGENT_SPEC": str(self.home / "spec.json"),
            **self.extra,
        }
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sky.agent"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if ready:
            until(lambda: self.daemon.ready, "a ready node")
        return self

    @property
    def log(self) -> str:
        return self.log_path.read_text() if self.log_path.is_file() else ""

    def wait(self, seconds: float = WAIT_S) -> int:
        assert self.process is not None
        return self.process.wait(seconds)

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def processes(self) -> list[int]:
        """Every process of this node, the agent and its warden too."""
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                variables = (entry / "environ").read_bytes().split(b"\0")
                if f"SKY_AGENT_NODE={self.name}".encode() in variables:
                    found.append(int(entry.name))
        return found

    def function(self, function: Any) -> str:
        """A function as a stored blob."""
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        if module is not None and "test_" in module.__name__:
            cloudpickle.register_pickle_by_value(module)
        if function not in self._functions:
            self._functions[function] = self.daemon.store(pack(function))
        return self._functions[function]

    def item(self, function: Any, *args: Any, **options: Any) -> WorkItem:
        self._next += 1
        named = {
            "execution": f"exe_{self.name}_{self._next}",
            "task": f"tsk_{self._next}",
            "ordinal": 1,
            "function": function if isinstance(function, str) else self.function(function),
            "rank": 0,
            "total": 1,
            "args": pack((args, {})),
        } | options
        return WorkItem(**named)

    def send(self, function: Any, *args: Any, **options: Any) -> str:
        """Have the agent run a call; gives its execution."""
        item = self.item(function, *args, **options)
        self.daemon.say(Work(items=(item,)))
        return item.execution

    def send_all(self, items: list[WorkItem]) -> list[str]:
        self.daemon.say(Work(items=tuple(items)))
        return [item.execution for item in items]

    def outcome(self, execution: str, seconds: float = WAIT_S) -> Outcome:
        return until(lambda: self.daemon.outcomes.get(execution), f"the outcome of {execution}", seconds)

    def run(self, function: Any, *args: Any, **options: Any) -> Outcome:
        return self.outcome(self.send(function, *args, **options))

    def value(self, function: Any, *args: Any, **options: Any) -> Any:
        outcome = self.run(function, *args, **options)
        assert outcome.state == "succeeded", outcome
        return unpack(outcome.result)

    def cancel(self, *executions: str) -> None:
        self.daemon.say(Cancel(executions=executions))

    def credit(self, execution: str, consumed: int) -> None:
        self.daemon.say(Credit(execution=execution, consumed=consumed))

    def dial(self, **ask: Any) -> Dialled:
        """Open a session of the asked kind."""
        name = f"rdv_{os.urandom(4).hex()}"
        met: Future[web.WebSocketResponse] = Future()
        self.daemon.sessions[name] = met
        self.daemon.say(Dial(rendezvous=name, url=self.daemon.url))
        dialled = Dialled(self.daemon, met.result(WAIT_S))
        dialled.send(Ask(**ask))
        return dialled

    def end(self) -> None:
        """Kill whatever is left; a test that cares looks before."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not self.processes(), "the end of what was killed")


@pytest.fixture(name="until", scope="session")
def _until() -> Callable[..., Any]:
    return until


@pytest.fixture(name="pack", scope="session")
def _pack() -> Callable[..., bytes]:
    return pack


@pytest.fixture(name="unpack", scope="session")
def _unpack() -> Callable[..., Any]:
    return unpack


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    daemon = Daemon()
    daemon.start()
    yield daemon
    daemon.close()


@pytest.fixture
def node_of(daemon: Daemon, tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """Makes nodes that are not started yet; ``worker`` and other parts of the spec by name."""
    made: list[Node] = []

    def make(**spec: Any) -> Node:
        node = Node(daemon, tmp_path / f"node{len(made)}", **spec)
        made.append(node)
        return node

    yield make
    for node in made:
        node.end()
        if sys.exc_info()[0] is not None:
            print(node.log)


def _shared(folder: Path, **spec: Any) -> Iterator[Node]:
    daemon = Daemon()
    daemon.start()
    node = Node(daemon, folder / "node", **spec)
    try:
        yield node.start()
    finally:
        print(node.log)
        node.end()
        daemon.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A ready node with two process workers, shared by the tests of a file."""
    yield from _shared(tmp_path_factory.mktemp("process"), worker={"executor": "process", "concurrency": 2})


@pytest.fixture(scope="module")
def threaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A ready node with two threads in one worker, shared by the tests of a file."""
    yield from _shared(tmp_path_factory.mktemp("thread"), worker={"executor": "thread", "concurrency": 2})


@pytest.fixture(scope="module", params=["process", "thread"])
def single(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A ready node with one worker that runs one call at a time, of each kind, for a whole file."""
    worker = {"executor": request.param, "concurrency": 1}
    yield from _shared(tmp_path_factory.mktemp("single"), worker=worker)


@pytest.fixture(params=["process", "thread"])
def either(request: pytest.FixtureRequest) -> Node:
    """The same test with each kind of worker."""
    return request.getfixturevalue("node" if request.param == "process" else "threaded")
