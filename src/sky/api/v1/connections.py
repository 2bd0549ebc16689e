"""Connections into a node: a forwarded port, and a shell.

Decides: which node a connection goes to. Never: reads what goes through it.
Follows: each is two requests with one ``cid``, so that any HTTP client can carry bytes both ways at once; a
third tells how a shell has ended, which bytes cannot.
"""

from __future__ import annotations

import contextlib
from typing import Annotated, Literal

from litestar.response.base import ASGIResponse
from msgspec import Meta

from sky.api.channels import Key
from sky.api.in_use import in_use
from sky.api.meeting import Session, SessionEndedError
from sky.api.operation import BYTES, Ask, Bytes, NodeChoice, nothing, operation, reply
from sky.api.reading import Query
from sky.api.stream import SESSION_S, Streamed
from sky.api.v1.machines import COMMAND_CHARS_MAX, ERRORS
from sky.domain.errors import NotFound
from sky.store.views import computes, nodes
from sky.wire import agent, v1

TAG = "Connections"
CONNECTION_BYTES_MAX = 2**50
"""As good as none: a connection may carry anything as long as it lasts."""

Cid = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=128,
        pattern=r"^[A-Za-z0-9._~:-]{1,128}$",
        description="A name for this connection, the same for both of its halves.",
    ),
]
Size = Annotated[int, Meta(ge=1, le=10_000)]
Term = Annotated[str, Meta(min_length=1, max_length=64, description="Kind of terminal.")]
UP = Bytes((BYTES,), "What goes to the node.")
DOWN = Bytes((BYTES,), "What comes from the node.")


class Down(Query, frozen=True):
    """Which connection."""

    cid: Cid


class ForwardUp(Query, frozen=True):
    """Which connection, and to which port."""

    cid: Cid
    port: Annotated[int, Meta(ge=1, le=65_535, description="A port that something on the node listens on.")]
    route: Annotated[Literal["round_robin"], Meta(description="How nodes take turns.")] = "round_robin"
    node: NodeChoice = "all"


class ShellUp(Query, frozen=True):
    """Which connection, where, and what to run in which terminal."""

    cid: Cid
    node: NodeChoice | None = None
    command: Annotated[str, Meta(max_length=COMMAND_CHARS_MAX, description="Instead of a shell.")] | None = (
        None
    )
    term: Term = "xterm-256color"
    columns: Size = 80
    rows: Size = 24


class ShellResize(Query, frozen=True):
    """Which connection, and how large its terminal is now."""

    cid: Cid
    columns: Size
    rows: Size


@operation("POST", "/v1/computes/{compute_id}/forward/up", tag=TAG, raw=UP, errors=ERRORS)
async def send_forward(ask: Ask, compute_id: str, query: ForwardUp) -> ASGIResponse:
    """Connect to a port of a node: what goes there.

    Nodes take turns, connection by connection. The end of the body closes this direction.
    """
    wanted = agent.Ask(kind="forward", port=query.port)
    return await _up(ask, compute_id, "forward", query.cid, query.node, wanted)


@operation("GET", "/v1/computes/{compute_id}/forward/down", tag=TAG, answers=DOWN, errors=ERRORS)
async def receive_forward(ask: Ask, compute_id: str, query: Down) -> ASGIResponse:
    """Connect to a port of a node: what comes from there."""
    return await _down(ask, compute_id, "forward", query.cid)


@operation("POST", "/v1/computes/{compute_id}/shell/up", tag=TAG, raw=UP, errors=ERRORS)
async def send_shell(ask: Ask, compute_id: str, query: ShellUp) -> ASGIResponse:
    """Open a shell in a terminal of a node: what is typed.

    Without ``node``, on the lowest rank that can be reached.
    """
    wanted = agent.Ask(
        kind="shell",
        command=query.command or None,
        term=query.term,
        columns=query.columns,
        rows=query.rows,
    )
    return await _up(ask, compute_id, "shell", query.cid, query.node or nodes.ALL, wanted)


@operation("GET", "/v1/computes/{compute_id}/shell/down", tag=TAG, answers=DOWN, errors=ERRORS)
async def receive_shell(ask: Ask, compute_id: str, query: Down) -> ASGIResponse:
    """Open a shell in a terminal of a node: what it shows."""
    return await _down(ask, compute_id, "shell", query.cid)


@operation("POST", "/v1/computes/{compute_id}/shell/resize", tag=TAG, status=204, errors=[NotFound])
async def resize_shell(ask: Ask, compute_id: str, query: ShellResize) -> ASGIResponse:
    """Tell a shell how large its terminal is now."""
    key = await _key(ask, compute_id, "shell", query.cid)
    session = ask.unit.channels.session(key)
    if session is None:
        raise _no_shell(query.cid)
    try:
        await session.send(agent.Resize(columns=query.columns, rows=query.rows))
    except SessionEndedError:
        raise _no_shell(query.cid) from None
    return nothing()


@operation("GET", "/v1/computes/{compute_id}/shell/exit", tag=TAG, answers=v1.ShellExit, errors=[NotFound])
async def tell_shell_exit(ask: Ask, compute_id: str, query: Down) -> ASGIResponse:
    """Tell how a shell has ended.

    While it is open, and for a while after: the last ones that ended are remembered.
    """
    key = await _key(ask, compute_id, "shell", query.cid)
    channels = ask.unit.channels
    try:
        ended = channels.end(key)
    except KeyError:
        if channels.session(key) is None:
            raise NotFound(
                f"no shell with cid {query.cid!r} is open or has just ended", details={"cid": query.cid}
            ) from None
        return reply(v1.ShellExit(state="open"))
    if ended is None:
        return reply(v1.ShellExit(state="lost"))
    return reply(v1.ShellExit(state="ended", exit_code=ended.code, error=ended.error))


def _no_shell(cid: str) -> NotFound:
    return NotFound(f"no shell with cid {cid!r} is open", details={"cid": cid})


async def _key(ask: Ask, compute_id: str, kind: str, cid: str) -> Key:
    return kind, await ask.unit.db.read(lambda c: computes.resolve(c, compute_id)), cid


async def _up(ask: Ask, compute_id: str, kind: str, cid: str, choice: str, wanted: agent.Ask) -> ASGIResponse:
    unit = ask.unit
    key = await _key(ask, compute_id, kind, cid)
    found = await unit.db.read(lambda c: nodes.reachable(c, compute_id, choice))

    async def connect() -> Session:
        place = unit.channels.turn(len(found)) if kind == "forward" else 0
        return await unit.meetings.meet(unit.db, unit.settings.base_url(), found[place].id, wanted)

    body = ask.body(limit_bytes=CONNECTION_BYTES_MAX, gap_s=SESSION_S)
    open_shell = in_use(unit.db, key[1]) if kind == "shell" else contextlib.nullcontext()
    async with open_shell:
        await unit.channels.up(key, connect, body)
    return nothing(200)


async def _down(ask: Ask, compute_id: str, kind: str, cid: str) -> ASGIResponse:
    key = await _key(ask, compute_id, kind, cid)
    if ask.head:
        return nothing(200)
    return Streamed(await ask.unit.channels.down(key), media=BYTES, stall_s=SESSION_S)


ROUTES = (send_forward, receive_forward, send_shell, receive_shell, resize_shell, tell_shell_exit)
