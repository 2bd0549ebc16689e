"""What a failure shows: the caller's own lines, and the message. The way through this package stays out.

Decides: where the outside begins (what is marked here), and what is kept: the traceback that an exception had
on a node, code of the caller's that we had called, what the caller was handling already, and all of it under
SKY_DEBUG.
Never: changes which exception arrives; touches one that is not ours, such as a TypeError that is a defect.
Follows: of calls within calls the outer one has the last word, so nothing inside needs to know of it. An
exception that is raised again has the traceback it is given, without a line for who raised it again. A
built-in one that is about what a caller gave says so (``misuse``); arguments that fit no parameter need not.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import aclosing
from pathlib import Path
from types import FunctionType, TracebackType
from typing import Any, TypeVar, cast

from sky.client.errors import PackError, RemoteTraceback, SkyError

DEBUG_VARIABLE = "SKY_DEBUG"
OPERATORS = [
    "__init__",
    "__enter__",
    "__exit__",
    "__aenter__",
    "__aexit__",
    "__next__",
    "__anext__",
    "__rshift__",
    "__matmul__",
    "__gt__",
]
GENERATOR, COROUTINE, ASYNC_GENERATOR = 0x20, 0x80, 0x200
"""Flags of code, as ``inspect`` has them, which is slow to import."""

MISUSE = "sky_misuse"
"""What marks an exception that is about what the caller gave."""
OURS = f"{Path(__file__).parents[1]}{os.sep}"
LIBRARIES = (f"{Path(os.__file__).parent}{os.sep}", "<frozen ")
PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

F = TypeVar("F", bound=Callable[..., Any])
E = TypeVar("E", bound=Exception)
C = TypeVar("C", bound=type)


def misuse(error: E) -> E:
    """A TypeError, a ValueError or the like about what the caller gave: it shows no line of ours either."""
    setattr(error, MISUSE, True)
    return error


def outermost(function: F) -> F:
    """A function, coroutine function or generator that callers use: what it raises shows no line of ours."""
    flags = cast("FunctionType", function).__code__.co_flags
    if flags & ASYNC_GENERATOR:
        wrapped = _async_generator(function)
    elif flags & COROUTINE:
        wrapped = _coroutine(function)
    elif flags & GENERATOR:
        wrapped = _generator(function)
    else:
        wrapped = _plain(function)
    return cast("F", functools.wraps(function)(wrapped))


def outermost_class(kind: C) -> C:
    """The same for every public method, property and operator that a class has of its own."""
    for name, value in list(vars(kind).items()):
        if name.startswith("_") and name not in OPERATORS:
            continue
        if isinstance(value, FunctionType):
            setattr(kind, name, outermost(value))
        elif isinstance(value, classmethod | staticmethod):
            method: Any = cast("Any", value)
            setattr(kind, name, type(method)(outermost(method.__func__)))
        elif isinstance(value, property) and value.fget is not None:
            setter = None if value.fset is None else outermost(value.fset)
            setattr(kind, name, property(outermost(value.fget), setter, doc=value.__doc__))
    return kind


def outermost_names(module: dict[str, Any], names: Iterable[str]) -> None:
    """The same for the functions of a module by these names."""
    for name in names:
        if isinstance(module[name], FunctionType):
            module[name] = outermost(module[name])


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        before = sys.exception()
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            _cut(error, before)
            raise

    return call


def _coroutine(function: Callable[..., Any]) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        before = sys.exception()
        try:
            return await function(*args, **kwargs)
        except BaseException as error:
            _cut(error, before)
            raise

    return call


def _generator(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        before = sys.exception()
        try:
            yield from function(*args, **kwargs)
        except BaseException as error:
            _cut(error, before)
            raise

    return call


def _async_generator(function: Callable[..., Any]) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        before = sys.exception()
        try:
            async with aclosing(function(*args, **kwargs)) as items:
                async for item in items:
                    yield item
        except BaseException as error:
            _cut(error, before)
            raise

    return call


def _cut(error: BaseException, before: BaseException | None) -> None:
    """Take our lines from an exception that is on its way out. ``before``: what was being handled outside."""
    cause = error.__cause__
    remote = isinstance(cause, RemoteTraceback)
    ours = isinstance(error, SkyError | KeyboardInterrupt) or hasattr(error, MISUSE)
    if error is before or not (remote or ours or _unfitting(error)):
        return
    if os.environ.get(DEBUG_VARIABLE):
        return
    error.__traceback__ = _theirs(error.__traceback__)
    if remote or isinstance(error, PackError):
        return  # what stands behind it is the caller's own: where it was raised, or what could not be packed
    error.__cause__ = None
    error.__context__ = before
    error.__suppress_context__ = before is None


def _theirs(way: TracebackType | None) -> TracebackType | None:
    """The end of the way that is the caller's: in code of theirs that we had called, such as a generator."""
    theirs = None
    while way is not None:
        name = way.tb_frame.f_code.co_filename
        if name.startswith(OURS):
            theirs = None
        elif theirs is None and not (name.startswith(LIBRARIES) or any(one in name for one in PACKAGES)):
            theirs = way
        way = way.tb_next
    return theirs


def _unfitting(error: BaseException) -> bool:
    """Whether what was called has not even begun, and it was not we who called it."""
    way = error.__traceback__
    if not isinstance(error, TypeError) or way is None or way.tb_next is not None:
        return False
    caller = way.tb_frame.f_back
    return caller is not None and not caller.f_code.co_filename.startswith(OURS)
