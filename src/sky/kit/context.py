"""Which call the code that is running now belongs to.

Decides: where a call's surroundings are kept: a context variable, and a fallback for the whole process.
Never: reads a network or a file, or knows how a call came here.
Follows: what runs a call enters its context; whatever the call asks about itself is answered from it, in
threads and coroutines of its own too as long as the process runs that one call alone.
"""

from __future__ import annotations

from contextvars import ContextVar

import msgspec

SOURCE_ATTRIBUTE = "__sky_source__"
"""Attribute of a shipped function: ``{file name: source text}``, for tracebacks where the file is not."""


class CallContext(msgspec.Struct, frozen=True):
    """One execution and the place where it runs. ``rank`` counts from 0 among ``total`` nodes.

    ``peers`` are the addresses of all nodes by rank; ``accelerators`` the names of this node's.
    ``world`` are the ranks that a broadcast call was sent to, where a plugin has them meet; else empty.
    """

    task: str
    execution: str
    compute: str
    node: str
    rank: int
    total: int
    peers: tuple[str, ...] = ()
    accelerators: tuple[str, ...] = ()
    world: tuple[int, ...] = ()


_current: ContextVar[CallContext | None] = ContextVar("sky_call", default=None)
_alone: list[CallContext | None] = [None]


def current() -> CallContext | None:
    """The call this code belongs to; None outside of calls."""
    return _current.get() or _alone[0]


def enter(call: CallContext | None) -> None:
    """From here on, in this context, the code belongs to ``call``."""
    _current.set(call)


def enter_process(call: CallContext | None) -> None:
    """From here on the whole process runs ``call`` alone (None: no call, or more than one)."""
    _alone[0] = call
