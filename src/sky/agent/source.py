"""Source lines for functions that came as bytes, so that a traceback shows them.

Decides: which code is relabelled: pickling gives every function one made-up file name, and the function that
was called brings its file's name and text. Never: reads a file, or changes what code does.
Follows: tracebacks read as they would have where the function was written, for its helpers too.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Mapping
from types import CellType, CodeType, FunctionType
from typing import Any, cast

from sky.kit.context import SOURCE_ATTRIBUTE

PICKLED_FILE = "<dynamic-code>"
"""What cloudpickle calls the file of every function that it ships by value."""


def _source(function: Any) -> tuple[str, str] | None:
    """The name and text of a function's file, where it brings them."""
    told: object = getattr(function, SOURCE_ATTRIBUTE, None)
    if not isinstance(function, FunctionType) or not isinstance(told, Mapping):
        return None
    for name, text in cast("Mapping[object, object]", told).items():
        if isinstance(name, str) and isinstance(text, str):
            return name, text
    return None


def relabel(function: Any) -> None:
    """Name the file in the code of a function just unpickled, and of what it uses of the same module."""
    source = _source(function)
    if source is None:
        return
    for found in _related(function):
        if found.__code__.co_filename == PICKLED_FILE:
            found.__code__ = _renamed(found.__code__, source[0])


def show(function: Any) -> None:
    """Have the lines of a function's file at hand for the next traceback."""
    source = _source(function)
    if source is not None:
        name, text = source
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)


def _renamed(code: CodeType, file: str) -> CodeType:
    constants = tuple(
        _renamed(constant, file) if isinstance(constant, CodeType) else constant
        for constant in code.co_consts
    )
    return code.replace(co_filename=file, co_consts=constants)


def _related(function: FunctionType) -> Iterator[FunctionType]:
    """The function, and the functions and methods of its module that came with it."""
    module = function.__module__
    seen: set[int] = set()
    waiting: list[Any] = [function]
    while waiting:
        value = waiting.pop()
        if id(value) in seen or not isinstance(value, FunctionType | type) or value.__module__ != module:
            continue
        seen.add(id(value))
        if isinstance(value, FunctionType):
            yield value
            waiting += value.__globals__.values()
            waiting += _held(value.__closure__ or ())
        else:
            waiting += [getattr(member, "__func__", member) for member in vars(value).values()]
            waiting += [member.fget for member in vars(value).values() if isinstance(member, property)]


def _held(cells: tuple[CellType, ...]) -> list[Any]:
    """What the cells of a closure hold; an empty one holds nothing."""
    values: list[Any] = []
    for cell in cells:
        try:
            values.append(cell.cell_contents)
        except ValueError:
            continue
    return values
