"""One call inside a worker: load, run, pack, and say how it went.

Decides: what a call's end is called (a result, a failure and whose, an interruption), for plain functions,
coroutines and generators alike. Listed supervisor: catches whatever user code raises.
Never: lets a call end the worker, short of the process itself dying.
Follows: ``SystemExit`` in a call is a failure of the call; a worker serves the next one.
"""

from __future__ import annotations

import contextvars
import inspect
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from sky.agent import failure, payload, source
from sky.agent.failure import Failure
from sky.agent.frames import Call, Done, Setup, Yielded
from sky.agent.functions import Function
from sky.agent.guard import Scope
from sky.agent.job_node import JobNode
from sky.agent.payload import Packed
from sky.agent.port import Closed, Credits, Port
from sky.agent.steps import Step
from sky.agent.streams import Router, Sink
from sky.kit import context
from sky.kit.context import CallContext
from sky.wire.agent import ITEM_WINDOW

if TYPE_CHECKING:
    import asyncio

CREDIT_POLL_S = 0.005
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_NONE: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
_PLAIN = frozenset({int, float, str, bytes, bool, type(None), list, dict, tuple, set})


class Surroundings(msgspec.Struct):
    """What a call needs of its worker. ``wait_credit`` waits until credit may have come."""

    setup: Setup
    port: Port
    router: Router
    credits: Credits
    wait_credit: Callable[[bool], None]
    results: Path

    def context_of(self, call: Call) -> CallContext:
        """The call as user code may ask about it."""
        return CallContext(
            task=call.task,
            execution=call.execution,
            compute=self.setup.compute,
            node=self.setup.node,
            rank=call.rank,
            total=call.total,
            peers=call.peers,
            accelerators=self.setup.accelerators,
            world=call.world,
        )


