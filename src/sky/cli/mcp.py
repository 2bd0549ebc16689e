"""``sky mcp``: a server of the Model Context Protocol on stdin and stdout, for programs with a model.

Decides: how a message is answered, in both ways that revisions of the protocol have: after an ``initialize``,
or with the revision in each request. Never: starts a daemon; changes anything unless it was allowed to.
Follows: a call is one of our commands in a process of its own, bounded in time and in what it tells; what a
command refuses, the model is told in the command's own words.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Annotated, Any, NamedTuple, cast

import msgspec
from cyclopts import Parameter

from sky.cli import output
from sky.cli.app import noun, only
from sky.cli.mcp_tools import Tool, described, offered, wrong_with
from sky.client import daemon, endpoints
from sky.client.exceptions import InvalidEndpointError
from sky.kit.version import VERSION

HANDSHAKES = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Revisions that begin with ``initialize``, newest first."""
STATELESS = ("2026-07-28",)
"""Revisions whose every request names its revision."""
REVISION = "io.modelcontextprotocol/protocolVersion"
SERVER = "io.modelcontextprotocol/serverInfo"
PARSE, REQUEST, METHOD, PARAMS, UNSUPPORTED = -32700, -32600, -32601, -32602, -32022
CALL_S = 60.0
CALLS_AT_ONCE = 4
LINE_BYTES_MAX = 1024 * 1024
TOLD_CHARS_MAX = 60_000
INSTRUCTIONS = (
    "Skyfleet: clusters, computes for functions, and paid jobs on machines. Money is in USD. `doctor` and "
    "`why` tell what is wrong and what to do. A state `indeterminate` means that nobody knows: do not do it "
    "again without asking the user."
)


class Told(NamedTuple):
    """What a call ended with."""

    text: str
    failed: bool


