"""Where the daemon listens: one door for its own user, and where others may come too, one for them.

Decides: which sockets there are, and what holds at each. Never: decides who may come in (``api/auth`` does).
Follows: at a door that others can reach, or that a proxy stands before, the owner of a socket counts for
nothing, since a proxy's requests come from a process of somebody's too; so the daemon's own user, its
commands and its nodes on this computer have a second door, on loopback, where nothing needs a certificate.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import uvicorn

from sky.server.certificate import Certificate
from sky.server.peer import OwnerProtocol, PublicProtocol
from sky.server.settings import DEFAULT_PORT, Settings

BACKLOG = 2048
KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
LOOPBACK = "127.0.0.1"


class StartError(Exception):
    """The daemon cannot start; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Door:
    """A socket that is listened at. ``public``: others may come there; ``tls``: what they are shown there."""

    listener: socket.socket
    public: bool = False
    tls: Certificate | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        host, port = self.listener.getsockname()[:2]
        scheme = "https" if self.tls is not None else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def config(self, app: Any, stop_seconds: float) -> uvicorn.Config:
        """What the HTTP server is to do here."""
        tls = self.tls
        return uvicorn.Config(
            app,
            http=PublicProtocol if self.public else OwnerProtocol,
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
            timeout_graceful_shutdown=max(1, round(stop_seconds)),
            ssl_context_factory=None if tls is None else lambda _config, _default: tls.context,
        )


@contextlib.contextmanager
def opened(chosen: Settings) -> Generator[tuple[Door, ...]]:
    """The doors that the settings describe, that of the daemon's own user first. Raises StartError,
    SettingsError."""
    with contextlib.ExitStack() as stack:
        if not chosen.public:
            yield (Door(stack.enter_context(_listening(chosen.host, chosen.port, elsewhere=True))),)
            return
        cert, key = chosen.tls_cert, chosen.tls_key
        tls = None if cert is None or key is None else Certificate(cert, key)
        theirs = Door(stack.enter_context(_listening(chosen.host, chosen.port)), public=True, tls=tls)
        yield Door(stack.enter_context(_listening(LOOPBACK, 0))), theirs


@contextlib.contextmanager
def _listening(host: str, port: int | None, *, elsewhere: bool = False) -> Generator[socket.socket]:
    """A socket at that address; ``elsewhere``: at any free port where the usual one is taken."""
    wanted = DEFAULT_PORT if port is None else port
    host = LOOPBACK if host == "localhost" else host
    try:
        found = socket.getaddrinfo(host, wanted, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        msg = f"cannot listen on {host!r}: {error.strerror}; give an address of this computer as --host"
        raise StartError(msg) from error
    family, _, _, _, address = found[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    with contextlib.closing(listener):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            if port is not None or not elsewhere or error.errno != errno.EADDRINUSE:
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
