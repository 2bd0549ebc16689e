"""A described call made ready to be sent: packed once, small arguments inline, large ones by name.

Decides: what is inline and what is a blob, and how long a packed function stands for the function.
Never: sends. Follows: the same bytes go out on every retry; a function that the daemon has is not sent again;
one whose globals have changed (a notebook's cell was run again) goes out as it is now.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sky.client.function import Pending
from sky.client.pack import Packed, hash_of, pack_arguments, pack_function
from sky.kit.clock import SystemClock
from sky.wire import v1

KEEP_S = 0.25
"""How long a packed function stands for the function: nobody changes what it reads faster than that."""
KEEP_TIMES = 20
"""And at least this many times as long as packing it took."""


@dataclass(frozen=True, slots=True)
class _Kept:
    packed: Packed
    until_s: float


_clock = SystemClock()
_kept: weakref.WeakKeyDictionary[Callable[..., Any], _Kept] = weakref.WeakKeyDictionary()
_packing = threading.Lock()
_NONE = pack_arguments((), {}, "")


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One call in bytes. ``inline`` and ``blob`` are its arguments, at most one of them."""

    function: Packed
    inline: bytes | None
    blob: Packed | None
    timeout_s: int | None
    retry: v1.RetryPolicy | None
    streams: bool

    @property
    def blobs(self) -> tuple[Packed, ...]:
        """What must be stored before it can run, beside the function."""
        return () if self.blob is None else (self.blob,)

    @property
    def kin(self) -> tuple[str, int | None, v1.RetryPolicy | None]:
        """Calls that agree in this can go in one batch."""
        return self.function.sha256, self.timeout_s, self.retry

    def task(self, compute: str, dispatch: v1.Dispatch, correlation: str) -> v1.TaskCreate:
        """The request for this call alone."""
        return v1.TaskCreate(
            compute=compute,
            function=self.function.sha256,
            dispatch=dispatch,
            args_inline=self.inline,
            args_sha256=self.blob.sha256 if self.blob else None,
            retry=self.retry,
            timeout_seconds=self.timeout_s,
            correlation_id=correlation,
        )

    def batch_call(self) -> v1.BatchCall:
        """This call in a batch."""
        return v1.BatchCall(args_inline=self.inline, args_sha256=self.blob.sha256 if self.blob else None)


def prepare(call: Pending[Any]) -> Outgoing:
    """Pack a call. Raises PackError naming the function or argument that cannot travel."""
    function = call.function
    # The function first: packing it says which classes of its module travel by value, in arguments too.
    packed = _function(function.function, function.name)
    content = pack_arguments(call.args, call.kwargs, function.name) if call.args or call.kwargs else _NONE
    inline: bytes | None = None
    blob: Packed | None = None
    if isinstance(content, bytes) and len(content) <= v1.INLINE_ARGUMENT_BYTES_MAX:
        inline = content
    else:
        blob = Packed(hash_of(content), content)
    timeout_s = None if function.timeout is None else max(1, math.ceil(function.timeout))
    return Outgoing(packed, inline, blob, timeout_s, function.retry, function.streams)


def _function(function: Callable[..., Any], name: str) -> Packed:
    with _packing:
        now_s = _clock.monotonic_s()
        try:
            known = _kept.get(function)
        except TypeError:
            # It cannot be referred to weakly: nothing to keep it by.
            return pack_function(function, name)
        if known is not None and now_s < known.until_s:
            return known.packed
        packed = pack_function(function, name)
        spent_s = _clock.monotonic_s() - now_s
        _kept[function] = _Kept(packed, now_s + max(KEEP_S, spent_s * KEEP_TIMES))
        return packed
