"""Commands and files on a compute's nodes.

Decides: which nodes are meant, how much output is kept, and how a file goes to several nodes at once.
Never: runs anything here. Follows: a command whose client left is stopped; a command that was sent is never
sent again, because it may have run.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import IO, Annotated, Any, TypeVar

from litestar.response.base import ASGIResponse
from msgspec import Meta

from sky.api.meeting import Session, SessionEndedError
from sky.api.operation import BYTES, Ask, Bytes, NodeChoice, operation, reply
from sky.api.reading import BODY_GAP_S, Query
from sky.api.stream import CutShort, Streamed, while_wanted
from sky.domain.errors import (
    CapabilityMismatch,
    ComputeNotConnected,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
)
from sky.store.views import nodes as views
from sky.store.views.nodes import Reachable
from sky.wire import agent, v1

TAG = "Machines"
OUTPUT_BYTES_MAX = 10 * 1024 * 1024
EXEC_SECONDS_MAX = 24 * 3600.0
FILE_SECONDS_MAX = 600.0
NODES_AT_ONCE = 64
PIECE_BYTES = 256 * 1024
LOST_EXIT_CODE = 255

T = TypeVar("T")

Path = Annotated[str, Meta(min_length=1, max_length=4096, description="A path on the node.")]
COMMAND_CHARS_MAX = 16_384
Command = Annotated[
    str, Meta(min_length=1, max_length=COMMAND_CHARS_MAX, description="A line for the node's shell.")
]
ERRORS = [NotFound, ComputeNotConnected, CapabilityMismatch]


class ExecOf(Query, frozen=True):
    """What to run, and where."""

    command: Command
    node: NodeChoice = "all"


class FilesOf(Query, frozen=True):
    """Which path, on which nodes."""

    path: Path
    node: NodeChoice = "all"


class FileOf(Query, frozen=True):
    """Which path, on which node."""

    path: Path
    node: NodeChoice = "0"


@operation("POST", "/v1/computes/{compute_id}/exec", tag=TAG, answers=dict[str, v1.Result], errors=ERRORS)
async def run_command(ask: Ask, compute_id: str, query: ExecOf) -> ASGIResponse:
    """Run a shell command on nodes, and wait for its end.

    The answer has a result by node. Output beyond 10 MiB a stream is left out, and said to be.
    """
    wanted = agent.Ask(kind="exec", command=query.command)
    return await _results(ask, compute_id, query.node, wanted, EXEC_SECONDS_MAX)


@operation("GET", "/v1/computes/{compute_id}/files", tag=TAG, answers=dict[str, v1.Result], errors=ERRORS)
async def list_files(ask: Ask, compute_id: str, query: FileOf) -> ASGIResponse:
    """List what is at a path of a node."""
    wanted = agent.Ask(kind="list", path=_path(query.path))
    return await _results(ask, compute_id, query.node, wanted, FILE_SECONDS_MAX)


@operation("DELETE", "/v1/computes/{compute_id}/files", tag=TAG, answers=dict[str, v1.Result], errors=ERRORS)
async def remove_files(ask: Ask, compute_id: str, query: FilesOf) -> ASGIResponse:
    """Remove a file or a folder on nodes."""
    wanted = agent.Ask(kind="remove", path=_path(query.path))
    return await _results(ask, compute_id, query.node, wanted, FILE_SECONDS_MAX)


@operation(
    "PUT",
    "/v1/computes/{compute_id}/files",
    tag=TAG,
    answers=dict[str, str | None],
    raw=Bytes((BYTES,), "What the file is to hold."),
    errors=[*ERRORS, PayloadTooLarge],
)
async def upload_file(ask: Ask, compute_id: str, query: FilesOf) -> ASGIResponse:
    """Write a file on nodes.

    The answer says by node what went wrong, or null. It is sent to all of them at the same time.
    """
    nodes = await _nodes(ask, compute_id, query.node)
    wanted = agent.Ask(kind="upload", path=_path(query.path))
    body = ask.body(limit_bytes=ask.unit.settings.blob_bytes_max, gap_s=BODY_GAP_S)
    if len(nodes) == 1:
        return reply({nodes[0].id: await _upload(ask, nodes[0], wanted, body)})
    with tempfile.TemporaryFile(dir=ask.unit.settings.spool) as spool:
        async for piece in body:
            await asyncio.to_thread(spool.write, piece)
        await asyncio.to_thread(spool.flush)
        descriptor = spool.fileno()

        async def one(node: Reachable) -> str | None:
            try:
                return await _upload(ask, node, wanted, _pieces(spool, descriptor))
            except ComputeNotConnected as error:
                return error.message

        return reply(await _each(nodes, one))


@operation(
    "GET",
    "/v1/computes/{compute_id}/files/content",
    tag=TAG,
    answers=Bytes((BYTES,), "What the file holds."),
    errors=ERRORS,
)
async def download_file(ask: Ask, compute_id: str, query: FileOf) -> ASGIResponse:
    """Read a file of a node. Of several nodes that are meant, the lowest rank's."""
    nodes = await _nodes(ask, compute_id, query.node)
    session = await _meet(ask, nodes[0], agent.Ask(kind="download", path=_path(query.path)))
    try:
        first = await session.receive(FILE_SECONDS_MAX)
        if isinstance(first, agent.Exit) and first.error is not None:
            raise _no_file(first, query.path, nodes[0])
        if first is None:
            raise _lost(nodes[0])
    except BaseException:
        session.close()
        raise
    if ask.head:
        session.close()
    return Streamed(_content(session, first), media=BYTES)


# ── one session each ────────────────────────────────────────────────────────────────────────────