class Lane:
    """One thread that runs calls, one after the other, with an event loop for coroutines if any come."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._around = surroundings
        self._runner: asyncio.Runner | None = None

    def run(self, call: Call, function: Function, scope: Scope, sink: Sink) -> Done:
        """Run a call to its end, whatever that is. Raises ``Closed`` when the agent is gone."""
        begun = time.monotonic()
        attempt = _Attempt(self, self._around, call, function, scope, sink)
        error: BaseException | None = None
        interrupted = False
        tried = False
        while True:
            try:
                if not tried:
                    tried = True
                    scope.open()
                    contextvars.copy_context().run(attempt.make)
                interrupted = scope.settle()
                break
            except BaseException as caught:
                error = caught
        if isinstance(error, Closed):
            raise error
        if interrupted and attempt.asynchronous:
            self._drop_runner()
        done = self._done(call, attempt, error, interrupted, begun)
        self._around.router.finish(sink)
        return done

    def _done(
        self, call: Call, attempt: _Attempt, error: BaseException | None, interrupted: bool, begun: float
    ) -> Done:
        packed, info = attempt.packed, None
        if interrupted and packed is not None:
            if packed.file is not None:
                (self._around.results / packed.file).unlink()
            packed = None
        if error is not None:
            packed = None
            if not interrupted:
                failed = attempt.explain(error)
                packed, info = failed.packed, failed.info
        return Done(
            seq=call.seq,
            seconds=time.monotonic() - begun,
            value=None if packed is None else packed.value,
            sha256=None if packed is None else packed.sha256,
            file=None if packed is None else packed.file,
            error=info,
            interrupted=interrupted,
            items=attempt.items,
            unloaded=info is not None and attempt.loading,
        )

    def await_(self, scope: Scope, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in this thread's event loop."""
        import asyncio  # most workers never need it, and it is slow to import

        async def whole() -> Any:
            scope.follow(asyncio.get_running_loop(), asyncio.current_task())
            try:
                return await work
            finally:
                scope.unfollow()

        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(whole(), context=contextvars.copy_context())

    def _drop_runner(self) -> None:
        """Close the event loop after a call that did not end well, and whatever it left there."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        failure.guarded(runner.close, lambda _: None)


class _Attempt:
    """A call under way: what it has got to, for the explanation when it fails."""

    def __init__(
        self, lane: Lane, around: Surroundings, call: Call, function: Function, scope: Scope, sink: Sink
    ) -> None:
        self._lane = lane
        self._around = around
        self._call = call
        self._function = function
        self._scope = scope
        self._sink = sink
        self._stage = "function"
        self._value: Any = None
        self._loaded: Any = None
        self.asynchronous = False
        self.items = 0
        self.packed: Packed | None = None

    @property
    def loading(self) -> bool:
        """Whether it has come no further than its function and its arguments."""
        return self._stage in ("function", "arguments")

    def make(self) -> None:
        """Do it all; afterwards ``packed`` or ``items`` is set."""
        call = self._call
        context.enter(self._around.context_of(call))
        self._around.router.enter(self._sink)
        if not self._around.setup.plugins:
            self._run()
            return
        from sky.agent import plugins  # few computes have any

        self._stage = "plugins"
        with plugins.around(self._around.setup.plugins, self._around.context_of(call)):
            self._run()
            self._stage = "plugins"

    def _run(self) -> None:
        call = self._call
        self._stage = "function"
        function = self._loaded = self._function.load()
        if isinstance(function, Step):
            self._stage = "call"
            self.packed = function.run(call.args, call.args_path, JobNode.of(self._around.setup))
            return
        self._stage = "arguments"
        arguments: Any = payload.unpack_from(call.args, call.args_path)
        positional, named = _NONE if arguments is None else arguments
        self._stage = "call"
        value = function(*positional, **named)
        if type(value) not in _PLAIN:
            value = self._resolve(value)
        if call.stream:
            self._emit_all(value)
            return
        self._stage, self._value = "result", value
        self.packed = payload.pack(value, self._around.results)

    def _resolve(self, value: Any) -> Any:
        """Wait for a coroutine; make a list of a generator unless its items are streamed."""
        if inspect.iscoroutine(value):
            self.asynchronous = True
            value = self._lane.await_(self._scope, value)
        if self._call.stream:
            return value
        if inspect.isgenerator(value):
            return list(cast("Iterable[Any]", value))
        if inspect.isasyncgen(value):
            self.asynchronous = True
            return self._lane.await_(self._scope, _collect(value))
        return value

    def _emit_all(self, value: Any) -> None:
        if inspect.isasyncgen(value):
            self.asynchronous = True
            self._lane.await_(self._scope, self._emit_async(value))
            return
        if not isinstance(value, Iterable):
            kind = type(value).__name__
            raise TypeError(f"a stream was asked of a function that returned a {kind}, which has no items")
        self._around.credits.open(self._call)
        items = iter(cast("Iterable[Any]", value))
        try:
            for item in items:
                self._emit(item)
                while self._full():
                    self._around.wait_credit(True)
        finally:
            self._around.credits.close(self._call.seq)
            close = getattr(items, "close", None)
            if close is not None:
                close()

    async def _emit_async(self, items: Any) -> None:
        import asyncio  # already there: this runs in its loop

        self._around.credits.open(self._call)
        try:
            async for item in items:
                self._emit(item)
                while self._full():
                    self._around.wait_credit(False)
                    await asyncio.sleep(CREDIT_POLL_S)
        finally:
            self._around.credits.close(self._call.seq)
            await items.aclose()

    def _full(self) -> bool:
        return self.items - self._around.credits.consumed(self._call.seq) >= ITEM_WINDOW

    def _emit(self, item: Any) -> None:
        self._stage, self._value = "result", item
        packed = payload.pack(item, self._around.results)
        self._stage = "call"
        self._around.port.send(Yielded(self._call.seq, self.items, packed.value, packed.sha256, packed.file))
        self.items += 1

    def explain(self, error: BaseException) -> Failure:
        """What to tell of ``error``, by how far the call had come."""
        source.show(self._loaded)
        results = self._around.results
        if isinstance(error, ModuleNotFoundError) and self.loading:
            return failure.missing(
                error,
                f"the node has no module {error.name!r}, which the {self._stage} of this call needs: install"
                f" it with sky.Image(pip=[...]), or take your own along with sky.Image(includes=[...]); a"
                f" module in the folder of your script goes along by itself, unless it keeps something that"
                f" cannot be pickled, such as a lock",
                results,
            )
        if self.loading:
            return failure.unpacked(
                error,
                f"the {self._stage} of this call cannot be loaded on the node (Python {_VERSION}):"
                f" {failure.type_name(error)}: {failure.message_of(error)}",
            )
        if self._stage == "result":
            said = failure.in_result(self._value, error)
            return failure.unpacked(
                error, f"the call ran, but its result cannot be sent back: {said}: return plain data instead"
            )
        return failure.describe(error, results)


async def _collect(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]
