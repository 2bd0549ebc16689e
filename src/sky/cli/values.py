"""Python values as JSON text, for people and programs that read what a call returned.

Decides: how the values JSON knows are written, and that everything else is shown as Python shows it.
Never: fails on a value. Follows: numbers, texts, lists and dictionaries come out as a program expects them;
an array becomes nested lists, a number type of its own a number.
"""

from __future__ import annotations

import os
from typing import Any, cast

import msgspec

TEXT_CHARS_MAX = 1_000_000


def as_json(content: bytes) -> bytes:
    """The JSON text of a packed value. Raises PackError when it cannot be unpacked here."""
    from sky.client.pack import unpack

    return dumps(unpack(content))


def dumps(value: Any) -> bytes:
    """The JSON text of any value."""
    try:
        return msgspec.json.encode(value, enc_hook=_plain)
    except (TypeError, ValueError, RecursionError):
        # A key that is no text, a structure that contains itself: only Python's own form is left.
        return msgspec.json.encode(_shown(value))


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(cast("os.PathLike[str]", value))
    for method in ("tolist", "item"):
        convert = getattr(value, method, None)
        if callable(convert):
            try:
                return convert()
            except (TypeError, ValueError, RuntimeError):
                continue
    return _shown(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= TEXT_CHARS_MAX else text[:TEXT_CHARS_MAX] + "…"
