"""``sky compute shell|forward``: a terminal on a node, and ports of nodes on this computer.

Decides: what travels between this terminal (or socket) and a connection's two halves, and how each end is
noticed. Never: leaves the terminal raw, or listens anywhere but on loopback.
Follows: a shell ends when the node hangs up, with the exit code of what ran there; forwarding ends with
Ctrl-C, and a connection that the node could not serve is reset here, with the reason on standard error.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import struct
import sys
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
from sky.cli.terminal import keys_of
from sky.client import calls, calls_machines
from sky.client.errors import SkyError
from sky.client.http import CutShort
from sky.client.request import Call, new_key

app = noun("compute")

PIECE_BYTES = 64 * 1024
JOIN_S = 2.0
PORT_MAX = 65_535
CONNECTIONS_MAX = 256
BACKLOG = 64
NO_LINGER = struct.pack("ii", 1, 0)
AS_BEFORE = b"\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?25h\x1b[0m\r\n"
"""Back from another screen, mouse and paste as usual, a cursor, no colours: what a program that was cut off
may have left a terminal in."""
OPEN_AGAIN = "open it again; what ran there has been ended"


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
        found = api.send(calls.get_compute(compute)).id
        wake_read, wake_write = os.pipe()
        cid = new_key()
        up = calls_machines.connection_up(found, "shell", cid, lambda: _typed(wake_read), **extra)
        sender = threading.Thread(target=_send, args=(api, up, []), daemon=True)
        try:
            with _raw_terminal(), _resizing(api, found, cid):
                sender.start()
                _show(api, calls_machines.connection_down(found, "shell", cid))
        finally:
            os.close(wake_write)
            if sender.ident is not None:
                sender.join(JOIN_S)
        return _exit_code(api, found, cid)


def _exit_code(api: Api, compute: str, cid: str) -> int:
    told = api.send(calls_machines.shell_exit(compute, cid))
    if told.error is not None:
        raise CliError("shell_failed", told.error, None, FAILED)
    if told.exit_code is None:
        raise CliError("connection_lost", "the connection to the node was lost", OPEN_AGAIN, FAILED)
    return told.exit_code


def _show(api: Api, down: Call[bytes]) -> None:
    """Write what the node sends until it hangs up."""
    screen = sys.stdout.fileno()
    try:
        with api.open(down) as stream:
            for piece in stream.pieces():
                while piece:
                    piece = piece[os.write(screen, piece) :]
    except CutShort as error:
        if sys.stdout.isatty():
            os.write(screen, AS_BEFORE)
        message = "the connection was lost: the node is gone, or the daemon is"
        raise CliError("connection_lost", message, OPEN_AGAIN, FAILED) from error


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


def _send(api: Api, up: Call[None], refused: list[SkyError]) -> None:
    try:
        api.http.send(up, patience_s=PATIENCE_S)
    except SkyError as error:
        refused.append(error)


@contextlib.contextmanager
def _raw_terminal() -> Generator[None]:
    """Every key goes to the node while this lasts, Ctrl-C too. What ends this process ends that first."""
    if not sys.stdin.isatty():
        yield
        return
    with keys_of(sys.stdin.fileno(), tty.setraw):
        yield


@contextlib.contextmanager
def _resizing(api: Api, compute: str, cid: str) -> Generator[None]:
    """The node is told, by a thread of its own, whenever this terminal gets another size."""
    if not sys.stdout.isatty():
        yield
        return
    changed, over = threading.Event(), threading.Event()

    def tell() -> None:
        while changed.wait() and not over.is_set():
            changed.clear()
            columns, rows = shutil.get_terminal_size()
            with contextlib.suppress(SkyError):  # it may not be open yet, or any more
                api.http.send(calls_machines.resize_shell(compute, cid, columns, rows), patience_s=PATIENCE_S)

    def note(_number: int, _frame: object) -> None:
        changed.set()

    before = signal.signal(signal.SIGWINCH, note)
    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
        over.set()
        changed.set()
        thread.join(JOIN_S)


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
    refused: list[SkyError] = []
    sender = threading.Thread(target=_send, args=(api, up, refused), daemon=True)
    sender.start()
    broken: str | None = None
    try:
        with api.open(calls_machines.connection_down(compute, "forward", cid)) as stream:
            for piece in stream.pieces():
                client.sendall(piece)
        # That way is over; the other may go on, as with any connection.
        client.shutdown(socket.SHUT_WR)
        sender.join()
    except (SkyError, CutShort) as error:
        broken = str(error)
    except OSError:
        # Who connected here has left.
        pass
    finally:
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RD)
        sender.join(JOIN_S)
        if broken or refused:
            output.note(f"a connection broke: {refused[0] if refused else broken}")
            _no_proper_end(client)
        client.close()
        room.release()


def _no_proper_end(client: socket.socket) -> None:
    """When it is closed, its other end is told that something went wrong, and not that this was all."""
    with contextlib.suppress(OSError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)


def _received(client: socket.socket) -> Iterator[bytes]:
    while True:
        try:
            piece = client.recv(PIECE_BYTES)
        except OSError:
            return
        if not piece:
            return
        yield piece
