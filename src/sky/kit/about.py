"""What the code that is running now is about: a request, or a pass of a loop.

Decides: where that is kept, and how an id is called in a line of the log. Never: writes a line. Follows:
whatever is logged meanwhile says which request or pass it belongs to, without being told; what says so is
asked only when a line is written, so that it costs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token

from sky.kit.ids import PREFIXES

_NOUNS = {prefix: noun for noun, prefix in PREFIXES.items() if noun != "job_event"}
_Told = Callable[[], Mapping[str, str]]
_now: ContextVar[_Told | None] = ContextVar("about", default=None)


def begin(told: _Told) -> Token[_Told | None]:
    """From now on, in this task and what it starts, it is about that."""
    return _now.set(told)


def end(token: Token[_Told | None]) -> None:
    """It is about that no more."""
    _now.reset(token)


def now() -> Mapping[str, str]:
    """What it is about now; empty: nothing in particular."""
    told = _now.get()
    return {} if told is None else told()


def of_key(key: str) -> Mapping[str, str]:
    """A loop's key: the loop, and the thing by its noun where the key has an id."""
    loop, _, key_id = key.partition("/")
    noun = _NOUNS.get(key_id[:4], "key")
    return {"loop": loop, noun: key_id}
