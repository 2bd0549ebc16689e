"""What the daemon itself writes down, for admins elsewhere.

Decides: how much of its end is shown, and that a line is told whole. Never: writes. Follows: a reader that
comes back goes on behind the last place that it has; a log that began anew is read from its beginning.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

from litestar.response.base import ASGIResponse
from msgspec import Meta

from sky.api.operation import Ask, operation
from sky.api.reading import Query
from sky.api.requests.follow import LINES
from sky.api.stream import Streamed
from sky.domain.errors import NotFound
from sky.kit import codec
from sky.wire import requests as wire

TAG = "Requests"
POLL_S = 0.5
PIECE_BYTES = 256 * 1024


class ServerLogsQuery(Query, frozen=True):
    """Which part of the log."""

    tail: Annotated[int, Meta(ge=0, le=wire.TAIL_LINES_MAX, description="How many of the last lines.")] = 100
    after: Annotated[
        wire.Place, Meta(description="The last place that was seen; then tail is not heeded.")
    ] = 0
    follow: bool = False


@operation("GET", "/api/server_logs", tag=TAG, answers=wire.ServerLogLine, errors=[NotFound])
async def server_logs(ask: Ask, query: ServerLogsQuery) -> ASGIResponse:
    """Follow the daemon's own log. For admins.

    JSON lines: `{"place": 1234, "text": "..."}`; a place counts bytes of the log, up to the end of the line.
    """
    path = ask.unit.settings.log_file
    if path is None or not path.is_file():
        msg = "this daemon keeps no log of its own: it was started to write to its terminal, or elsewhere"
        raise NotFound(msg, details={"path": None if path is None else path.name})
    start = query.after or await asyncio.to_thread(_place_of_tail, path, query.tail)
    return Streamed(_lines(path, start, query.follow), media=LINES)


async def _lines(path: Path, place: int, follow: bool) -> AsyncIterator[bytes]:
    while True:
        place, lines = await asyncio.to_thread(_read, path, place, not follow)
        if lines:
            yield b"".join(codec.dumps({"place": end, "text": text}).encode() + b"\n" for end, text in lines)
        elif not follow:
            return
        else:
            await asyncio.sleep(POLL_S)


def _read(path: Path, place: int, to_the_end: bool) -> tuple[int, list[tuple[int, str]]]:
    """Lines behind a place, each with the place of its end; the last one only when it is whole, unless
    nothing is waited for."""
    with open(path, "rb") as log:
        if log.seek(0, os.SEEK_END) < place:
            place = 0
        log.seek(place)
        piece = log.read(PIECE_BYTES)
    if not piece.endswith(b"\n") and (len(piece) == PIECE_BYTES or not to_the_end):
        whole = piece.rfind(b"\n") + 1
        if whole or len(piece) < PIECE_BYTES:
            piece = piece[:whole]
    lines: list[tuple[int, str]] = []
    for line in piece.splitlines(keepends=True):
        place += len(line)
        lines.append((place, line.decode("utf-8", "replace").rstrip("\r\n")))
    return place, lines


def _place_of_tail(path: Path, wanted: int) -> int:
    """Where the last so many lines begin; found from the end, since a daemon may run for months."""
    with open(path, "rb") as log:
        end = at = log.seek(0, os.SEEK_END)
        if not wanted:
            return end
        found = 0
        while at > 0:
            begin = max(0, at - PIECE_BYTES)
            log.seek(begin)
            piece = log.read(at - begin)
            search = len(piece) - 1 if at == end and piece.endswith(b"\n") else len(piece)
            while (search := piece.rfind(b"\n", 0, search)) >= 0:
                found += 1
                if found == wanted:
                    return begin + search + 1
            at = begin
        return 0


ROUTES = (server_logs,)
