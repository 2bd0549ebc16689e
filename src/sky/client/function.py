"""``@sky.function``: a function that can be called here, or described and sent to a compute.

Decides: what ``train(10)`` is (a description, nothing has run), and which operator sends it how.
Never: knows how a call travels; a compute does (``Target``). Imports nothing heavy: this module is also
loaded on nodes, where the functions that a shipped function names arrive as these objects.
Follows: nothing is packed or sent before an operator says where to, and a shipped function that uses other
functions made here can call them there with ``.local``.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    TypeVarTuple,
    cast,
    overload,
)

from sky.client.outermost import misuse, outermost, outermost_class
from sky.client.target import AsyncTarget, Target, require_target

if TYPE_CHECKING:
    from sky.client.handles import Future
    from sky.client.items import Items
    from sky.client.pack import Packed
    from sky.wire.v1 import RetryPolicy

SHOWN_CHARS_MAX = 200
"""Longer arguments are shown in part."""
NOT_OURS = ("remote", "spawn", "map", "starmap", "delay", "submit", "apply_async", "call")
"""What is called so elsewhere, and is an operator or a function here."""

P = ParamSpec("P")
P2 = ParamSpec("P2")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")
Ts = TypeVarTuple("Ts")


class Settled(Generic[R]):
    """How a call ended: with a value, or with an exception that is raised where the value is asked for."""

    __slots__ = ("_value", "console_lines", "error", "task")

    def __init__(
        self, value: R | None, error: BaseException | None, task: str = "", console_lines: int = 0
    ) -> None:
        self._value = value
        self.error = error
        self.task = task
        self.console_lines = console_lines

    def unwrap(self) -> R:
        """The value, or raise the exception."""
        if self.error is not None:
            raise self.error
        return cast("R", self._value)


@outermost_class
class Pending(Generic[R_co]):
    """A call that is described, not sent: ``>>`` one node, ``@`` every node, ``>`` later, ``&`` together."""

    __slots__ = ("args", "function", "kwargs")

    def __init__(self, function: Function[..., R_co], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs

    @overload
    def __rshift__(self: Pending[Iterator[S]], target: Target | AsyncTarget) -> Items[S]: ...
    @overload
    def __rshift__(self, target: AsyncTarget) -> Future[R_co]: ...
    @overload
    def __rshift__(self, target: Target) -> R_co: ...
    def __rshift__(self, target: Target | AsyncTarget) -> Any:
        """Run it on one node, wait, and give back what it returned or raise what it raised."""
        settled = require_target(target).call_one(self)
        if not isinstance(settled, Settled):
            return settled
        if settled.error is not None:
            raise settled.error
        return settled.unwrap()

    @overload
    def __matmul__(self, target: AsyncTarget) -> Future[list[R_co]]: ...
    @overload
    def __matmul__(self, target: Target) -> list[R_co]: ...
    def __matmul__(self, target: Target | AsyncTarget) -> Any:
        """Run it on every node, wait, and give back what each returned, by rank."""
        settled = require_target(target).call_all(self)
        if not isinstance(settled, Settled):
            return settled
        if settled.error is not None:
            raise settled.error
        return settled.unwrap()

    def __gt__(self, target: Target | AsyncTarget) -> Future[R_co]:
        """Send it and go on: the future is what it will have returned."""
        return require_target(target).submit(self)

    def __and__(self, other: Pending[S]) -> Together[R_co, S]:
        """This call and another, side by side."""
        return Together(self, other)

    def __repr__(self) -> str:
        given = [_short(value) for value in self.args]
        given += [f"{name}={_short(value)}" for name, value in self.kwargs.items()]
        return f"{self.function.name}({', '.join(given)})"

    if not TYPE_CHECKING:
        # For people: a checker of types says the same in its own words.

        @outermost
        def __bool__(self) -> bool:
            raise misuse(TypeError(f"{_not_sent(self)}, so it is neither true nor false"))

        @outermost
        def __iter__(self) -> Any:
            raise misuse(TypeError(f"{_not_sent(self)}, so it has no items"))

        @outermost
        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            raise misuse(AttributeError(f"{_not_sent(self)}, so it has no {name!r}", name=name, obj=self))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


def _not_sent(call: Pending[Any]) -> str:
    return f"{call!r} describes a call that was not sent (send it: `call >> compute`; run it here: `.local`)"


def require_call(given: Any) -> Pending[Any]:
    """The call, or TypeError saying how to make one of what was given instead."""
    if isinstance(given, Pending):
        return cast("Pending[Any]", given)
    shown = _short(given)
    if isinstance(given, Function):
        hint = "call it first"
    elif isinstance(given, list | tuple):
        hint = "give its elements one by one: sky.gather(*calls)"
    elif callable(given):
        hint = "put @sky.function above it, and call it"
    else:
        hint = "calling a function made with @sky.function gives one"
    raise misuse(TypeError(f"{shown} is no call that could be sent: {hint}"))


@outermost_class
class Together(Generic[*Ts]):
    """Calls to run side by side: ``(a & b) >> compute`` gives a tuple of what they returned."""

    __slots__ = ("calls",)

    def __init__(self, *calls: Pending[Any]) -> None:
        self.calls = calls

    def __and__(self, other: Pending[S]) -> Together[*Ts, S]:
        """These calls and one more."""
        return Together(*self.calls, other)

    @overload
    def __rshift__(self, target: AsyncTarget) -> Future[tuple[*Ts]]: ...
    @overload
    def __rshift__(self, target: Target) -> tuple[*Ts]: ...
    def __rshift__(self, target: Target | AsyncTarget) -> Any:
        """Run them all, wait for all, and give back what each returned, in this order."""
        settled = require_target(target).collect(self.calls)
        if not isinstance(settled, Settled):
            return settled
        if settled.error is not None:
            raise settled.error
        return settled.unwrap()

    def __gt__(self, target: Target | AsyncTarget) -> Future[tuple[*Ts]]:
        """Send them and go on: the future is the tuple of what they will have returned."""
        return require_target(target).collect_later(self.calls)


class Function(Generic[P, R]):
    """A function that can be sent: call it to describe a call, ``.local(...)`` to run it here."""

    @outermost
    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        timeout: float | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        if isinstance(function, staticmethod | classmethod):
            raise misuse(
                TypeError("@sky.function goes below @staticmethod and @classmethod, next to the function")
            )
        if not callable(function):
            raise misuse(TypeError(f"@sky.function goes above a function, and {function!r} is none"))
        if timeout is not None and not _seconds(timeout):
            raise misuse(ValueError(f"timeout is in seconds and more than 0, not {timeout!r}"))
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name or getattr(function, "__qualname__", repr(function))
        self.timeout = timeout
        self.retry = retry
        self.packed: list[Packed] | None = None
        """Of one that stays as it was: its payload, once there is one."""

    @outermost
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Pending[R]:
        """Describe a call. Raises TypeError at once when the arguments do not fit."""
        if self._signature is not None:
            try:
                self._signature.bind(*args, **kwargs)
            except TypeError as wrong:
                raise misuse(TypeError(f"{self.name}(): {wrong}")) from None
        return Pending(self, args, kwargs)

    def local(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it here and now, in this process; a coroutine is run to its end."""
        result = self.function(*args, **kwargs)
        return _run_coroutine(result) if inspect.iscoroutine(result) else result

    def options(
        self, *, timeout: float | None = None, retry: RetryPolicy | None = None, name: str | None = None
    ) -> Function[P, R]:
        """The same function with other options: ``timeout`` in seconds, ``retry`` of its calls."""
        changed: Function[P, R] = Function(
            self.function,
            name=name or self.name,
            timeout=self.timeout if timeout is None else timeout,
            retry=retry or self.retry,
        )
        return changed

    def as_it_is(self) -> Function[P, R]:
        """The same function, which the calls made of it send as it is when the first of them is sent."""
        kept = self.options()
        kept.packed = []
        return kept

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Function[P, R]: ...
    @overload
    def __get__(
        self: Function[Concatenate[Any, P2], R], instance: object, owner: Any = None
    ) -> Function[P2, R]: ...
    def __get__(self, instance: object | None, owner: Any = None) -> Any:
        """As a method of a class: bound to an object, which travels along with each call."""
        if instance is None:
            return self
        bound = MethodType(self.function, instance)
        return Function[..., R](bound, name=self.name, timeout=self.timeout, retry=self.retry)

    @property
    def positional(self) -> tuple[str, ...]:
        """The names of the parameters that may be given by position."""
        parameters = self._signature.parameters.values() if self._signature is not None else ()
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return tuple(one.name for one in parameters if one.kind in kinds)

    @property
    def streams(self) -> bool:
        """Whether a call gives items one by one."""
        return inspect.isgeneratorfunction(self.function) or inspect.isasyncgenfunction(self.function)

    @functools.cached_property
    def _signature(self) -> inspect.Signature | None:
        try:
            return inspect.signature(self.function)
        except (TypeError, ValueError):
            return None

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("_signature", None)
        state["packed"] = None
        return state

    def __repr__(self) -> str:
        return f"<sky.function {self.name}>"

    if not TYPE_CHECKING:
        # For people: a checker of types says the same in its own words.

        @outermost
        def __rshift__(self, target: Any) -> Any:
            require_call(self)

        __matmul__ = __gt__ = __and__ = __rshift__

        @outermost
        def __getattr__(self, name: str) -> Any:
            if name in NOT_OURS:
                hint = (
                    "send a call with `function(...) >> compute` (and wait) or `> compute` (a future), many"
                    " with `sky.map(function, values) >> compute`, and run one here with `.local(...)`"
                )
                raise misuse(AttributeError(f"a sky.function has no {name!r}: {hint}", name=name, obj=self))
            raise misuse(AttributeError(f"a sky.function has no attribute {name!r}", name=name, obj=self))