class Refused(Exception):
    """A message that is answered with an error of the protocol."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class Server:
    """One client, until its input ends."""

    def __init__(self, tools: dict[str, Tool], out: IO[bytes]) -> None:
        self._tools = tools
        self._out = out
        self._lock = threading.Lock()
        self._running: dict[str | int, subprocess.Popen[bytes] | None] = {}

    def serve(self, lines: Iterator[bytes | None]) -> None:
        """Answer each message; calls are answered as they end. None: a line that was too long."""
        with ThreadPoolExecutor(CALLS_AT_ONCE, "call") as pool:
            for line in lines:
                if line is None:
                    self._refuse(None, Refused(PARSE, f"a message has more than {LINE_BYTES_MAX} bytes"))
                elif line.strip():
                    self._take(line, pool)

    def _take(self, line: bytes, pool: ThreadPoolExecutor) -> None:
        try:
            said: Any = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._refuse(None, Refused(PARSE, f"no JSON: {error}"))
            return
        if not isinstance(said, dict):
            self._refuse(None, Refused(REQUEST, "a message is one object"))
            return
        message = cast("dict[str, Any]", said)
        method, number = message.get("method"), message.get("id")
        params: object = message.get("params") or {}
        if method is None and ("result" in message or "error" in message):
            return  # an answer, and nothing was asked
        try:
            if not isinstance(method, str) or not isinstance(params, dict):
                raise Refused(REQUEST, "a request has a method, and an object as its params")
            if isinstance(number, str | int):
                self._answer(number, method, cast("dict[str, Any]", params), pool)
            elif method == "notifications/cancelled":
                self._cancel(cast("dict[str, Any]", params).get("requestId"))
        except Refused as refused:
            self._refuse(number, refused)

    def _answer(
        self, number: str | int, method: str, params: dict[str, Any], pool: ThreadPoolExecutor
    ) -> None:
        revision = _object(params.get("_meta")).get(REVISION)
        if revision is not None and revision not in STATELESS:
            data = {"supported": [*STATELESS, *HANDSHAKES], "requested": revision}
            raise Refused(UNSUPPORTED, f"revision {revision!r} is not spoken here", data)
        whole: dict[str, Any] = {} if revision is None else {"resultType": "complete"}
        lasting = {} if revision is None else {"ttlMs": 0, "cacheScope": "private"}
        about = {"name": "skyfleet", "title": "Skyfleet", "version": VERSION}
        can = {"capabilities": {"tools": {"listChanged": False}}, "instructions": INSTRUCTIONS}
        match method:
            case "initialize":
                wanted = params.get("protocolVersion")
                spoken = wanted if wanted in HANDSHAKES else HANDSHAKES[0]
                self._tell(number, {"protocolVersion": spoken, "serverInfo": about, **can})
            case "server/discover":
                versions = {"supportedVersions": list(STATELESS)}
                self._tell(number, {**whole, **lasting, **versions, **can, "_meta": {SERVER: about}})
            case "ping":
                self._tell(number, whole)
            case "tools/list":
                tools = [described(name, tool) for name, tool in self._tools.items()]
                self._tell(number, {**whole, **lasting, "tools": tools})
            case "tools/call":
                words = self._words(params)
                with self._lock:
                    self._running[number] = None
                pool.submit(self._call, number, words, whole)
            case _:
                raise Refused(METHOD, f"there is no method {method!r} here")

    def _words(self, params: dict[str, Any]) -> list[str] | Told:
        name, arguments = params.get("name"), _object(params.get("arguments"))
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None:
            raise Refused(PARAMS, f"there is no tool {name!r}; known: {', '.join(self._tools)}")
        wrong = wrong_with(tool, arguments)
        return Told(wrong, failed=True) if wrong else tool.words(arguments)

    def _call(self, number: str | int, words: list[str] | Told, whole: dict[str, Any]) -> None:
        told = words if isinstance(words, Told) else self._run(number, words)
        with self._lock:
            wanted = number in self._running
            self._running.pop(number, None)
        if wanted:
            content = [{"type": "text", "text": told.text}]
            self._tell(number, {**whole, "content": content, "isError": told.failed})

    def _run(self, number: str | int, words: list[str]) -> Told:
        if words[0] not in WITHOUT_DAEMON and "--offline" not in words and not _daemon_runs():
            return Told(
                f"no daemon runs for {daemon.home_dir()}; the user can start one: `sky server start`", True
            )
        with self._lock:
            if number not in self._running:
                return Told("cancelled", failed=True)
            try:
                child = _begun(words)
            except (OSError, ValueError) as error:  # no memory, or a sign that no argument can have
                return Told(f"`sky {words[0]}` cannot be started: {error}", failed=True)
            self._running[number] = child
        try:
            out, err = child.communicate(timeout=CALL_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            return Told(
                f"`sky {' '.join(words)}` had not ended after {CALL_S:g} s. What was asked for may go on: "
                "ask for `requests` and `status` before asking again",
                failed=True,
            )
        text = "\n".join(part for part in (_read(out), _read(err)) if part)
        # An exit code that tells how a job is (100 and more) is an answer, and so is what doctor finds.
        failed = 0 < child.returncode < JOB_CODES and not (words[0] == "doctor" and child.returncode == 1)
        return Told(_bounded(text) or "done", failed=failed or child.returncode < 0)

    def _cancel(self, number: object) -> None:
        with self._lock:
            child = self._running.pop(number, None) if isinstance(number, str | int) else None
            if child is not None:
                child.terminate()

    def _tell(self, number: str | int, result: dict[str, Any]) -> None:
        self._write({"jsonrpc": "2.0", "id": number, "result": result})

    def _refuse(self, number: object, refused: Refused) -> None:
        error = {"code": refused.code, "message": refused.message}
        error |= {} if refused.data is None else {"data": refused.data}
        known = number if isinstance(number, str | int) else None
        self._write({"jsonrpc": "2.0", "id": known, "error": error})

    def _write(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._out.write(msgspec.json.encode(message) + b"\n")
            self._out.flush()


WITHOUT_DAEMON = ("doctor",)
JOB_CODES = 100


def _begun(words: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "sky.cli.main", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "NO_COLOR": "1"},
    )


def _object(value: object) -> dict[str, Any]:
    """What is to be an object and may be left out."""
    if value is not None and not isinstance(value, dict):
        raise Refused(PARAMS, f"{value!r} stands where an object is expected")
    return cast("dict[str, Any]", value or {})


def _daemon_runs() -> bool:
    home = daemon.home_dir()
    try:
        return endpoints.named(home).url is not None or daemon.status(home).running
    except InvalidEndpointError:
        return True  # the command itself says what is wrong with the login


def _read(content: bytes) -> str:
    return content.decode("utf-8", "replace").strip()


def _bounded(text: str) -> str:
    if len(text) <= TOLD_CHARS_MAX:
        return text
    left = (
        f"… {len(text) - TOLD_CHARS_MAX} more characters are left out: ask for less, with a limit or a name"
    )
    return f"{text[:TOLD_CHARS_MAX]}\n{left}"


def _lines(stream: IO[bytes]) -> Iterator[bytes | None]:
    while line := stream.readline(LINE_BYTES_MAX):
        if line.endswith(b"\n") or len(line) < LINE_BYTES_MAX:
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(LINE_BYTES_MAX)
        yield None


@only("mcp", "sky mcp", "sky mcp --allow-writes")
def mcp(
    *,
    allow_writes: Annotated[
        bool, Parameter(negative=(), help="Also launch, exec, cancel and down: they buy and destroy.")
    ] = False,
) -> int:
    """Serve the Model Context Protocol on standard input and output.

    For programs with a model, which start it themselves. It only reads, unless --allow-writes is given.
    """
    if sys.stdin.isatty():
        output.note(
            "a program with a model starts this; Ctrl-C ends it, and docs/mcp.md tells how to set it up"
        )
    Server(offered(allow_writes), sys.stdout.buffer).serve(_lines(sys.stdin.buffer))
    return 0


app = noun("mcp")
