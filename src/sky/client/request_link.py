"""The connection over which requests go: to the server that is named, or to this user's own.

Decides: which connection is used again, and how long a server may be away. Never: knows what a request asks
for. Follows: one connection for each server in a process; a server that has answered is waited for much
longer than one that never has; our own server is started when it is needed, and again when it has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from sky.client import daemon, endpoints, flows
from sky.client.aside import aside
from sky.client.errors import SkyError
from sky.client.exceptions import ApiServerConnectionError
from sky.client.flows import Flow
from sky.client.http import Http
from sky.client.request_flows import meaning

T = TypeVar("T")

FIRST_PATIENCE_S = 3.0
"""How long a server that never answered is tried."""
RETURN_S = 300.0
"""How long a server that has answered may be away."""
LINKS_MAX = 16
"""Connections that are kept; a program that speaks to more servers makes some anew."""


@dataclass(slots=True)
class Link:
    """A server, and whether it has answered."""

    http: Http
    token: str | None
    local: bool
    answered: bool = field(default=False)

    @property
    def url(self) -> str:
        """Where it is."""
        return self.http.url

    @property
    def patience_s(self) -> float:
        """How long it may be away."""
        return RETURN_S if self.answered else FIRST_PATIENCE_S

    def run(self, flow: Flow[T]) -> T:
        """Drive a flow to its end. Raises what requests raise."""
        with self.told():
            answer = flows.run(self.http, flow, patience_s=self.patience_s, later_s=RETURN_S)
        self.answered = True
        return answer

    async def arun(self, flow: Flow[T]) -> T:
        """The same, for an event loop."""
        with self.told():
            async with self.http.asynchronous() as http:
                answer = await flows.arun(http, flow, patience_s=self.patience_s, later_s=RETURN_S)
        self.answered = True
        return answer

    @contextmanager
    def told(self) -> Generator[None]:
        """Errors of the connection, as what they mean to who uses requests."""
        try:
            yield
        except SkyError as error:
            meant = meaning(error, self.url)
            if meant is error:
                raise
            raise meant from None


_lock = threading.Lock()
_links: dict[tuple[str, str | None, bool], Link] = {}


def link(*, start: bool = True) -> Link:
    """The server of this user: the one that is named, else their own, started where ``start`` says so.

    Raises ApiServerConnectionError where none runs and none is to be started, and DaemonStartFailed.
    """
    found = _known(start=start)
    if found is not None:
        return found
    home = endpoints.home_dir()
    if not start:
        raise ApiServerConnectionError(f"this computer (state folder {home})", "none runs")
    return _kept(home, daemon.start(home).url, endpoints.named(home).token, local=True, answered=True)


async def alink(*, start: bool = True) -> Link:
    """The same, for an event loop, which goes on while a server starts."""
    return _known(start=start) or await aside(partial(link, start=start))


def _known(*, start: bool) -> Link | None:
    """The server of this user, where nobody has to be asked for it, and none be started."""
    home = endpoints.home_dir()
    named = endpoints.named(home)
    if named.url is not None:
        return _kept(home, endpoints.checked_url(named.url), named.token, local=False)
    url = daemon.running(home)
    if url is None or (start and (url, named.token, True) not in _links):
        return None
    return _kept(home, url, named.token, local=True)


def _kept(home: Path, url: str, token: str | None, *, local: bool, answered: bool = False) -> Link:
    key = (url, token, local)
    with _lock:
        kept = _links.get(key)
        if kept is None:
            while len(_links) >= LINKS_MAX:
                _links.pop(next(iter(_links)))
            locate = partial(daemon.running, home) if local else None
            kept = _links[key] = Link(Http(url, token=token, locate=locate), token, local, answered)
        return kept
