"""``sky compute shell|forward``: a terminal on a node, and ports of nodes on this computer.

Decides: what travels between this terminal (or socket) and a connection's two halves, and how each end is
noticed. Never: leaves the terminal raw, or listens anywhere but on loopback.
Follows: a shell ends when the node hangs up or standard input ends; forwarding ends with Ctrl-C.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import sys
import termios
import threading
import tty
from collections.abc import Generator, Iterator
from typing import Annotated, Any

from cyclopts import Parameter

from sky.cli import output
from sky.cli.app import command, noun
from sky.cli.computes import Name
from sky.cli.connection import PATIENCE_S, Api, reading
from sky.cli.errors import FAILED, CliError, usage
from sky.client import calls, calls_machines
from sky.client.errors import SkyError
from sky.client.request import Call, new_key

app = noun("compute")

PIECE_BYTES = 64 * 1024
JOIN_S = 2.0
PORT_MAX = 65_535
CONNECTIONS_MAX = 256
BACKLOG = 64


# ── shell ───────────────────────────────────────────────────────────────────────────────────────


@command(
    app,
    "sky compute shell dev",
    "sky compute shell dev --node 1",
    "sky compute shell dev htop",
    instead=("login", "attach"),
)
def shell(
    compute: Name,
    program: Annotated[str | None, Parameter(name="COMMAND", help="Instead of a login shell.")] = None,
    /,
    *,
    node: Annotated[str, Parameter(metavar="RANK|ID", help="Which node.")] = "0",
) -> int:
    """Open a terminal on a node."""
    columns, rows = shutil.get_terminal_size((80, 24))
    term = os.environ.get("TERM") or "xterm-256color"
    extra: dict[str, Any] = {"node": node, "term": term, "columns": columns, "rows": rows}
    if program is not None:
        extra["command"] = program
    with reading() as api:
        found = api.send(calls.get_compute(compute))
        wake_read, wake_write = os.pipe()
        cid = new_key()
        up = calls_machines.connection_up(found.id, "shell", cid, lambda: _typed(wake_read), **extra)
        sender = threading.Thread(target=_send, args=(api, up), daemon=True)
        try:
            with _raw_terminal():
                sender.start()
                _show(api, calls_machines.connection_down(found.id, "shell", cid))
        finally:
            os.close(wake_write)
            if sender.ident is not None:
                sender.join(JOIN_S)
    return 0


def _show(api: Api, down: Call[bytes]) -> None:
    """Write what the node sends until it hangs up."""
    screen = sys.stdout.fileno()
    try:
        with api.open(down) as stream:
            for piece in stream.pieces():
                while piece:
                    piece = piece[os.write(screen, piece) :]
    except ConnectionError as error:
        raise CliError(
            "connection_lost", str(error), "open it again; what ran there may have ended", FAILED
        ) from error


def _typed(wake: int) -> Iterator[bytes]:
    """What is typed, until standard input ends or the other side of ``wake`` is closed."""
    keyboard = sys.stdin.fileno()
    while True:
        ready, _, _ = select.select([keyboard, wake], [], [])
        if wake in ready:
            os.close(wake)
            return
        piece = os.read(keyboard, PIECE_BYTES)
        if not piece:
            return
        yield piece


def _send(api: Api, up: Call[None]) -> None:
    # Refused or broken, the other half of the connection says so as well, and is the one that is shown.
    with contextlib.suppress(SkyError):
        api.http.send(up, patience_s=PATIENCE_S)


@contextlib.contextmanager
def _raw_terminal() -> Generator[None]:
    """Every key goes to the node while this lasts, Ctrl-C too."""
    if not sys.stdin.isatty():
        yield
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    try:
        # What was typed while the connection was being made is not thrown away.
        tty.setraw(keyboard, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


# ── forward ─────────────────────────────────────────────────────────────────────────────────────


@command(
    app,
    "sky compute forward dev 8888",
    "sky compute forward dev 8080:80",
    instead=("port", "tunnel", "proxy"),
)
def forward(
    compute: Name,
    ports: Annotated[
        str, Parameter(name="PORT", help="Port of the nodes, or HERE:THERE; HERE 0 takes a free one.")
    ],
    /,
) -> int:
    """Reach a port of the nodes as a port of this computer, until Ctrl-C. Connections take turns."""
    here, there = _ports(ports)
    with reading() as api:
        found = api.send(calls.get_compute(compute))
        try:
            listener = socket.create_server(("127.0.0.1", here), backlog=BACKLOG)
        except OSError as error:
            message = f"port {here} of this computer cannot be had: {error.strerror}"
            raise CliError("refused", message, f"choose another: {here + 1}:{there}", 4) from error
        with listener:
            output.say(f"127.0.0.1:{listener.getsockname()[1]} is port {there} of {compute}; Ctrl-C ends it")
            sys.stdout.flush()
            _serve(api, found.id, listener, there)
    return 0


def _ports(text: str) -> tuple[int, int]:
    here, colon, there = text.partition(":")
    if not colon:
        there = here
    if not (here.isdigit() and there.isdigit() and int(here) <= PORT_MAX and 1 <= int(there) <= PORT_MAX):
        raise usage(f"{text!r} is not a port", f"write 8888 or 8080:80, with numbers from 1 to {PORT_MAX}")
    return int(here), int(there)


def _serve(api: Api, compute: str, listener: socket.socket, port: int) -> None:
    room = threading.BoundedSemaphore(CONNECTIONS_MAX)
    while True:
        room.acquire()
        client, _ = listener.accept()
        threading.Thread(target=_one, args=(api, compute, client, port, room), daemon=True).start()


def _one(api: Api, compute: str, client: socket.socket, port: int, room: threading.BoundedSemaphore) -> None:
    """One connection: this thread carries what comes down, another what goes up."""
    cid = new_key()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    up = calls_machines.connection_up(compute, "forward", cid, lambda: _received(client), port=port)
    sender = threading.Thread(target=_send, args=(api, up), daemon=True)
    sender.start()
    try:
        with api.open(calls_machines.connection_down(compute, "forward", cid)) as stream:
            for piece in stream.pieces():
                client.sendall(piece)
    except SkyError as error:
        output.note(f"a connection was refused: {error}")
    except OSError:
        # Either side has hung up; the other is told by closing.
        pass
    finally:
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
        sender.join(JOIN_S)
        client.close()
        room.release()


def _received(client: socket.socket) -> Iterator[bytes]:
    while True:
        try:
            piece = client.recv(PIECE_BYTES)
        except OSError:
            return
        if not piece:
            return
        yield piece
