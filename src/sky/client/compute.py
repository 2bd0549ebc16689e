"""``sky.Compute``: machines for as long as a ``with`` block lasts.

Decides: the parameters and what each way of calling is named. Never: leaves a machine behind (``opened``
says how), or runs anything itself.
Follows: leaving the block deletes the compute, or lets go of it when it is to be kept; the same object works
in a script, in a notebook (``open`` and ``close``) and in an event loop (``async with``).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from sky.client import calls
from sky.client.aside import aside, warn_if_blocking
from sky.client.asynchronous import AsyncCompute
from sky.client.blueprint import Providers, drawn
from sky.client.errors import NotEntered
from sky.client.function import Pending, Settled
from sky.client.handles import Future
from sky.client.http import Http
from sky.client.opened import Opened
from sky.client.outermost import outermost_class
from sky.client.plugins import entered, require
from sky.client.resources import AnyPlugin, Executor, Image, Nodes, Options, Retry, Volume, bounds_of
from sky.client.session import Session
from sky.client.target import CallsOnly
from sky.client.together import all_results, later
from sky.wire import v1

R = TypeVar("R")

_opened_here: weakref.WeakValueDictionary[tuple[str | None, str], Compute] = weakref.WeakValueDictionary()
"""By address and name: what ``open`` opened in this process, whose end nothing else says."""

ASYNC_WITH = "or open it by `async with sky.Compute(...) as compute` and await every operator"


@outermost_class
class Compute(CallsOnly):
    """Machines to call functions on. Use it in a ``with`` block, or ``open`` and ``close`` it.

    ``provider`` is where machines come from (default: this computer), or several in order of preference, or
    the name of a table ``[compute.NAME]`` of the nearest ``sky.toml``, which then says all that is not said
    here. ``nodes`` is how many (1), or ``(min, max)`` to follow the calls. ``memory_gb`` in GB,
    ``max_hourly_cost`` in USD per node. ``name`` attaches to a compute of that name if there is one, else
    makes it, as the table of that name says if there is one; it is kept on leaving unless ``delete_on_exit``.
    Without a name it is deleted. ``ttl`` in seconds (600). ``url`` names the daemon; without it SKY_URL
    does, else it is this user's own, started (with ``database``) if it does not run.
    """

    def __init__(
        self,
        provider: Providers = None,
        *,
        accelerator: str | None = None,
        cpus: int | None = None,
        memory_gb: int | None = None,
        nodes: Nodes | None = None,
        image: Image | None = None,
        volumes: Sequence[Volume] | None = None,
        plugins: Sequence[AnyPlugin] | None = None,
        executor: Executor | None = None,
        concurrency: int | None = None,
        retry: Retry | None = None,
        options: Options | None = None,
        allocation: v1.Allocation | None = None,
        selection: v1.Selection | None = None,
        max_hourly_cost: float | None = None,
        name: str | None = None,
        url: str | None = None,
        database: str | None = None,
        delete_on_exit: bool | None = None,
        ttl: int | None = None,
        quiet: bool = False,
    ) -> None:
        said = {
            "provider": provider,
            "nodes": nodes,
            "image": image,
            "volumes": volumes,
            "plugins": plugins,
            "executor": executor,
            "concurrency": concurrency,
            "retry": retry,
            "options": options,
            "allocation": allocation,
            "selection": selection,
            "delete_on_exit": delete_on_exit,
            "ttl": ttl,
        }
        machine = {
            "accelerator": accelerator,
            "cpus": cpus,
            "memory_gb": memory_gb,
            "max_hourly_cost": max_hourly_cost,
        }
        self._name, self._blueprint = drawn(name, said, machine)
        self._url = url
        self._database = database
        self._quiet = quiet
        self._opened: Opened | None = None
        self._http: Http | None = None
        self._plugged: contextlib.ExitStack | None = None

    # ── opening and leaving ─────────────────────────────────────────────────────────────────────

    def open(self) -> Self:
        """Make it or attach to it, hold it, and wait until it is ready.

        Raises ComputeFailed with the daemon's reason when it does not become ready, LeaseHeld when another
        process holds a compute of that name, InvalidRequest when something about it is wrong, DaemonError
        when there is no daemon. Whatever is raised, nothing that was begun is left.

        Opened once more under the same name, as by a cell of a notebook that is run again, the earlier one
        is closed, unless calls of it are under way. What is still open when the program ends is let go of.
        """
        if self._name is not None:
            earlier = _opened_here.get((self._url, self._name))
            if earlier is not None and earlier is not self and earlier.idle:
                earlier.close()
        self._open()
        if self._name is not None:
            _opened_here[self._url, self._name] = self
        return self._enter()

    def _open(self) -> None:
        if self._opened is not None:
            return
        require(self._blueprint.plugin_kinds)
        self._opened = opened = Opened(self._blueprint, self._name, quiet=self._quiet)
        try:
            self._http = opened.open(self._url, self._database)
        except BaseException as error:
            self._leave(error)
            raise

    def _enter(self) -> Self:
        """Plugins act in the thread that uses the compute, which need not be the one that waited for it."""
        if self._plugged is None:
            try:
                self._plugged = entered(self._blueprint.plugin_kinds, self)
            except BaseException as error:
                self._leave(error)
                raise
        return self

    def _unplug(self) -> None:
        plugged, self._plugged = self._plugged, None
        if plugged is not None:
            plugged.close()

    def close(self) -> None:
        """Cancel what has not ended, and delete the compute or let go of it."""
        self._unplug()
        self._leave(None)

    def __enter__(self) -> Self:
        self._open()
        return self._enter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unplug()
        self._leave(error)

    async def __aenter__(self) -> AsyncCompute:
        """The compute as ``AsyncCompute``: what its operators give is awaited."""
        try:
            await aside(self._open)
        except asyncio.CancelledError:
            # The thread that opens it finds its compute deleted, and ends.
            await asyncio.shield(aside(self.close))
            raise
        self._enter()
        return AsyncCompute(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unplug()
        await asyncio.shield(aside(lambda: self._leave(error)))

    def _leave(self, error: BaseException | None) -> None:
        opened, self._opened, self._http = self._opened, None, None
        if opened is not None:
            opened.leave(error)

    # ── what it is ──────────────────────────────────────────────────────────────────────────────

    @property
    def id(self) -> str:
        """Its id. Raises NotEntered while it is not open."""
        return self._compute().id

    @property
    def name(self) -> str | None:
        """The name it was given, if any."""
        return self._name

    @property
    def http(self) -> Http:
        """The client of its daemon, for any operation of ``/v1``. Raises NotEntered while it is not open."""
        if self._http is None:
            raise self._not_entered()
        return self._http

    def status(self) -> v1.Compute:
        """How it is now: state, nodes, price per hour and cost so far."""
        return self.http.send(calls.get_compute(self.id))

    def nodes(self) -> tuple[v1.Node, ...]:
        """Its nodes now, by rank."""
        return self.http.send(calls.list_nodes(self.id)).items

    @property
    def idle(self) -> bool:
        """Whether it is open, and every call of this object has ended as far as is known here."""
        session = self._opened.session if self._opened is not None else None
        return session is not None and not session.busy

    @property
    def kept(self) -> bool:
        """Whether it stays when it is let go of."""
        return self._name is not None and not self._blueprint.delete_on_exit

    def resize(self, nodes: Nodes) -> v1.Compute:
        """Ask for another number of nodes; calls go on meanwhile."""
        return self.http.send(calls.resize_compute(self.id, bounds_of(nodes), None))

    def __repr__(self) -> str:
        opened = self._opened.compute if self._opened is not None else None
        return f"<sky.Compute {self._name or (opened.id if opened else 'not open')}>"

    # ── calling: what the operators of calls use ────────────────────────────────────────────────

    @property
    def awaits(self) -> Literal[False]:
        """What its operators give is there already."""
        return False

    def call_one(self, call: Pending[R]) -> Settled[R]:
        """Run a call on one node and wait: ``call >> compute``."""
        session = self._session()
        if not call.function.streams:
            warn_if_blocking("`>>`", f"write `await (call > compute)`, {ASYNC_WITH}")
        return session.call_one(call)

    def call_all(self, call: Pending[R]) -> Settled[list[R]]:
        """Run a call on every node and wait; results by rank: ``call @ compute``."""
        session = self._session()
        warn_if_blocking("`@`", f"use a thread, {ASYNC_WITH}")
        return session.call_all(call)

    def call_all_later(self, call: Pending[R]) -> Future[list[R]]:
        """Have a call run on every node and go on; results by rank."""
        return self._session().call_all_later(call)

    def submit(self, call: Pending[R]) -> Future[R]:
        """Send a call and go on: ``call > compute``."""
        return self._session().submit(call)

    def collect(self, calls: tuple[Pending[Any], ...]) -> Settled[tuple[Any, ...]]:
        """Run calls side by side and wait for all: ``(a & b) >> compute``."""
        warn_if_blocking("`>>`", f"write `await ((a & b) > compute)`, {ASYNC_WITH}")
        return Settled(tuple(all_results(calls, self)), None)

    def collect_later(self, calls: tuple[Pending[Any], ...]) -> Future[Any]:
        """Send calls side by side and go on: ``(a & b) > compute``."""
        return later(calls, self).then(tuple)

    def _session(self) -> Session:
        session = self._opened.session if self._opened is not None else None
        if session is None or self._http is None:
            raise self._not_entered()
        return session

    def _compute(self) -> v1.Compute:
        compute = self._opened.compute if self._opened is not None else None
        if compute is None:
            raise self._not_entered()
        return compute

    def _not_entered(self) -> NotEntered:
        return NotEntered(
            f"{self!r}: use it inside `with sky.Compute(...) as compute:`, or after compute.open()"
        )


def _let_go() -> None:
    """At the end of the program: who comes next need not wait until a lease lapses. Calls go on."""
    for one in list(_opened_here.values()):
        if one.kept and one.idle:
            one.close()


atexit.register(_let_go)
os.register_at_fork(after_in_child=_opened_here.clear)
