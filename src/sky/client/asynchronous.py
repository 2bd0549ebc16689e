"""The compute of an ``async with`` block: the same operators, and each gives something to await.

Decides: that nothing sent from an event loop blocks it. Never: does more than its compute does.
Follows: ``await (f(1) >> compute)``, ``await (f(1) @ compute)``, ``await ((a & b) >> compute)`` and
``async for item in generator(5) >> compute``; what is sent is on its way before it is awaited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar

from sky.client.aside import aside
from sky.client.function import Pending
from sky.client.handles import Future
from sky.client.http import Http
from sky.client.outermost import outermost_class
from sky.client.resources import Nodes
from sky.client.target import CallsOnly
from sky.wire import v1

if TYPE_CHECKING:
    from sky.client.compute import Compute

R = TypeVar("R")


@outermost_class
class AsyncCompute(CallsOnly):
    """An open ``sky.Compute``, for an event loop. ``blocking`` is the same compute, for other threads."""

    def __init__(self, compute: Compute) -> None:
        self.blocking = compute

    # ── calling: what the operators of calls use ────────────────────────────────────────────────

    @property
    def awaits(self) -> Literal[True]:
        """What its operators give is awaited."""
        return True

    def call_one(self, call: Pending[R]) -> Any:
        """Have a call run on one node: ``await (call >> compute)``; of a generator, its items."""
        if call.function.streams:
            return self.blocking.call_one(call).unwrap()
        return self.blocking.submit(call)

    def call_all(self, call: Pending[R]) -> Future[list[R]]:
        """Have a call run on every node; results by rank: ``await (call @ compute)``."""
        return self.blocking.call_all_later(call)

    def submit(self, call: Pending[R]) -> Future[R]:
        """Send a call: ``call > compute``."""
        return self.blocking.submit(call)

    def collect(self, calls: tuple[Pending[Any], ...]) -> Future[Any]:
        """Have calls run side by side: ``await ((a & b) >> compute)``."""
        return self.blocking.collect_later(calls)

    def collect_later(self, calls: tuple[Pending[Any], ...]) -> Future[Any]:
        """The same: ``(a & b) > compute``."""
        return self.blocking.collect_later(calls)

    # ── what it is ──────────────────────────────────────────────────────────────────────────────

    @property
    def id(self) -> str:
        """Its id. Raises NotEntered outside its block."""
        return self.blocking.id

    @property
    def name(self) -> str | None:
        """The name it was given, if any."""
        return self.blocking.name

    @property
    def http(self) -> Http:
        """The blocking client of its daemon; ``http.asynchronous()`` is the other. Raises NotEntered."""
        return self.blocking.http

    async def status(self) -> v1.Compute:
        """How it is now: state, nodes, price per hour and cost so far."""
        return await aside(self.blocking.status)

    async def nodes(self) -> tuple[v1.Node, ...]:
        """Its nodes now, by rank."""
        return await aside(self.blocking.nodes)

    async def resize(self, nodes: Nodes) -> v1.Compute:
        """Ask for another number of nodes; calls go on meanwhile."""
        return await aside(lambda: self.blocking.resize(nodes))

    def __repr__(self) -> str:
        return f"<sky.AsyncCompute of {self.blocking!r}>"
