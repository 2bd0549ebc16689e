"""Patterns that hold for the whole of a text.

Decides: that a line end after the last character is one character too many: Python's ``$`` lets one pass,
and no reader of the published pattern expects it. Never: looks for anything else.
Follows: names, hashes and cursors never carry a line end into a log, a header or a file name.
"""

from __future__ import annotations

import types
import typing
from typing import Any, cast

import msgspec


def line_end(value: Any, kind: Any) -> tuple[str, ...] | None:
    """Where in ``value`` a text with a pattern ends in a line end; None where nowhere. () is the whole."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        plain, *marks = typing.get_args(kind)
        patterned = any(isinstance(mark, msgspec.Meta) and mark.pattern is not None for mark in marks)
        if patterned and isinstance(value, str) and value.endswith("\n"):
            return ()
        return line_end(value, plain)
    if isinstance(kind, types.UnionType) or origin is typing.Union:
        found = (line_end(value, branch) for branch in typing.get_args(kind))
        return next((steps for steps in found if steps is not None), None)
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        return _first((f.encode_name, getattr(value, f.name), f.type) for f in fields)
    if isinstance(value, tuple) and origin is tuple:
        items = cast("tuple[Any, ...]", value)
        return _first((str(index), item, typing.get_args(kind)[0]) for index, item in enumerate(items))
    return None


def _first(parts: typing.Iterable[tuple[str, Any, Any]]) -> tuple[str, ...] | None:
    for name, value, kind in parts:
        steps = line_end(value, kind)
        if steps is not None:
            return (name, *steps)
    return None