def _seconds(value: object) -> bool:
    return isinstance(value, int | float) and 0 < value < math.inf


def _run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    # A loop runs in this thread already, and a loop cannot wait for itself: the coroutine gets its own.
    with ThreadPoolExecutor(1, "sky-local") as pool:
        return pool.submit(asyncio.run, coroutine).result()


class _Decorator(Protocol):
    """What ``@sky.function(...)`` with options is."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Function[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, AsyncIterator[R]], /) -> Function[P, Iterator[R]]: ...
    @overload
    def __call__(self, function: Callable[P, Generator[R, Any, Any]], /) -> Function[P, Iterator[R]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Function[P, R]: ...


@overload
def function(function: Callable[P, Coroutine[Any, Any, R]], /) -> Function[P, R]: ...
@overload
def function(function: Callable[P, AsyncIterator[R]], /) -> Function[P, Iterator[R]]: ...
@overload
def function(function: Callable[P, Generator[R, Any, Any]], /) -> Function[P, Iterator[R]]: ...
@overload
def function(function: Callable[P, R], /) -> Function[P, R]: ...
@overload
def function(
    *, timeout: float | None = None, retry: RetryPolicy | None = None, name: str | None = None
) -> _Decorator: ...
@outermost
def function(
    function: Callable[..., Any] | None = None,
    /,
    *,
    timeout: float | None = None,
    retry: RetryPolicy | None = None,
    name: str | None = None,
) -> Any:
    """Make a function that can be sent to a compute. Works on sync, async and generator functions.

    ``timeout`` is in seconds, rounded up to whole ones, and enforced on the node; ``retry`` says how often a
    call is tried again.
    """
    if function is not None:
        return Function[..., Any](function)

    @outermost
    def decorate(wrapped: Callable[..., Any]) -> Function[..., Any]:
        return Function(wrapped, name=name, timeout=timeout, retry=retry)

    return decorate