def _path(path: str) -> str:
    if "\x00" in path:
        details = {"field": "path", "expected": "a path without NUL"}
        raise InvalidRequest("query parameter path must not contain NUL", details=details)
    return path


async def _nodes(ask: Ask, compute_id: str, choice: str) -> Sequence[Reachable]:
    return await ask.unit.db.read(lambda c: views.reachable(c, compute_id, choice))


async def _meet(ask: Ask, node: Reachable, wanted: agent.Ask) -> Session:
    unit = ask.unit
    return await unit.meetings.meet(unit.db, unit.settings.base_url(), node.id, wanted)


async def _each(
    nodes: Sequence[Reachable], work: Callable[[Reachable], Coroutine[Any, Any, T]]
) -> dict[str, T]:
    """Do ``work``, which tells by its result what went wrong, for every node, several at a time."""
    gate = asyncio.Semaphore(NODES_AT_ONCE)

    async def one(node: Reachable) -> T:
        async with gate:
            return await work(node)

    async with asyncio.TaskGroup() as group:
        tasks = {node.id: group.create_task(one(node)) for node in nodes}
    return {node_id: task.result() for node_id, task in tasks.items()}


async def _results(
    ask: Ask, compute_id: str, choice: str, wanted: agent.Ask, seconds_max: float
) -> ASGIResponse:
    nodes = await _nodes(ask, compute_id, choice)

    async def one(node: Reachable) -> v1.Result:
        try:
            session = await _meet(ask, node, wanted)
        except ComputeNotConnected as error:
            if len(nodes) == 1:
                raise
            return v1.Result(exit_code=LOST_EXIT_CODE, stdout="", stderr=error.message)
        try:
            async with asyncio.timeout(seconds_max):
                return await _collect(session)
        except TimeoutError:
            told = f"stopped: it did not end within {seconds_max:g} s"
            return v1.Result(exit_code=LOST_EXIT_CODE, stdout="", stderr=told)
        finally:
            session.close()

    return reply(await while_wanted(ask.request, _each(nodes, one)))


class _Output:
    """What one stream of a command wrote, up to a limit."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._left_out = 0

    def add(self, content: bytes) -> None:
        room = OUTPUT_BYTES_MAX - len(self._kept)
        self._kept += content[:room]
        self._left_out += max(0, len(content) - room)

    def text(self) -> str:
        text = self._kept.decode("utf-8", "replace")
        return f"{text}\n[{self._left_out} bytes more were left out]\n" if self._left_out else text


async def _collect(session: Session) -> v1.Result:
    out, err = _Output(), _Output()
    while True:
        message = await session.receive()
        if isinstance(message, agent.Data):
            (err if message.stream == "stderr" else out).add(message.content)
        elif isinstance(message, agent.Exit):
            if message.error is not None:
                err.add(message.error.encode() + b"\n")
            return v1.Result(exit_code=message.code, stdout=out.text(), stderr=err.text())
        elif message is None:
            err.add(b"the connection to the node was lost; whether it ended there is not known\n")
            return v1.Result(exit_code=LOST_EXIT_CODE, stdout=out.text(), stderr=err.text())


async def _upload(ask: Ask, node: Reachable, wanted: agent.Ask, body: AsyncIterator[bytes]) -> str | None:
    """Send one file to one node; returns what went wrong there, or None."""
    session = await _meet(ask, node, wanted)
    # Listened to from the beginning: a node that refuses says why, and hangs up in the middle of the file.
    told = asyncio.ensure_future(_told(session))
    try:
        try:
            async for piece in body:
                if told.done():
                    break
                await session.send_bytes(piece)
            else:
                await session.send(agent.Eof())
        except SessionEndedError:
            pass
        async with asyncio.timeout(FILE_SECONDS_MAX):
            return await told
    finally:
        session.close()
        told.cancel()
        await asyncio.gather(told, return_exceptions=True)


async def _told(session: Session) -> str | None:
    """What a node says went wrong with a file that is sent to it, or None."""
    while (message := await session.receive()) is not None:
        if isinstance(message, agent.Exit):
            return message.error or (None if message.code == 0 else f"exit code {message.code}")
    return "the connection to the node was lost"


async def _pieces(spool: IO[bytes], descriptor: int) -> AsyncIterator[bytes]:
    """The spooled body, read at a place of its own."""
    place = 0
    while not spool.closed:
        piece = await asyncio.to_thread(os.pread, descriptor, PIECE_BYTES, place)
        if not piece:
            return
        place += len(piece)
        yield piece


async def _content(session: Session, first: agent.Session) -> AsyncIterator[bytes]:
    """The bytes of a file. Raises when the node stops before its end, so that the answer ends broken."""
    message: agent.Session | None = first
    try:
        while True:
            if isinstance(message, agent.Data):
                yield message.content
            elif isinstance(message, agent.Exit) and message.error is None:
                return
            elif message is None or isinstance(message, agent.Exit):
                raise CutShort
            message = await session.receive(FILE_SECONDS_MAX)
    finally:
        session.close()


def _no_file(told: agent.Exit, path: str, node: Reachable) -> NotFound | InvalidRequest:
    if told.missing:
        return NotFound(f"node {node.id} has no file {path!r}", details={"path": path, "node": node.id})
    details = {"field": "path", "value": path, "expected": "a file that can be read", "node": node.id}
    return InvalidRequest(f"{path!r} cannot be read on node {node.id}: {told.error}", details=details)


def _lost(node: Reachable) -> ComputeNotConnected:
    msg = f"the connection to node {node.id} was lost; try again"
    return ComputeNotConnected(msg, details={"node": node.id}, after_s=1.0)


ROUTES = (run_command, list_files, remove_files, upload_file, download_file)
